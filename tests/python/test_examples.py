"""examples/python, and that nothing leaks."""

import copy
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import mlp

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    for package in ("torch", "sklearn"):
        if package in path.read_text():
            pytest.importorskip(package)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_docs(tmp_path, monkeypatch):
    """The first example of docs/python.md, and the one that goes on from it."""
    blocks = re.findall(r"```python\n(.*?)```", (EXAMPLES[0].parents[2] / "docs" / "python.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec("\n".join([blocks[0], *(block for block in blocks if "compile(" in block)]), {})


def test_neither_torch_nor_numpy_is_imported_early():
    script = "import ridgeline, sys; print([m for m in ('numpy', 'torch', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_stays_flat(trained, data):
    x, y = data

    def work(rounds):
        for _ in range(rounds):
            model = copy.deepcopy(trained)
            handle = model.compile()
            for _ in range(100):
                model.predict_proba(x)
                handle(x[:1])
        mlp().fit(x, y, epochs=1)

    work(5)
    before = resident_bytes()
    work(40)
    assert resident_bytes() - before < 16 << 20
