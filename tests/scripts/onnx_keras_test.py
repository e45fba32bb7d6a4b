"""Files that Keras has written, by tf2onnx (tests/onnx/keras/make_models.py), give the outputs that lie beside them, also
after an import and an export. Layers that the exporter writes once for each timestep share their weights."""

import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

tool.need("numpy")
import numpy as np

FOLDER = tool.SOURCE / "tests/onnx/keras"
# Sums of a few dozen fp32 terms of order one; a wrong weight, gate or window is 1e-2 or more.
TOLERANCE = 1e-5


def worst(got, want):
    got, want = (np.load(each).reshape(len(np.load(each)), -1) for each in (got, want))
    got = got[:, -want.shape[1]:]  # probabilities follow the labels
    assert got.shape == want.shape, (got.shape, want.shape)
    return np.max(np.abs(got - want) / (1 + np.abs(want)))


def samples(file, folder):
    """Codes are read as raw bytes."""
    found = next(each for each in (file.with_suffix(".x.npy"), file.with_suffix(".x.npz")) if each.exists())
    if found.suffix == ".npz" or np.load(found).dtype != np.uint8:
        return found
    (folder / "codes.bin").write_bytes(np.load(found).tobytes())
    return folder / "codes.bin"


def main():
    probe = tool.subprocess.run([tool.TOOL, "import", "/dev/null", "--out", "none.safetensors"], capture_output=True, text=True)
    if "has no ONNX" in probe.stderr:
        print("skipped: this build has no ONNX")
        return 77
    files = sorted(FOLDER.glob("*.onnx"))
    assert len(files) >= 20, files
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in files:
            got = folder / f"{file.stem}.npy"
            tool.run("infer", file, "--input", samples(file, folder), "--output", got, "--no-tune")
            error = worst(got, file.with_suffix(".y.npy"))
            if not error <= TOLERANCE:
                wrong.append(f"{file.stem}: {error}")
        assert not wrong, wrong
        print(f"{len(files)} Keras models give ONNX Runtime's numbers")
        # One matrix [2, 4] and one bias for the five timesteps, beside those of the GRU.
        said = tool.run("import", FOLDER / "gru-sequences.onnx", "--out", folder / "shared.safetensors").stdout
        assert "118 parameters" in said, said
        tool.run("infer", folder / "shared.safetensors", "--input", FOLDER / "gru-sequences.x.npy", "--output", folder / "y.npy",
                 "--no-tune")
        assert worst(folder / "y.npy", FOLDER / "gru-sequences.y.npy") <= TOLERANCE
    return 0


sys.exit(main())
