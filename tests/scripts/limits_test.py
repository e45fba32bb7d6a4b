"""Every command under small limits: threads (ulimit -u), address space (ulimit -v), open files
(ulimit -n), and in a control group. It runs, perhaps more slowly, or ends with one line and an exit
code that fits: no crash, no hang, no messages of other libraries."""

import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import tool
from outputs_test import all_commands

# A user of its own, so that no other process counts: the kernel's limit is on a user's threads.
NOBODY = 54321

CONV = """
[data]
name = "{data}"
[model]
layers = [
  {{ type = "conv2d", out = 6, kernel = 3 }},
  {{ type = "batchnorm" }},
  {{ type = "relu" }},
  {{ type = "maxpool2d", kernel = 2 }},
  {{ type = "linear", out = 4 }},
]
[train]
batch = 16
max_steps = 3
optimizer = {{ type = "sgd", lr = 0.01 }}
[run]
device = "cpu"
"""


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()
        cls.conv = cls.folder / "conv.toml"
        cls.conv.write_text(CONV.format(data=cls.folder.data))
        cls.model, cls.conv_model = cls.folder / "run", cls.folder / "conv-run"
        tool.run("train", cls.folder.config, "--out", cls.model, "--quiet")
        tool.run("train", cls.conv, "--out", cls.conv_model, "--quiet")
        cls.cache = cls.folder / "cache"
        cls.cache.mkdir()
        cls.images = cls.folder.data / "t10k-images-idx3-ubyte"
        cls.table, cls.onnx = cls.folder / "table.csv", cls.folder / "net.onnx"
        cls.table.write_text("a,b,label\n" + "1,2,x\n3,4,y\n" * 20)
        tool.run("export", cls.model, "--onnx", cls.onnx)
        for path in [cls.folder.path, *cls.folder.path.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        cls.cache.chmod(0o777)
        few = ["--set", "train.max_steps=3"]
        cls.commands = {
            "train": ["train", cls.folder.config, *few],
            "train tuned": ["train", cls.conv],
            "eval": ["eval", cls.model],
            "eval tuned": ["eval", cls.conv_model],
            "infer": ["infer", cls.model, "--input", cls.images],
            "infer tuned": ["infer", cls.conv_model, "--input", cls.images],
            "sweep": ["sweep", cls.folder.config, *few, "--set", "train.seed=1,2"],
            "verify": ["verify", cls.folder.config],
            "plan": ["plan", cls.conv],
            "profile": ["profile", cls.folder.config, "--seconds", "0.05"],
            "ladder": ["ladder", "mlp", "--rung", "simd", "--seconds", "0.01"],
            "bench mlp": ["bench", "mlp", "--only", "784-16-10:16", "--seconds", "0.01"],
            "bench gemm": ["bench", "gemm", "--m", "16", "--n", "4", "--k", "16", "--seconds", "0.01"],
            "bench rnn": ["bench", "rnn", "--cell", "gru", "--hidden", "8", "--batch", "2", "--steps", "3", "--seconds",
                          "0.01"],
            "bench infer": ["bench", "infer", cls.conv, "--batch", "4", "--seconds", "0.01"],
            "bench deepbench": ["bench", "deepbench", "--part", "gemm", "--take", "1000", "--seconds", "0.001"],
            "import": ["import", cls.onnx, "--out", cls.cache / "imported.safetensors"],
            "export": ["export", cls.model, "--onnx", cls.cache / "exported.onnx"],
            "serve": ["serve", cls.model, "--port", "0", "--no-tune"],
            "data list": ["data", "list"],
            "data check": ["data", "check", "mnist", "--data", cls.cache],
            "data get": ["data", "get", "mnist", "--data", cls.cache, "--mirror", "http://127.0.0.1:9"],
            "data describe": ["data", "describe", cls.table, "--write-config", cls.cache / "described.toml"],
            "info": ["info", "--measure"],
            "completion": ["completion", "bash"],
        }
        cls.fails_anyway = {"data check", "data get"}  # nothing is there, and nobody serves it

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def ends_well(self, name, limit, threads=4, before=None, codes=(0, 2, 3, 5, 6)):
        """One run under a limit that `before`, in the child, has set."""
        env = tool.environment(XDG_CACHE_HOME=str(self.cache), RIDGELINE_THREADS=str(threads))
        for result in ("imported.safetensors", "exported.onnx", "described.toml"):
            (self.cache / result).unlink(missing_ok=True)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([tool.TOOL, *map(str, self.commands[name])], stdout=out,
                                       stderr=err, env=env, preexec_fn=before, cwd="/")
            try:
                if name == "serve":
                    self.stop_when_ready(process, err)
                code = process.wait(timeout=240)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.fail(f"{name} under {limit} hangs")
            err.seek(0)
            text = err.read().decode(errors="replace")
        what = f"{name} under {limit}: exit {code}\n{text}"
        if code == 127 and "error while loading shared libraries" in text:
            return code, text  # not even the program's libraries fit
        self.assertIn(code, codes, what)
        for word in ("terminate called", "libgomp", "Aborted", "unexpected"):
            self.assertNotIn(word, text, what)
        if code != 0:
            lines = text.splitlines()
            errors = [line for line in lines if line.startswith("ridgeline: ")
                      and not line.startswith("ridgeline: warning: ")]
            self.assertEqual(len(errors), 1, what)
            self.assertEqual(lines[-1], errors[0], what)
        return code, text

    @staticmethod
    def stop_when_ready(process, err):
        """Ends a server as soon as it listens, if it ever does."""
        for _ in range(1200):
            if b" on http://" in os.pread(err.fileno(), 1 << 20, 0):
                process.send_signal(signal.SIGTERM)
                return
            if process.poll() is not None:
                return
            time.sleep(0.05)

    def test_the_table_knows_every_command(self):
        self.assertEqual({name.removesuffix(" tuned") for name in self.commands}, set(map(" ".join, all_commands())))

    def under(self, name, which, value, **options):
        def before():
            resource.setrlimit(which, (value, value))
        return self.ends_well(name, f"{which}={value}", before=before, **options)

    def test_threads(self):
        if os.geteuid() != 0:
            self.skipTest("a limit on one user's threads needs a user of its own, and root to be it")

        def limited(count):
            def before():
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                resource.setrlimit(resource.RLIMIT_NPROC, (count, count))
            return before

        probe = subprocess.run([tool.TOOL, "--version"], preexec_fn=limited(1),
                               capture_output=True, text=True, cwd="/")
        if probe.returncode != 0:
            self.skipTest(f"the tool cannot be run as another user: {probe.stderr.strip()}")

        def is_refused():
            limited(1)()
            try:
                child = os.fork()
            except OSError:
                return
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            raise RuntimeError("not refused")

        try:
            subprocess.run([tool.TOOL, "--version"], preexec_fn=is_refused, capture_output=True)
        except subprocess.SubprocessError:
            self.skipTest("the system does not keep a limit on threads here")
        for name in self.commands:
            for count in (1, 3, 8, 14) if "tuned" in name else (1,):
                code, text = self.ends_well(name, f"{count} threads", before=limited(count))
                # What computes needs no thread but its own; what streams or serves needs a few.
                if not name.startswith(("infer", "serve")) and name not in self.fails_anyway:
                    self.assertEqual(code, 0, f"{name} under {count} threads\n{text}")
                if count == 1 and code == 0 and name in ("train", "train tuned", "eval"):
                    self.assertEqual(text.count("computing with 1 instead of 4"), 1, text)

    def test_address_space(self):
        if tool.sanitized():
            self.skipTest("a sanitizer maps all address space there is")
        # Below this the system cannot load the program, and kills it in ways of its own.
        least = 16 << 20
        while subprocess.run([tool.TOOL, "--version"], capture_output=True, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_AS, (least, least))).returncode != 0:
            least = least * 5 // 4
        while self.under("data list", resource.RLIMIT_AS, least)[0] != 0:
            least = least * 5 // 4
        for name in self.commands:
            for factor in (1.02, 1.3, 2, 4) if "tuned" in name else (1.5,):
                self.under(name, resource.RLIMIT_AS, int(least * factor))

    def test_deep_model_files(self):
        """Configs inside model files that would exhaust the stack, or make planning endless."""
        raw = (self.model / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + length])
        config = header["__metadata__"]["ridgeline.config"]
        relu = '{ type = "relu" },'
        deep = self.folder / "deep.safetensors"
        for text, says in ((("a." * 300000 + "b = 1\n") + config, "too many parts"),
                           (config + "[x]\ny = " + "[" * 100000, "too deep"),
                           (config.replace("layers = [", "layers = [" + relu * 20000, 1),
                            "at most 4096")):
            header["__metadata__"]["ridgeline.config"] = text
            packed = json.dumps(header).encode()
            packed += b" " * (-len(packed) % 8)
            deep.write_bytes(struct.pack("<Q", len(packed)) + packed + raw[8 + length:])
            for command in (["eval", deep], ["infer", deep, "--input", self.images]):
                done = tool.run(*command, code=3)
                self.assertIn(says, done.stderr)

    def test_open_files(self):
        for name in self.commands:
            for count in (4, 8) if "tuned" in name else (5,):
                self.under(name, resource.RLIMIT_NOFILE, count)


