"""Shell completion and the manual page agree with --help."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import tool


def commands():
    """The commands that --help lists."""
    listed = tool.run("--help").stdout.split("Subcommands:")[1]
    return re.findall(r"^  (\w+) ", listed, re.M)


def bash_completes(script, line):
    """What bash offers at the end of a command line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    program = (f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
               "_ridgeline; printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


class Completion(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)

    def test_bash(self):
        script = self.folder / "bash"
        script.write_text(tool.run("completion", "bash").stdout)
        assert set(commands()) <= set(bash_completes(script, "ridgeline "))
        assert bash_completes(script, "ridgeline tr") == ["train"]
        assert "--resume" in bash_completes(script, "ridgeline train x.toml --re")
        assert "gemm" in bash_completes(script, "ridgeline bench ")
        assert "--precision" in bash_completes(script, "ridgeline bench gemm --p")

    def test_other_shells_parse(self):
        for shell in ("zsh", "fish"):
            script = self.folder / shell
            script.write_text(tool.run("completion", shell).stdout)
            for command in commands():
                assert command in script.read_text(), (shell, command)
            if shutil.which(shell):
                subprocess.run([shell, "-n", script], check=True)

    def test_unknown_shell(self):
        assert "tcsh" in tool.run("completion", "tcsh", code=2).stderr

    def test_man_page(self):
        page = self.folder / "ridgeline.1"
        page.write_text(tool.run("man").stdout)
        text = page.read_text()
        for command in commands():
            assert f".SS ridgeline {command}" in text, command
        assert "\\fB\\-\\-resume\\fR" in text
        # No line of prose begins with a character that roff takes for a request.
        known = {".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}
        for line in text.splitlines():
            assert not line.startswith("'"), line
            assert not line.startswith(".") or line.split(" ")[0] in known, line
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", page], capture_output=True, text=True,
                                  check=True)
            assert done.stderr == "", done.stderr


if __name__ == "__main__":
    unittest.main(verbosity=2)
