"""examples/notebooks, executed."""

import json
import pathlib
import subprocess
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path):
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    if "torch" in path.read_text():
        pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir",
                           str(tmp_path), "--ExecutePreprocessor.timeout=300", str(path)],
                          capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    cells = json.loads((tmp_path / path.name).read_text())["cells"]
    shown = [data for cell in cells for output in cell.get("outputs", ()) for data in output.get("data", ())]
    if path.stem == "profile_a_net":
        assert shown.count("text/html") >= 3
    assert not any(output.get("output_type") == "error" for cell in cells for output in cell.get("outputs", ()))
