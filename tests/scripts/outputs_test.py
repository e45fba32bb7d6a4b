"""No output replaces a file that is not its own: every command runs with every flag that names an output, pointed at
each of its inputs, at files of other programs and at the outputs of its other flags."""

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
    ("train",): (["{own}", "--init", "{model}"], ["{own}", "{model}", "{data}"]),
    ("eval",): (["{model}", "--on", "{data}", "--target", "{target}"], ["{model}", "{data}", "{target}"]),
    ("infer",): (["{model}", "--input", "{input}"], ["{model}", "{input}"]),
    ("serve",): (["{model}", "second={other}", "--token-file", "{tokens}"], ["{model}", "{other}", "{tokens}"]),
    ("import",): (["{model}"], ["{model}"]),
    ("export",): (["{model}"], ["{model}"]),
    ("sweep",): (["{own}", "--set", "train.batch=8,16"], ["{own}", "{data}"]),
    ("verify",): (["{own}"], ["{own}", "{data}"]),
    ("plan",): (["{own}"], ["{own}", "{data}"]),
    ("profile",): (["{own}"], ["{own}"]),
    ("ladder",): (["mlp"], []),
    ("bench", "mlp"): (["--results", "{results}"], ["{kept}"]),
    ("bench", "gemm"): (["--results", "{results}"], ["{kept}"]),
    ("bench", "rnn"): (["--results", "{results}"], ["{kept}"]),
    ("bench", "infer"): (["{own}", "--results", "{results}"], ["{own}", "{data}", "{kept}"]),
    ("bench", "deepbench"): (["--results", "{results}"], ["{kept}"]),
    ("data", "list"): ([], []),
    ("data", "check"): (["mnist"], []),
    ("data", "get"): (["mnist"], []),
    ("data", "describe"): (["{input}", "--target", "{target}"], ["{input}", "{target}"]),
    ("info",): ([], []),
    ("completion",): (["bash"], []),
}
# Flags of files and folders that are only read, and of a run that goes on in its own (resume_test.py).
READ = {"--input", "--data", "--results", "--on", "--resume", "--target", "--init", "--models",
        "--token-file"}
# Files of other programs, in the forms that results have as well.
OTHERS = {
    "idx": bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]),
    "csv": b"a,b\n1,2\n",
    "json lines": b'{"text":"a"}\n',
    "toml": b"[data]\n",
    "json": b'{\n  "name": "package",\n  "version": "1.0.0"\n}\n',
    "json list": b"[\n  1,\n  2\n]\n",
    "trace": b'{"displayTimeUnit":"ns","traceEvents":[]}',
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"></svg>\n',
    "html": b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"></head></html>\n',
    "onnx": b"\x08\x08\x12\x07pytorch\x1a\x051.13.1",
    "safetensors": b'\x40' + bytes(7) + b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'.ljust(64),
    "text": b"Dear diary,\n",
}
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
                      "own": self.place / "own.toml", "input": self.place / "images",
                      "data": self.place / "data.csv", "other": self.place / "other",
                      "target": self.place / "target.npy", "tokens": self.place / "tokens",
                      "results": self.place / "results", "kept": self.place / "results" / "kept.json"}
        text = self.folder.config.read_text()
        self.assertIn(f'name = "{self.folder.data}"', text)
        self.names["config"].write_text(text)
        self.names["own"].write_text(text.replace(f'name = "{self.folder.data}"', f'train = "{self.names["data"]}"'))
        # Data that a sweep has written could be taken for the result that another sweep may replace.
        self.names["data"].write_text("train.batch,accuracy,error\n" + "8,0.5,\n16,0.7,\n" * 40)
        self.names["target"].write_bytes(b"\x93NUMPY")
        self.names["tokens"].write_text('{"time": of a token\n')
        self.names["results"].mkdir()
        self.names["kept"].write_text("{ \n}\n")
        shutil.copy(self.run_dir / "model.safetensors", self.names["other"])
        shutil.copy(self.run_dir / "model.safetensors", self.names["model"])
        shutil.copy(self.folder.data / "t10k-images-idx3-ubyte", self.names["input"])

    def refused(self, says, *arguments):
        """The command ends at once with one line; no file has changed and none was added."""
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
        tried = set()
        for command, flags in self.flags.items():
            arguments, _ = self.base(command)
            for flag, kind in flags:
                for value, written in self.targets(command, flag, kind):
                    # The files of a flag are known by the same signs in every command.
                    few = (flag, written.name) in tried
                    tried.add((flag, written.name))
                    if (command, flag) == (("train",), "--out"):
                        continue  # another run's folder has rules of its own
                    for content in (OTHERS["json"], OTHERS["csv"]) if few else OTHERS.values():
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
