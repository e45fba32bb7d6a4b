"""Runs examples/python, and checks that nothing leaks."""

import copy
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    for package in ("torch", "sklearn"):
        if package in path.read_text():
            pytest.importorskip(package)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


ROOT = EXAMPLES[0].parents[2]
FASHION = pathlib.Path(os.environ.get("RIDGELINE_DATA", "nowhere")) / "fashion_mnist"


def test_docs(tmp_path, monkeypatch):
    """Runs the snippets of docs/python.md one after another, all but those that need what is not here."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    needs = {'device="cuda"': False, "configs/": FASHION.exists(), "import torch": has("torch"), "sklearn": has("sklearn")}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    names = {}
    ran = 0
    for block in blocks:
        if all(there for need, there in needs.items() if need in block):
            given = {name: names[name] for name in ("x", "y") if name in names}
            exec(block, names)
            names.update(given)  # a graph has an input of this name
            names["X"] = names["x"]
            ran += 1
    assert ran >= 5


def has(package):
    return sys.modules.get(package, True) is not None and importlib.util.find_spec(package) is not None


def test_neither_torch_nor_numpy_is_imported_early():
    script = "import ridgeline, sys; print([m for m in ('numpy', 'torch', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_stays_flat(trained, data):
    """10,000 predictions, 100 models, handles, steps and runs."""
    x, y = data
    handle = trained.compile()
    out = np.empty((1, 3), np.float32)

    def work(rounds):
        for i in range(rounds):
            model = copy.deepcopy(trained)
            for _ in range(100):
                handle(x[:1], out)
                trained.predict_proba(x[:8])
            if i % 10 == 0:
                model.compile()(x[:1])
                model.train_step(x, y)
                model.fit(x, y, epochs=1)
                model.to_onnx()

    work(20)
    before = resident_bytes()
    work(100)
    assert resident_bytes() - before < 16 << 20


def test_import_takes_no_time(tmp_path):
    """The goal is 50 ms on a quiet machine; here other tests run at the same time."""
    script = "import time; t = time.perf_counter(); import ridgeline; print(time.perf_counter() - t)"
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    taken = [float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                                  env=environment).stdout) for _ in range(6)]
    assert min(taken) < 0.1
