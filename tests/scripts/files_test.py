"""Files that are not what they should be: pipes and folders instead of files, no home for caches, links
planted there, names that are not UTF-8, long texts in messages, gzip members, marks inside texts, a
download that is stopped."""

import contextlib
import gzip
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
import tool

TEXT_CONFIG = """
[data]
name = "{data}"
[data.text]
columns = ["text"]
label = "label"
length = 12
backward = false
classes = ["a", "b"]
[model]
layers = [{{ type = "onehot_conv1d", symbols = 70, out = 4, kernel = 3 }}, {{ type = "flatten" }},
          {{ type = "linear", out = 2 }}]
[train]
batch = 4
epochs = 1
[run]
device = "cpu"
tune = false
"""
MARK = "\ufeff"


def run(*arguments, code=0, env=None, **options):
    """As tool.run, for arguments and outputs that are not UTF-8; code None is any of usage and data."""
    done = subprocess.run([tool.TOOL, *(os.fsencode(a) for a in arguments)], capture_output=True,
                          env=env or tool.environment(), timeout=120, **options)
    said = done.stderr.decode()  # what is said is always UTF-8
    if done.returncode != code if code is not None else done.returncode not in (2, 3):
        raise AssertionError(f"{arguments}: exit {done.returncode}, not {code}\n{said[-3000:]}")
    return done.stdout, said


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder(samples=32)
        cls.model = cls.folder / "run"
        tool.run("train", cls.folder.config, "--out", cls.model, "--quiet")
        cls.texts = cls.folder / "texts"
        cls.texts.mkdir()
        for part in ("train", "test"):
            (cls.texts / f"{part}.csv").write_text("label,text\n" + "a,one\nb,two\n" * 4)
        cls.text_config = cls.folder / "texts.toml"
        cls.text_config.write_text(TEXT_CONFIG.format(data=cls.texts))
        cls.text_model = cls.folder / "text-run"
        tool.run("train", cls.text_config, "--out", cls.text_model, "--quiet")
        cls.images = cls.folder.data / "t10k-images-idx3-ubyte"

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def fails(self, code, *arguments, says=(), **options):
        _, said = run(*arguments, code=code, **options)
        lines = [line for line in said.splitlines() if line.startswith("ridgeline: ")]
        self.assertEqual(len(lines), 1, said)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(str(part), lines[0])
        return lines[0]

    # What is no file

    def test_pipes_folders_and_devices_in_the_place_of_inputs(self):
        pipe, empty = self.folder / "pipe.toml", self.folder / "empty.toml"
        os.mkfifo(pipe)
        empty.mkdir()
        for path, kind in ((pipe, "is a pipe"), (empty, "is a folder"), ("/dev/zero", "is a device")):
            for command in ("train", "plan", "sweep", "verify", "profile"):
                if command == "profile" and path == "/dev/zero":
                    continue  # named as no config is: taken for a model
                more = ["--set", "train.batch=2,4"] if command == "sweep" else []
                self.fails(2, command, path, *more, says=(path, kind))
            self.fails(3, "infer", self.model, "--input", path, says=(path, kind))
            self.fails(3, "bench", "--compare", path, path, says=(path, kind))
            if path != empty:  # a folder may be that of a run
                for command in (["eval", path], ["infer", path, "--input", self.images]):
                    self.fails(3, *command, says=(path, kind))
        data = self.folder / "odd"
        shutil.copytree(self.folder.data, data)
        (data / "t10k-labels-idx1-ubyte").unlink()
        os.mkfifo(data / "t10k-labels-idx1-ubyte")
        self.fails(3, "eval", self.model, "--on", data, says="is a pipe")

    def test_pipes_and_links_in_the_folder_of_a_run(self):
        # What a run left behind must be ridgeline's own; only the lock is opened before that is looked at.
        for name, code, says in ((".lock", 5, "is a pipe"), ("metrics.jsonl", 2, "did not write the metrics")):
            out = self.folder / f"odd-run{name}"
            tool.run("train", self.folder.config, "--out", out, "--quiet", "--set", "train.max_steps=2")
            (out / name).unlink()
            os.mkfifo(out / name)
            self.fails(code, "train", self.folder.config, "--out", out, "--resume", says=says)
        out, precious = self.folder / "linked", self.folder / "precious"
        out.mkdir()
        precious.write_text("precious")
        (out / ".lock").symlink_to(precious)
        self.fails(5, "train", self.folder.config, "--out", out, says="linked")
        self.assertEqual(precious.read_text(), "precious")

    # Caches

    def test_pipes_folders_and_links_in_the_place_of_caches(self):
        home, precious = self.folder / "cache", self.folder / "precious-cache"
        env = tool.environment(XDG_CACHE_HOME=str(home))
        command = ("train", self.folder.config, "--quiet", "--set", "train.max_steps=1", "--set",
                   "run.tune=true", "--threads", "1")
        run(*command, env=env)
        kept = sorted(p for p in (home / "ridgeline").iterdir())
        self.assertTrue({"tuning.json", "ceilings-1.json"} <= {p.name for p in kept}, kept)
        for path in kept:
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
        self.assertEqual((home / "ridgeline").stat().st_mode & 0o777, 0o700)
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink(precious, path)):
            for path in kept:
                path.unlink() if not path.is_dir() else path.rmdir()
                make(path)
            precious.write_text("precious")
            run(*command, env=env)
            self.assertEqual(precious.read_text(), "precious")
        self.assertTrue(all(p.is_file() and not p.is_symlink() for p in kept))  # links were replaced

    def test_without_a_home_nothing_is_kept(self):
        scratch = self.folder / "tmp"
        scratch.mkdir()
        env = {k: v for k, v in tool.environment(TMPDIR=str(scratch)).items()
               if k not in ("HOME", "XDG_CACHE_HOME")}
        before = {p.name for p in pathlib.Path("/tmp").iterdir()}
        here = self.folder / "here"
        here.mkdir()
        for command in (["train", self.folder.config, "--quiet", "--set", "train.max_steps=1",
                         "--set", "run.tune=true"], ["info"], ["data", "list"]):
            run(*command, env=env, cwd=here)
        self.assertIn(b"caches      none", run("info", env=env)[0])
        self.assertEqual(list(scratch.iterdir()) + list(here.iterdir()), [])
        came = {p.name for p in pathlib.Path("/tmp").iterdir()} - before
        self.assertFalse([name for name in came if name.startswith("ridgeline-cache")])

    # Names and texts in messages

    def test_names_that_are_not_utf8(self):
        odd = os.fsdecode(b"caf\xe9\xff")
        home = self.folder / odd
        home.mkdir()
        config, data = home / "net.toml", home / "data"
        shutil.copy(self.folder.config, config)
        shutil.copytree(self.folder.data, data)
        shutil.copy(self.model / "model.safetensors", home / "net.safetensors")
        few = ("--set", "train.max_steps=1", "--seconds", "0.01")
        out = home / "out.json"
        env = tool.environment(RIDGELINE_DATA=str(data))
        for command in (["train", config, "--quiet", "--out", home / "run", *few[:2]],
                        ["eval", home / "net.safetensors", "--on", data],
                        ["infer", home / "run", "--input", data / "t10k-images-idx3-ubyte",
                         "--output", home / "labels.csv", "--report", home / "page"],
                        ["plan", config], ["info"],
                        ["sweep", config, "--set", "train.batch=4,8", *few[:2]],
                        ["profile", config, "--report", home / "page", *few[2:]],
                        ["profile", home / "run", *few[2:]],
                        ["bench", "infer", config, *few[2:]],
                        ["verify", config, "--steps", "1", "--reference-seconds", "0"]):
            run(*command, "--json", out, env=env)
            json.loads(out.read_text())
            out.unlink()
        run("data", "list", env=env)
        self.fails(2, "train", home / "none.toml", says="caf\\xe9\\xff")
        self.fails(2, "train", config, "--set", f"data.name={odd}", says="\\xff")
        self.fails(2, "train", config, "--device", odd, says="\\xff")
        self.fails(2, "train", config, f"--{odd}", says="\\xff")
        self.fails(2, odd, says="\\xff")

    def test_messages_end_somewhere(self):
        big = "x" * 1_000_000
        arguments = "y" * 100_000  # one argument has at most 128 KiB
        model = (self.model / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", model[:8])
        header = json.loads(model[8:8 + length])

        def with_header(change):
            changed = json.loads(json.dumps(header))
            change(changed)
            packed = json.dumps(changed).encode()
            return struct.pack("<Q", len(packed)) + packed + model[8 + length:]

        def rename(tensors):
            tensors[big] = tensors.pop("0.weight")

        def many(tensors):
            for i in range(20_000):
                tensors[f"extra{i}"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

        files = {
            "label.csv": (f"label,text\n{big},t\n", self.text_model),
            "header.csv": (big + "," * 50_000 + "\n1\n", self.text_model),
            "key.jsonl": ('{"' + big + '":1,"' + big + '":2}\n', self.text_model),
            "quote.csv": ('label,text\na,"' + big + '"x\n', self.text_model),
            "name.safetensors": (with_header(rename), None),
            "type.safetensors": (with_header(lambda h: h["0.weight"].update(dtype=big)), None),
            "key.safetensors": (with_header(lambda h: h["0.weight"].update({big: 1})), None),
            "many.safetensors": (with_header(many), None),
            "version.safetensors": (with_header(
                lambda h: h["__metadata__"].update({"ridgeline.version": big})), None),
            "config.safetensors": (with_header(
                lambda h: h["__metadata__"].update({"ridgeline.config": big})), None),
            "key.toml": (f"[{'k' * 500_000}]\n", None),
            "value.toml": (f'[data]\nname = "{"v" * 500_000}"\n[model]\nlayers = [{{type="relu"}}]\n', None),
            "broken.toml": ("x = " + "[" * 1000 + "\n", None),
        }
        lines = []
        for name, (content, reader) in files.items():
            path = self.folder / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            if name.endswith(".toml"):
                lines.append(self.fails(None, "train", path))
            elif reader is None:
                lines.append(self.fails(3, "eval", path))
            elif name == "label.csv":
                odd = self.folder / "long-label"
                shutil.copytree(self.texts, odd)
                (odd / "test.csv").write_text(content)
                lines.append(self.fails(3, "eval", reader, "--on", odd))
            else:
                lines.append(self.fails(3, "infer", reader, "--input", path))
        config = self.folder.config
        for command in (["train", config, "--set", arguments], ["train", config, "--set", "a.b=" + arguments],
                        ["train", config, "--set", f"train.{arguments}=1"], ["train", arguments],
                        ["train", config, "--device", arguments], ["train", config, "--kernels", arguments],
                        ["train", config, "--" + arguments], [arguments], ["data", "get", arguments],
                        ["infer", self.model, "--input", self.images, "--format", arguments],
                        ["infer", self.model, "--input", self.images, "--transport", arguments],
                        ["plan", config, "--ranks", "2", "--network", arguments],
                        ["bench", "mlp", "--only", arguments], ["ladder", arguments],
                        ["bench", "mlp", "--precision", arguments]):
            lines.append(self.fails(None, *command))
        for line in lines:
            self.assertLess(len(line.encode()), 5000, line[:300])

    # Data

    def test_gzip_files_of_several_members(self):
        whole = self.images.read_bytes()
        raw = whole[16:]
        fixed = ("--batch", 7, "--no-tune")  # another plan may round otherwise
        want = tool.run("infer", self.model, "--input", self.images, *fixed).stdout
        for name, data in (("m.idx.gz", whole), ("m.raw.gz", raw)):
            for cut in (0, 5, 1000, len(data)):
                path = self.folder / name
                path.write_bytes(gzip.compress(data[:cut]) + gzip.compress(data[cut:]))
                self.assertEqual(tool.run("infer", self.model, "--input", path, *fixed).stdout, want, (name, cut))
        self.assertEqual(len(want.splitlines()), 101)
        (self.folder / "odd.raw.gz").write_bytes(gzip.compress(raw) + gzip.compress(b"x"))
        self.fails(3, "infer", self.model, "--input", self.folder / "odd.raw.gz",
                   says="no whole number of samples")

    def test_marks_inside_texts_do_not_depend_on_chunks(self):
        lines = [MARK + "one", MARK + MARK + "two", "three" + MARK, MARK, "", MARK + "six"] * 9
        (self.folder / "marks.txt").write_text(MARK + "\n".join(lines))
        (self.folder / "marks.csv").write_text(
            MARK + "text,more\n" + "".join(f"{line},x\n" for line in lines))
        (self.folder / "marks.jsonl").write_text(
            MARK + "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines))
        results = set()
        for name in ("marks.txt", "marks.csv", "marks.jsonl"):
            for batch in (1, 2, 5, 256):
                more = ["--columns", "text"] if name != "marks.txt" else []
                results.add(tool.run("infer", self.text_model, "--input", self.folder / name,
                                     "--batch", batch, "--kernels", "cpu.*.reference", *more).stdout)
        self.assertEqual(len(results), 1)

    # Downloads

    def test_a_download_that_is_stopped_by_a_signal(self):
        class Slow(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "100000000")
                self.end_headers()
                self.wfile.write(b"x" * 1000)
                self.wfile.flush()
                began.set()
                ended.wait(60)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_address[1]}"
        with contextlib.closing(server.socket):
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
                began, ended = threading.Event(), threading.Event()
                process = tool.start("data", "get", "mnist", "--data", self.folder / f"get{code}",
                                     "--mirror", mirror)
                self.assertTrue(began.wait(60))
                process.send_signal(number)
                said = process.communicate(timeout=60)[1]
                ended.set()
                self.assertEqual(process.returncode, code, said)
                self.assertIn("the next get resumes there", said)
            server.shutdown()


if __name__ == "__main__":
    unittest.main(verbosity=2)