class Group:
    """A control group with these limits, of whichever version the system has."""

    def __init__(self, **limits):
        self.folders = []
        root = pathlib.Path("/sys/fs/cgroup")
        name = f"ridgeline-test-{os.getpid()}"
        self.v2 = (root / "cgroup.controllers").exists()
        try:
            if self.v2:
                self.make(root / name)
                for key, value in limits.items():
                    self.write_v2(key, value)
            else:
                for key, value in limits.items():
                    self.make(root / key / name)
                    self.write_v1(key, value)
        except OSError as error:
            self.close()
            raise unittest.SkipTest(f"no control group can be made here: {error}") from error

    def make(self, folder):
        folder.mkdir()
        self.folders.append(folder)

    def write_v2(self, key, value):
        file, text = {"cpu": ("cpu.max", f"{int(value * 100000)} 100000"),
                      "memory": ("memory.max", str(value)),
                      "pids": ("pids.max", str(value))}[key]
        (self.folders[-1] / file).write_text(text)

    def write_v1(self, key, value):
        folder = self.folders[-1]
        if key == "cpu":
            (folder / "cpu.cfs_period_us").write_text("100000")
            (folder / "cpu.cfs_quota_us").write_text(str(int(value * 100000)))
        else:
            (folder / {"memory": "memory.limit_in_bytes", "pids": "pids.max"}[key]).write_text(
                str(value))

    def enter(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        for folder in reversed(self.folders):
            try:
                folder.rmdir()
            except OSError:
                pass


class Groups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        Limits.setUpClass()

    @classmethod
    def tearDownClass(cls):
        Limits.tearDownClass()

    def run_in(self, group, *arguments, **env):
        return subprocess.run([tool.TOOL, *map(str, arguments)], capture_output=True, text=True,
                              env=tool.environment(**env), preexec_fn=group.enter, timeout=240)

    def test_processor_quota_sets_the_threads(self):
        env = {key: "" for key in ("RIDGELINE_THREADS",)}
        for quota, most in ((0.5, 1), (1.5, 2)):
            group = Group(cpu=quota)
            try:
                done = self.run_in(group, "info", "--json", "-", **env)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(json.loads(done.stdout)["threads"], most)
            finally:
                group.close()

    def test_few_processes(self):
        for count in (1, 4):
            group = Group(pids=count)
            try:
                limits = Limits()
                for name in ("train tuned", "eval", "infer tuned"):
                    limits.ends_well(name, f"pids.max {count}", before=group.enter)
            finally:
                group.close()

    def test_every_command_in_a_small_group(self):
        group = Group(memory=256 << 20, pids=8, cpu=1.5)
        try:
            limits = Limits()
            for name in limits.commands:
                code, text = limits.ends_well(name, "a small group", before=group.enter)
                if name not in limits.fails_anyway and not name.startswith(("infer", "serve")):
                    self.assertEqual(code, 0, f"{name} in a small group\n{text}")
        finally:
            group.close()

    def test_little_memory(self):
        group = Group(memory=256 << 20)
        try:
            # All but the activations of a batch fit into the group's memory.
            done = self.run_in(group, "bench", "mlp", "--only", "784-4096-4096-10:12000",
                               "--seconds", "0.01")
            self.assertEqual(done.returncode, 6, done.stderr)
            self.assertIn("out of memory: wanted", done.stderr)
        finally:
            group.close()


if __name__ == "__main__":
    unittest.main()
