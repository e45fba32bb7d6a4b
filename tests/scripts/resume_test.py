"""Runs that are stopped, killed, refused or out of disk space, and the files they leave."""

import json
import os
import pathlib
import pty
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
import tool

# Long enough to be caught in the middle on any machine.
LONG = ("--set", "train.epochs=1000000", "--set", "train.eval_every=100000",
        "--set", "train.checkpoint_steps=50")


def wait_for(path, process, seconds=60):
    end = time.time() + seconds
    while not path.exists():
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.stderr.read()}")
        if time.time() > end:
            process.kill()
            raise AssertionError(f"{path} did not appear")
        time.sleep(0.01)


def checkpoint_step(path):
    raw = path.read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    return json.loads(header["__metadata__"]["ridgeline.checkpoint"])["step"]


class Stopped(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder()
        self.addCleanup(self.folder.close)
        self.out = self.folder / "run"
        self.checkpoint = self.out / "checkpoint.safetensors"

    def train(self, *more, code=0, out=None, **options):
        return tool.run("train", self.folder.config, "--out", out or self.out, *more, code=code,
                        **options)

    def begin(self, *more):
        process = tool.start("train", self.folder.config, "--out", self.out, *LONG, *more)
        self.addCleanup(process.stderr.close)
        wait_for(self.checkpoint, process)
        return process

    def same_as_uninterrupted(self):
        """Continues to some steps past the checkpoint and compares with a run made in one go."""
        steps = checkpoint_step(self.checkpoint) + 77
        limit = ("--set", f"train.max_steps={steps}")
        self.train("--resume", *LONG, *limit)
        whole = self.folder / "whole"
        self.train(*LONG, *limit, out=whole)
        self.assertEqual(tool.tensors(self.checkpoint),
                         tool.tensors(whole / "checkpoint.safetensors"))

    def test_resume_through_the_tool_is_bit_for_bit(self):
        self.train("--set", "train.max_steps=20")
        self.same_as_uninterrupted()

    def test_resume_with_tuned_rows_is_bit_for_bit(self):
        text = self.folder.config.read_text().replace("tune = false", "tune = true")
        self.folder.config.write_text(text)
        self.train("--set", "train.max_steps=20")
        # A run of its own might measure kernels anew, and on a busy machine choose others: bits are kept
        # from the checkpoint on, which names its kernels.
        twin = self.folder / "twin"
        shutil.copytree(self.out, twin)
        for steps in (50, 97):
            self.train("--resume", *LONG, "--set", f"train.max_steps={steps}")
        self.train("--resume", *LONG, "--set", "train.max_steps=97", out=twin)
        self.assertEqual(tool.tensors(self.checkpoint),
                         tool.tensors(twin / "checkpoint.safetensors"))

    def test_signals_save_and_have_their_codes(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(code=code):
                process = self.begin()
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=60), code)
                self.same_as_uninterrupted()
                shutil.rmtree(self.out)
                shutil.rmtree(self.folder / "whole")

    def test_closed_terminal(self):
        """A run whose terminal is closed saves and reports why it ended, although no one can read it."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(tool.TOOL, [tool.TOOL, "train", str(self.folder.config), "--out", str(self.out), *LONG],
                      tool.environment())
        end = time.time() + 60
        while not self.checkpoint.exists() and time.time() < end:
            if select.select([terminal], [], [], 0.01)[0]:
                os.read(terminal, 4096)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 128 + signal.SIGHUP)
        self.same_as_uninterrupted()

    def test_kill_9_then_resume(self):
        process = self.begin()
        for _ in range(3):
            time.sleep(0.05)
            process.kill()
            process.wait()
            process = tool.start("train", self.folder.config, "--out", self.out, "--resume", *LONG)
            self.addCleanup(process.stderr.close)
            time.sleep(0.3)
        process.kill()
        process.wait()
        (self.out / "model.safetensors.00112233aabbccdd.tmp").write_bytes(b"left over")
        self.same_as_uninterrupted()
        self.assertFalse(list(self.out.glob("*.tmp")))

    def test_two_runs_in_one_folder(self):
        process = self.begin()
        try:
            done = self.train("--resume", code=5)
            self.assertIn(str(process.pid), done.stderr)
        finally:
            process.terminate()
            process.wait(timeout=60)

    def test_torn_newest_checkpoint(self):
        self.train("--set", "train.max_steps=40", "--set", "train.checkpoint_steps=10")
        raw = self.checkpoint.read_bytes()
        self.checkpoint.write_bytes(raw[:len(raw) // 2])
        done = self.train("--resume", "--set", "train.max_steps=40")
        self.assertIn("warning", done.stderr)
        self.same_as_uninterrupted()

    def test_damage_anywhere_in_the_newest_checkpoint(self):
        """Each part of the file once; tests/engine/damage_test.cpp flips a bit of every byte."""
        self.train("--set", "train.max_steps=40", "--set", "train.checkpoint_steps=10")
        raw = self.checkpoint.read_bytes()
        whole = tool.tensors(self.checkpoint)
        data = 8 + int.from_bytes(raw[:8], "little")
        places = {text: raw.index(text) for text in (
            b"__metadata__", b"ridgeline.crc32", b"ridgeline.config", b"lr = ", b"data_hash",
            b"0.weight", b"F32", b"data_offsets")}
        for what, at in {**places, "length": 0, "brace": 8, "first": data, "last": len(raw) - 1}.items():
            with self.subTest(what=what):
                self.checkpoint.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1:])
                done = self.train("--resume", "--set", "train.max_steps=40")
                self.assertRegex(done.stderr, "warning: .*/checkpoint.safetensors: .*the checkpoint before it")
                self.assertEqual(tool.tensors(self.checkpoint), whole)
        self.assertEqual(len(list(self.out.glob("checkpoint.damaged*.safetensors"))), len(places) + 4)

    def test_damage_in_a_model_file(self):
        self.train("--set", "train.max_steps=5")
        model = self.out / "model.safetensors"
        raw = model.read_bytes()
        middle = len(raw) - 100
        for bad in (raw[:-1] + bytes([raw[-1] ^ 1]), raw[:middle] + bytes(50) + raw[middle + 50:]):
            model.write_bytes(bad)
            done = tool.run("eval", self.out, code=3)
            self.assertRegex(done.stderr, r"model.safetensors: tensor '[02]\.\w+' is damaged.*restore")
        # What another program wrote has no checksums; who asks is told, once.
        data = 8 + int.from_bytes(raw[:8], "little")
        header = json.dumps(json.loads(raw[8:data])).encode()
        model.write_bytes(len(header).to_bytes(8, "little") + header + bad[data:])
        self.assertNotIn("checksums", tool.run("eval", self.out).stderr)
        done = tool.run("eval", self.out, "--strict")
        self.assertEqual(done.stderr.count("has no checksums"), 1, done.stderr)

    def test_both_checkpoints_torn(self):
        self.train("--set", "train.max_steps=40", "--set", "train.checkpoint_steps=10")
        for name in ("checkpoint.safetensors", "checkpoint.prev.safetensors"):
            (self.out / name).write_bytes(b"torn")
        self.train("--resume", code=3)

    def test_changed_settings_are_named(self):
        self.train("--set", "train.max_steps=5")
        done = self.train("--resume", "--set", "train.seed=4", code=2)
        self.assertIn("train.seed (now 4, then 3)", done.stderr)
        done = self.train("--resume", "--set", "model.layers.0.out=5", code=2)
        self.assertIn("model.layers.0", done.stderr)
        self.assertNotIn("model.layers.2", done.stderr)
        pixels, labels = tool.images(200, 9)
        tool.write_idx(self.folder.data / "train-images-idx3-ubyte", (200, 6, 6), pixels)
        done = self.train("--resume", code=2)
        self.assertIn("training data", done.stderr)

    def test_resume_of_a_run_that_has_ended_adds_nothing(self):
        self.train()
        kept = (self.out / "metrics.jsonl").read_text(), tool.tensors(self.checkpoint)
        for more in ((), ("--set", "train.epochs=1"), ()):
            done = self.train("--resume", *more)
            self.assertIn("nothing left to train", done.stderr)
            self.assertIn("epoch 3/3", done.stderr)  # also when fewer are asked for
            metrics = (self.out / "metrics.jsonl").read_text()
            self.assertEqual((metrics, tool.tensors(self.checkpoint)), kept)

    def test_data_may_move(self):
        self.train("--set", "train.max_steps=5")
        moved = self.folder / "moved"
        self.folder.data.rename(moved)
        self.train("--resume", code=3)
        self.train("--resume", "--set", f"data.name={moved}")

    def test_nothing_to_resume(self):
        self.train("--resume", code=2)
        self.assertFalse(self.out.exists())

    def test_nan_names_step_and_layer_and_keeps_the_last_good(self):
        done = self.train("--set", "train.optimizer.lr=1e30", "--set", "train.checkpoint_steps=1",
                          code=4)
        self.assertRegex(done.stderr, r"step \d+ .*layer \d \((linear|relu)\)")

    def as_another_user(self, *arguments):
        """Root may read and write everything; a test of permissions runs as nobody."""
        command = [tool.TOOL, *map(str, arguments)]
        if os.getuid() == 0:
            if shutil.which("setpriv") is None:
                self.skipTest("root ignores permissions and there is no setpriv")
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] + command
        done = subprocess.run(command, capture_output=True, text=True,
                              env=tool.environment(XDG_CACHE_HOME="/nonexistent"), timeout=60)
        if "setpriv" in done.stderr or done.returncode in (126, 127):
            self.skipTest(f"cannot become another user: {done.stderr}")
        return done

    def test_read_only_folder_is_found_before_the_first_step(self):
        parent = self.folder / "closed"
        parent.mkdir()
        os.chmod(self.folder.path, 0o755)
        os.chmod(parent, 0o555)
        done = self.as_another_user("train", self.folder.config, "--out", parent)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("closed", done.stderr)
        self.assertNotIn("epoch", done.stderr)

    def test_a_checkpoint_that_may_not_be_read_stays(self):
        self.train("--set", "train.max_steps=40", "--set", "train.checkpoint_steps=10")
        os.chmod(self.folder.path, 0o755)
        os.chmod(self.out, 0o777)
        for path in self.out.rglob("*"):
            os.chmod(path, 0o777 if path.is_dir() else 0o666)
        kept = {path: path.read_bytes() for path in self.out.glob("*.safetensors")}
        os.chmod(self.checkpoint, 0)
        done = self.as_another_user("train", self.folder.config, "--out", self.out, "--resume")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, "checkpoint.safetensors: cannot open: Permission denied.*make it readable")
        os.chmod(self.checkpoint, 0o644)
        self.assertEqual({path: path.read_bytes() for path in self.out.glob("*.safetensors")}, kept)

    def test_disk_full_keeps_the_old_checkpoint(self):
        self.train("--set", "train.max_steps=20")
        before = self.checkpoint.read_bytes()
        limit = len(before) - 100  # a checkpoint no longer fits; metrics and config do

        def no_space():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = self.train("--resume", "--set", "train.max_steps=30", code=5, preexec_fn=no_space)
        self.assertIn("checkpoint", done.stderr)
        self.assertEqual(self.checkpoint.read_bytes(), before)
        self.assertFalse(list(self.out.glob("*.tmp")))
        self.same_as_uninterrupted()


if __name__ == "__main__":
    unittest.main(verbosity=2)
