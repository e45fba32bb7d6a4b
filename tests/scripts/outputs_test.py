"""No output replaces what is not its own: every command with every flag that names an output, pointed at
each of its inputs, at files of others and at the outputs of its other flags."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import tool

# What a command needs, and which of it are files that it reads. A command that is missing here fails.
COMMANDS = {
    ("train",): (["{config}"], ["{config}"]),
    ("eval",): (["{model}"], ["{model}"]),
    ("infer",): (["{model}", "--input", "{input}"], ["{model}", "{input}"]),
    ("serve",): (["{model}"], ["{model}"]),
    ("import",): (["{model}"], ["{model}"]),
    ("export",): (["{model}"], ["{model}"]),
    ("sweep",): (["{config}", "--set", "train.batch=8,16"], ["{config}"]),
    ("verify",): (["{config}"], ["{config}"]),
    ("plan",): (["{config}"], ["{config}"]),
    ("profile",): (["{config}"], ["{config}"]),
    ("ladder",): (["mlp"], []),
    ("bench", "mlp"): ([], []),
    ("bench", "gemm"): ([], []),
    ("bench", "rnn"): ([], []),
    ("bench", "infer"): (["{config}"], ["{config}"]),
    ("bench", "deepbench"): ([], []),
    ("data", "list"): ([], []),
    ("data", "check"): (["mnist"], []),
    ("data", "get"): (["mnist"], []),
    ("data", "describe"): (["{input}"], ["{input}"]),
    ("info",): ([], []),
    ("completion",): (["bash"], []),
}
# Flags of files and folders that are only read, and of a run that goes on in its own (resume_test.py).
READ = {"--input", "--data", "--results", "--on", "--resume", "--target", "--init", "--models",
        "--token-file"}
# What is written into the folder that a flag names.
INSIDE = {"--report": ["report.html", "trace.json"],
          "--out": {"train": ["model.safetensors", "metrics.jsonl", "config.toml"],
                    "sweep": ["sweep.csv", "sweep.json", "sweep.svg"]}}


def subcommands(*command):
    text = tool.run(*command, "--help").stdout
    part = re.search(r"Subcommands:\n((?:  .*\n)+)", text)
    return re.findall(r"^  (\S+)", part.group(1), re.M) if part else []


def all_commands():
    for name in subcommands():
        inner = subcommands(name)
        yield from ((name, each) for each in inner) if inner else [(name,)]


def path_flags(command):
    """The flags that name files (FILE) and folders (DIR), as --help tells."""
    found = re.findall(r"^  (--[\w-]+) (FILE|DIR)\b", tool.run(*command, "--help").stdout, re.M)
    return [(flag, kind) for flag, kind in found if flag not in READ]


class Outputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder(samples=32)
        cls.run_dir = cls.folder / "run"
        tool.run("train", cls.folder.config, "--out", cls.run_dir, "--quiet", "--set", "train.epochs=1")
        cls.flags = {command: path_flags(command) for command in all_commands()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def setUp(self):
        self.place = self.folder / "place"
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        self.names = {"config": self.place / "net.toml", "model": self.place / "net.safetensors",
                      "input": self.place / "images"}
        shutil.copy(self.folder.config, self.names["config"])
        shutil.copy(self.run_dir / "model.safetensors", self.names["model"])
        shutil.copy(self.folder.data / "t10k-images-idx3-ubyte", self.names["input"])

    def refused(self, says, *arguments):
        """The command ends at once with one line; no file has changed and none has come."""
        def state():
            return {p: p.read_bytes() for p in self.place.rglob("*") if p.is_file()}
        before = state()
        done = tool.run(*arguments, code=2)
        self.assertIn(says, done.stderr, arguments)
        self.assertEqual(len(done.stderr.splitlines()), 1, arguments)
        self.assertEqual(state(), before, arguments)

    def base(self, command):
        arguments, inputs = COMMANDS[command]
        return ([*command, *(a.format(**self.names) for a in arguments)],
                [pathlib.Path(i.format(**self.names)) for i in inputs])

    def test_the_table_knows_every_command(self):
        self.assertEqual(set(self.flags), set(COMMANDS))
        self.assertIn(("--json", "FILE"), self.flags[("eval",)])  # the help is read rightly
        self.assertIn(("--report", "DIR"), self.flags[("train",)])

    def targets(self, command, flag, kind):
        """Values of the flag, and the files that the command would write with each."""
        if kind == "FILE":
            return [(self.place / "out.file", self.place / "out.file")]
        inside = INSIDE[flag]
        names = inside if isinstance(inside, list) else inside[command[0]]
        return [(self.place / "out", self.place / "out" / name) for name in names]

    def test_every_output_flag_spares_every_input(self):
        for command, flags in self.flags.items():
            arguments, inputs = self.base(command)
            for flag, kind in flags:
                for source in inputs:
                    if kind == "FILE":
                        self.refused("is read as", *arguments, flag, source)
                    for value, written in self.targets(command, flag, kind):
                        for link in (os.link, os.symlink):
                            written.parent.mkdir(exist_ok=True)
                            link(source, written)
                            force = ["--force"] if (command, flag) == (("train",), "--out") else []
                            self.refused("is read as", *arguments, flag, value, *force)
                            written.unlink()
                        shutil.rmtree(self.place / "out", ignore_errors=True)

    def test_every_output_flag_spares_files_of_others(self):
        data = self.folder.data / "train-images-idx3-ubyte"
        for command, flags in self.flags.items():
            arguments, _ = self.base(command)
            for flag, kind in flags:
                for value, written in self.targets(command, flag, kind):
                    if (command, flag) == (("train",), "--out"):
                        continue  # another run's folder has rules of its own
                    for content in (data.read_bytes(), b"a,b\n1,2\n", b'{"text":"a"}\n', b"[data]\n"):
                        written.parent.mkdir(exist_ok=True)
                        written.write_bytes(content)
                        self.refused("is there already", *arguments, flag, value)
                    written.unlink()
                shutil.rmtree(self.place / "out", ignore_errors=True)

    def test_no_two_flags_write_one_file(self):
        for command, flags in self.flags.items():
            arguments, _ = self.base(command)
            files = [flag for flag, kind in flags if kind == "FILE"]
            same = self.place / "same"
            for first, second in zip(files, files[1:]):
                self.refused("is written by", *arguments, first, same, second, same)
                other = self.place / "folder"
                other.symlink_to(self.place)
                self.refused("is written by", *arguments, first, same, second, other / "same")
                other.unlink()
        out = self.place / "study"
        out.mkdir()
        self.refused("is written by", "sweep", self.names["config"], "--set", "train.batch=8,16",
                     "--out", out, "--csv", out / "sweep.json")

    def test_the_folder_of_a_run_is_an_input_too(self):
        run = self.place / "run"
        shutil.copytree(self.run_dir, run)
        for name in ("model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "config.toml"):
            self.refused("is read as the model", "eval", run, "--json", run / name)
        tool.run("eval", run, "--json", run / "eval.json")
        tool.run("eval", run, "--json", run / "eval.json")  # its own result is replaced

    def test_results_replace_their_own_and_what_is_empty(self):
        out = self.place / "out.json"
        out.touch()  # as mktemp makes it
        for _ in range(2):
            tool.run("eval", self.names["model"], "--json", out, "--on", self.folder.data)
        self.assertTrue(out.read_text().startswith("{"))
        report, trace = self.place / "report", self.place / "trace.json"
        for _ in range(2):
            tool.run("train", self.names["config"], "--quiet", "--set", "train.max_steps=1", "--json",
                     out, "--report", report, "--trace", trace)
        labels = self.place / "labels.csv"
        for part in (b"", b"index,label\n0,1\n"):
            pathlib.Path(f"{labels}.part").write_bytes(part)
            tool.run("infer", self.names["model"], "--input", self.names["input"], "--output", labels)
        study = ("sweep", self.names["config"], "--set", "train.batch=8,16", "--set",
                 "train.max_steps=1", "--out", self.place / "study")
        tool.run(*study)
        tool.run(*study)

    def test_a_run_may_read_its_own_config(self):
        run = self.place / "run"
        tool.run("train", self.names["config"], "--out", run, "--quiet", "--set", "train.max_steps=1")
        for flag in ("--resume", "--force"):
            tool.run("train", run / "config.toml", "--out", run, flag, "--quiet",
                     "--set", "train.max_steps=2")

    def test_devices_and_pipes_are_written_to(self):
        tool.run("eval", self.names["model"], "--json", "/dev/null", "--on", self.folder.data)
        pipe = self.place / "pipe"
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
        tool.run("eval", self.names["model"], "--json", pipe, "--on", self.folder.data)
        text, _ = reader.communicate(timeout=60)
        self.assertIn("accuracy", text)

    def test_what_a_killed_process_left_goes_and_a_users_file_stays(self):
        out = self.place / "out.json"
        left, own = self.place / "out.json.0123456789abcdef.tmp", self.place / "out.json.tmp"
        left.write_text("torn")
        own.write_text("a user's own")
        tool.run("eval", self.names["model"], "--json", out, "--on", self.folder.data)
        self.assertFalse(left.exists())
        self.assertEqual(own.read_text(), "a user's own")


if __name__ == "__main__":
    unittest.main(verbosity=2)
