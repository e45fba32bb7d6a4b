"""Things that a new user tries: runs resumed by their folder, settings given as flags, batches that are too
large, stdin, the brief plan, progress of tuning, and the last line of verify."""

import gzip
import json
import os
import pty
import re
import resource
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import tool


def on_terminal(*arguments, env=None):
    """Runs the tool with stderr on a terminal and returns what it printed there."""
    leader, follower = pty.openpty()
    with subprocess.Popen([tool.TOOL, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=follower,
                          env=env or tool.environment()) as process:
        os.close(follower)
        shown = b""
        try:
            while part := os.read(leader, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(leader)
    assert process.returncode == 0, shown
    return shown.decode()


class Usage(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder()
        self.addCleanup(self.folder.close)
        self.out = self.folder / "run"

    def fails(self, code, *arguments, says=(), **options):
        message = tool.run(*arguments, code=code, **options).stderr
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(str(part), message)
        return message

    # train --resume DIR

    def test_resume_takes_the_config_of_the_run(self):
        tool.run("train", self.folder.config, "--out", self.out, "--set", "train.epochs=5",
                 "--set", "train.optimizer.lr=0.05", "--set", "train.max_steps=20")
        kept = tool.run("train", "--resume", self.out, "--print-config").stdout
        self.assertIn("epochs = 5", kept)
        self.assertIn("lr = 0.05", kept)
        done = tool.run("train", "--resume", self.out, "--set", "train.max_steps=30")
        self.assertIn("continuing with train.max_steps = 30, which was 20", done.stderr)
        self.assertIn("continuing after step 20", done.stderr)
        whole = self.folder / "whole"
        tool.run("train", self.folder.config, "--out", whole, "--set", "train.epochs=5",
                 "--set", "train.optimizer.lr=0.05", "--set", "train.max_steps=30")
        for name in ("model.safetensors", "checkpoint.safetensors"):
            self.assertEqual(tool.tensors(self.out / name), tool.tensors(whole / name))

    def test_resume_says_what_is_left_to_do(self):
        tool.run("train", self.folder.config, "--out", self.out)
        done = tool.run("train", "--resume", self.out)
        self.assertIn("nothing left to train of 39 steps; give a larger train.epochs", done.stderr)

    def test_resume_refuses_what_must_not_change(self):
        tool.run("train", self.folder.config, "--out", self.out, "--set", "train.max_steps=5")
        self.fails(2, "train", "--resume", self.out, "--set", "train.seed=4",
                   says="train.seed (now 4, then 3)")
        self.fails(2, "train", "--resume", self.out, "--set", "train.batchs=4", says="train.batchs=4")

    def test_resume_takes_the_previous_config_from_a_damaged_checkpoint(self):
        for steps in (5, 8):
            more = ("--resume",) if steps > 5 else ()
            tool.run("train", self.folder.config, "--out", self.out, *more,
                     "--set", f"train.max_steps={steps}")
        newest = self.out / "checkpoint.safetensors"
        newest.write_bytes(newest.read_bytes()[:-7])
        done = tool.run("train", "--resume", self.out, "--set", "train.max_steps=9")
        self.assertIn("continuing from the checkpoint before it", done.stderr)
        self.assertIn("continuing after step 5", done.stderr)

    def test_resume_before_the_first_checkpoint(self):
        tool.run("train", self.folder.config, "--out", self.out, "--set", "train.max_steps=5")
        for name in ("checkpoint.safetensors", "checkpoint.prev.safetensors", "model.safetensors"):
            (self.out / name).unlink(missing_ok=True)
        done = tool.run("train", "--resume", self.out)
        self.assertNotIn("continuing", done.stderr)
        self.assertTrue((self.out / "model.safetensors").exists())

    def test_resume_spellings(self):
        tool.run("train", self.folder.config, "--out", self.out, "--set", "train.max_steps=5")
        other = self.folder / "other"
        other.mkdir()
        self.fails(2, "train", says="config")
        self.fails(2, "train", "--resume", says="DIR")
        self.fails(2, "train", "--resume", self.folder / "none", says=("none", "no run to continue"))
        self.fails(2, "train", "--resume", other, says="no run to continue")
        self.fails(2, "train", "--resume", self.out, "--out", other, says="its own folder")
        self.fails(2, "train", "--resume", self.out, "--force", says="--force")
        # With a config, and in any order.
        tool.run("train", self.folder.config, "--out", self.out, "--resume", "--set", "train.max_steps=6")
        tool.run("train", "--out", self.out, "--resume", self.folder.config, "--set", "train.max_steps=7")
        tool.run("train", self.folder.config, "--resume", self.out, "--set", "train.max_steps=8")
        tool.run("train", "--out", self.out, "--resume", "--set", "train.max_steps=9")
        self.assertFalse(any(other.iterdir()))

    # Settings

    def test_settings_given_as_flags(self):
        for given, meant in ((("--epochs", "3"), "--set train.epochs=3"), (("--lr", "0.1"), "--set train.optimizer.lr=0.1"),
                             (("--batch=32",), "--set train.batch=32"), (("--batch-size", "32"), "--set train.batch=32"),
                             (("--learning-rate", "1"), "--set train.optimizer.lr=1"),
                             (("--weight_decay", "1"), "--set train.optimizer.weight_decay=1"),
                             (("--precision", "bf16"), "--set run.precision=bf16"),
                             (("--seed",), "--set train.seed=VALUE")):
            self.fails(2, "train", self.folder.config, *given, says=(given[0].split("=")[0], meant))
        self.fails(2, "train", "--epochs", "3", self.folder.config, says="--set train.epochs=3")
        self.fails(2, "sweep", self.folder.config, "--lr", "0.1,1", says="--set train.optimizer.lr=0.1,1")
        # Of a command without settings, and of flags that are only misspelt.
        self.assertNotIn("--set", self.fails(2, "eval", self.out, "--epochs", "3", says="--epochs"))
        self.fails(2, "train", self.folder.config, "--treads", "3", says="--threads")

    def test_settings_without_their_section(self):
        for given, meant in (("lr=0.1", "train.optimizer.lr=0.1"), ("train.lr=0.1", "train.optimizer.lr=0.1"),
                             ("epochs=3", "train.epochs=3"), ("batch=4", "train.batch=4"),
                             ("train.precision=bf16", "run.precision=bf16"), ("momentum=0.5", "train.optimizer.momentum=0.5")):
            self.fails(2, "train", self.folder.config, "--set", given, says=(given, f"--set {meant}"))
        self.fails(2, "train", self.folder.config, "--set", "nothing=1", says=("nothing", "train"))
        tool.run("train", self.folder.config, "--print-config", "--set", "data.steps=3",
                 "--set", "train={epochs=1}", "--set", "train.optimizer={type=\"adam\"}")

    def test_batch_larger_than_the_set(self):
        for command in ("train", "plan", "verify", "profile"):
            self.fails(2, command, self.folder.config, "--set", "train.batch=201",
                       says=("train.batch 201", "200 training samples", "train.batch=200"))
        tool.run("train", self.folder.config, "--set", "train.batch=200", "--quiet")

    def test_default_batch_fits_a_small_set(self):
        table, config = self.folder / "small.csv", self.folder / "small.toml"
        table.write_text("x,y\n" + "".join(f"{i},{i % 7}.5\n" for i in range(40)))
        config.write_text(f'[data]\ntrain = "{table}"\n[model]\nlayers = [{{ type = "linear", out = 1 }}]\n'
                          '[train]\noptimizer = "adam"\n[run]\ndevice = "cpu"\ntune = false\n')
        done = tool.run("train", config, "--out", self.out)
        self.assertIn("batch of 36, because there are fewer training samples than the default of 128", done.stderr)
        self.assertIn("step 1 ", done.stderr)
        kept = (self.out / "config.toml").read_text()
        self.assertIn("batch = 36\n", kept)
        self.assertIn('optimizer = { type = "adam", lr = 0.001,', kept)
        self.assertIn("continuing after step 1",
                      tool.run("train", "--resume", self.out, "--set", "train.epochs=2").stderr)
        tool.run("sweep", config, "--set", "train.optimizer.lr=0.1,0.01", "--csv", "-")
        for command in ("plan", "verify", "profile"):
            tool.run(command, config)
        for more in (("--set", "train.batch=128"), ("--set", "train.batch=37")):
            self.fails(2, "train", config, *more, says=("36 training samples", "train.batch=36"))
        self.fails(2, "profile", config, "--batch", "128", says="train.batch=36")

    # Files in the wrong place

    def test_what_was_meant(self):
        config = self.folder.config
        self.fails(2, says=("train ", "infer ", "serve ", "a command is required"))
        self.fails(2, "data", says=("describe", "a command is required"))
        self.fails(2, "help", says="ridgeline --help")
        self.fails(2, "help", "train", says="ridgeline train --help")
        self.fails(2, "version", says="ridgeline --version")
        self.fails(2, "train", config, "--output", "x", says="--out?")
        self.fails(2, "train", config, self.out, says=f"--out {self.out}")
        self.fails(2, "train", config, "--set", "train.epochs", "5", says="--set train.epochs=5")
        self.fails(2, "infer", self.out, "a.csv", says="--input a.csv")
        self.fails(2, "infer", self.out, "--input", "a.csv", "b.csv", says="--output b.csv")
        self.fails(2, "export", self.out, "a.onnx", says="--onnx a.onnx")
        for command in (("eval",), ("infer", "--input", "a.csv"), ("serve",), ("export", "--onnx", "a.onnx")):
            self.fails(3, *command, config, says=(f"ridgeline train {config} --out DIR", "is a config"))
        table = self.folder / "table.csv"
        table.write_text("a,b\n1,2\n3,4\n")
        for command in ("train", "plan", "verify"):
            self.fails(2, command, table, says=(f"ridgeline data describe {table} --write-config", "a table"))
        tool.run("train", config, "--out", self.out, "--quiet")
        self.fails(2, "plan", self.out, says=str(self.out / "config.toml"))
        self.fails(2, "plan", self.out / "model.safetensors", says="infer, profile and serve take models")
        pickle = self.folder / "net.pt"
        pickle.write_bytes(b"\x80\x02}q\x00.")
        self.fails(3, "import", pickle, "--out", "x.safetensors", says="torch.onnx.export")

    def test_lack_of_memory_names_the_layer(self):
        def little():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        # The weights do not fit, or they do and the activations of a batch do not.
        for out, batch in ((3_000_000, 16), (600_000, 200)):
            message = self.fails(6, "train", self.folder.config, "--set", f"model.layers.0.out={out}",
                                 "--set", f"train.batch={batch}", preexec_fn=little)
            self.assertRegex(message, r"out of memory.*layer \d")

    # infer --input -

    def test_input_from_stdin(self):
        tool.run("train", self.folder.config, "--out", self.out, "--set", "train.epochs=1")
        images = self.folder.data / "t10k-images-idx3-ubyte"
        # A pipe does not say how many samples it holds: without these, its batches may get other kernels.
        fixed = ("--no-tune", "--batch", "16")
        want = tool.run("infer", self.out, "--input", images, *fixed).stdout

        def infer(data):
            done = subprocess.run([tool.TOOL, "infer", str(self.out), "--input", "-", *fixed], input=data,
                                  capture_output=True, env=tool.environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.decode()

        self.assertEqual(infer(images.read_bytes()), want)
        self.assertEqual(infer(gzip.compress(images.read_bytes())), want)
        self.assertEqual(infer(images.read_bytes()[16:]), want)  # raw bytes
        with open(images, "rb") as file:  # redirected, not piped
            done = subprocess.run([tool.TOOL, "infer", str(self.out), "--input", "-", *fixed], stdin=file,
                                  capture_output=True, env=tool.environment())
        self.assertEqual(done.stdout.decode(), want)
        done = subprocess.run([tool.TOOL, "infer", str(self.out), "--input", "-"], input=images.read_bytes()[:-5],
                              capture_output=True, env=tool.environment())
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertTrue(done.stderr.startswith(b"ridgeline: /dev/stdin: "), done.stderr)

    # Output

    def test_verify_ends_in_one_word(self):
        done = tool.run("verify", self.folder.config, "--steps", "3")
        self.assertEqual(done.stdout.splitlines()[-1], "pass")

    def test_plan_is_brief(self):
        tuned = ("--set", "run.tune=true")
        out = self.folder / "plan.json"
        text = tool.run("plan", self.folder.config, *tuned, "--json", out).stdout
        kernels = json.loads(out.read_text())["kernels"]
        self.assertLess(len(text.splitlines()), len(kernels) + 10)
        self.assertNotIn("refused:", text)
        for kernel in kernels:
            self.assertIn(kernel["kernel"], text)
        for part in ("linear", "memory:", "limit:", "--all"):
            self.assertIn(part, text)
        # Which of these is said depends on what was measured just now.
        self.assertRegex(text, "as fast as|faster than|no other kernel was measured")
        everything = tool.run("plan", self.folder.config, *tuned, "--all").stdout
        for part in ("program:", "candidates", "refused:", "memory:"):
            self.assertIn(part, everything)
        self.assertIn("table's order", tool.run("plan", self.folder.config).stdout)

    def test_tuning_shows_progress(self):
        layers = ",".join('{type="linear",out=512},{type="tanh"},{type="dropout",p=0.5}' for _ in range(6))
        fresh = self.folder / "cache"
        shown = on_terminal("train", self.folder.config, "--set", "run.tune=true",
                            "--set", f"model.layers=[{layers},{{type=\"linear\",out=4}}]",
                            "--set", "train.max_steps=1", env=tool.environment(XDG_CACHE_HOME=str(fresh)))
        lines = re.findall(r"tuning (\d+)/(\d+) kernels", shown)
        self.assertTrue(lines, shown)
        self.assertTrue(all(int(done) <= int(every) for done, every in lines), lines)
        self.assertRegex(shown, r"tuning \d+/\d+ kernels, about [\d:]+( s)? left")


if __name__ == "__main__":
    unittest.main()
