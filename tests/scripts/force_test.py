"""`train --out DIR --force` replaces an old run only when the new one runs, and never a file of the user."""

import os
import resource
import signal
import sys
import unittest

sys.dont_write_bytecode = True
import mpi
import tool


def files(folder):
    """Every file below a folder with its bytes; the lock belongs to no run."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != ".lock"}


class Force(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()
        cls.addClassCleanup(cls.folder.close)
        cls.out = cls.folder / "run"
        cls.train("--set", "train.checkpoint_steps=10")
        (cls.out / "notes.txt").write_text("the user's")
        (cls.out / "tensorboard" / "events.out.tfevents.1.other").write_text("another program's")
        cls.old = files(cls.out)

    @classmethod
    def train(cls, *more, code=0, out=None, **options):
        return tool.run("train", cls.folder.config, "--out", out or cls.out, *more, code=code,
                        **options)

    def untouched(self, what):
        self.assertEqual(files(self.out).keys(), self.old.keys(), what)
        self.assertEqual(files(self.out), self.old, what)

    def test_a_start_that_fails_leaves_the_old_run_as_it_was(self):
        broken = self.folder / "broken"
        broken.mkdir(exist_ok=True)
        for path in self.folder.data.iterdir():
            (broken / path.name).write_bytes(path.read_bytes()[:-1])
        for code, *flags in (
                (2, "--set", "data.name=typo"),
                (3, "--set", "data.name=./none"),
                (3, "--set", f"data.name={broken}"),
                (2, "--kernels", "cpu.no_such_kernel"),
                (2, "--kernels", "cpu.linear.*"),
                (6, "--device", "cuda:99"),
                (2, "--device", "gpu"),
                (2, "--threads", "-1"),
                (2, "--set", "model.layers.2.out=5"),
                (2, "--set", "model.layers.2.out=0"),
                (2, "--set", "train.optimizer.lr=nan"),
                (2, "--set", "train.optimizer.lr=1e400"),
                (2, "--set", "no.such.key=1"),
                (4, "--set", "train.optimizer.lr=1e30"),
                (6, "--set", "model.layers.0.out=2000000000")):
            with self.subTest(flags=flags):
                self.train("--force", *flags, code=code)
                self.untouched(flags)

    def test_a_config_that_is_not_there_or_not_one(self):
        tool.run("train", self.folder / "none.toml", "--out", self.out, "--force", code=2)
        self.untouched("no config")

    def test_no_space_for_the_new_run(self):
        limit = (1 << 8, 1 << 8)  # not even the config
        self.train("--force", code=5,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        self.untouched("no space")

    def test_another_process_has_the_folder(self):
        process = tool.start("train", self.folder.config, "--out", self.folder / "busy", "--set",
                             "train.epochs=1000000", "--set", "train.checkpoint_steps=10")
        self.addCleanup(process.stderr.close)
        try:
            import resume_test
            resume_test.wait_for(self.folder / "busy" / "checkpoint.safetensors", process)
            os.kill(process.pid, signal.SIGSTOP)
            before = files(self.folder / "busy")
            self.train("--force", out=self.folder / "busy", code=5)
            self.assertEqual(files(self.folder / "busy"), before)
        finally:
            process.kill()
            process.wait()

    @unittest.skipIf(mpi.missing(), mpi.missing())
    def test_ranks(self):
        for flags in (("--set", "data.name=typo"), ("--kernels", "cpu.no_such_kernel")):
            process = mpi.launch(2, "train", self.folder.config, "--out", self.out, "--force", *flags)
            code, _, _, err = mpi.end(process, 60)
            self.assertNotEqual(code, 0, err)
            self.untouched(flags)
        out = self.folder / "of-ranks"
        for more in ((), ("--force", "--set", "train.epochs=1")):
            process = mpi.launch(2, "train", self.folder.config, "--out", out, *more)
            code, _, _, err = mpi.end(process, 60)
            self.assertEqual(code, 0, err)
        self.assertEqual(len((out / "metrics.jsonl").read_text().splitlines()), 2)

    def test_a_good_start_replaces_it(self):
        out = self.folder / "replaced"
        self.train("--set", "train.checkpoint_steps=10", out=out)
        (out / "notes.txt").write_text("the user's")
        old = files(out)
        self.train("--force", "--set", "train.epochs=1", out=out)
        now = files(out)
        # One epoch makes one checkpoint, so there is none before it.
        names = {str(name) for name in now if name.parts[0] != "tensorboard"}
        self.assertEqual(names, {"config.toml", "metrics.jsonl", "model.safetensors", "notes.txt",
                                 "checkpoint.safetensors"})
        self.assertEqual(sum(name.parts[0] == "tensorboard" for name in now), 1)
        for name, data in old.items():
            self.assertEqual(now.get(name) == data, name.name == "notes.txt", name)
        self.assertEqual(sorted(path.name for path in out.iterdir() if path.name.startswith(".")),
                         [".lock"])

    def test_the_users_config_in_the_folder(self):
        home = self.folder / "home"
        home.mkdir()
        config = home / "config.toml"
        config.write_text(self.folder.config.read_text())
        for flags in ((), ("--force",), ("--force", "--set", "data.name=typo")):
            done = tool.run("train", "config.toml", "--out", ".", *flags, code=2, cwd=home)
            self.assertIn("config.toml", done.stderr)
            self.assertEqual(files(home), {config.relative_to(home): self.folder.config.read_bytes()})

    def test_a_kept_config_that_was_changed_is_the_users(self):
        out = self.folder / "changed"
        self.train(out=out)
        config = out / "config.toml"
        text = config.read_text().replace("epochs = 3", "epochs = 4")
        config.write_text(text)
        before = files(out)
        done = tool.run("train", config, "--out", out, "--force", code=2)
        self.assertIn("config.toml", done.stderr)
        self.assertEqual(files(out), before)
        done = tool.run("train", config, "--out", out, "--resume")
        self.assertIn("stays as it is", done.stderr)
        self.assertEqual(config.read_text(), text)
        self.assertIn("epoch 4/4", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
