"""A model of every config in configs/ is trained for two steps, exported, and gives our numbers in ONNX Runtime. The data
are made here: of the kinds and shapes of the sets that the configs name."""

import ctypes
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

tool.need("numpy")
import numpy as np

LIBRARY = ctypes.CDLL(str(tool.BUILD / "ridgeline/c_api/libridgeline.so"))
LIBRARY.ridgeline_last_error.restype = ctypes.c_char_p
LIBRARY.ridgeline_output_size.restype = ctypes.c_int64
TOLERANCE = 1e-5  # as in onnx_roundtrip_test.py: of sums of numbers of order one
COUNT = 40  # samples
STEPS = 2
# ONNX Runtime's numbers for what each model reads: PATH.onnx INPUT.npy OUTPUT.npy for each.
RUNNER = """
import sys, numpy, onnx, onnxruntime
for path, given, result in zip(*[iter(sys.argv[1:])] * 3):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    kind = {"tensor(int64)": "int64"}.get(session.get_inputs()[0].type)  # of codes
    x = numpy.load(given)
    numpy.save(result, session.run(None, {"input": x.astype(kind) if kind else x})[0])
"""
# The 65 characters of Shakespeare's plays.
CHARACTERS = "\n !$&',-.3:;?" + "".join(map(chr, range(65, 91))) + "".join(map(chr, range(97, 123)))


def make_sets(folder, noise):
    for name in ("mnist", "fashion_mnist"):
        (folder / name).mkdir()
        for part in ("train", "t10k"):
            pixels, labels = noise.integers(0, 256, (COUNT, 28, 28), np.uint8), noise.integers(0, 10, COUNT, np.uint8)
            tool.write_idx(folder / name / f"{part}-images-idx3-ubyte", pixels.shape, pixels.tobytes())
            tool.write_idx(folder / name / f"{part}-labels-idx1-ubyte", labels.shape, labels.tobytes())
    (folder / "tinyshakespeare").mkdir()
    text = CHARACTERS + "".join(noise.choice(list(CHARACTERS), 6000))
    (folder / "tinyshakespeare/input.txt").write_text(text)
    (folder / "ag_news").mkdir()
    for part in ("train", "test"):
        lines = [f'"{i % 4 + 1}","news","{"".join(noise.choice(list("abc def"), 90))}"\n' for i in range(COUNT)]
        (folder / f"ag_news/{part}.csv").write_text("".join(lines))
    x = noise.normal(size=(COUNT, 6, 4)).astype(np.float32)
    np.savez(folder / "policy.npz", observations=x, action=x[:, -1].argmax(1), value=x.mean((1, 2)))


def samples(config, noise):
    """What the model of a config reads."""
    text = config.read_text()
    if "policy.npz" in text:
        return noise.normal(size=(7, 6, 4)).astype(np.float32)
    if "tinyshakespeare" in text:
        return noise.integers(0, 65, (7, int(re.search(r"steps = (\d+)", text).group(1))), np.uint8)
    if "ag-news" in text:  # letters are 0 to 25, and the padding is 70
        return np.pad(noise.integers(0, 26, (3, 90)), ((0, 0), (0, 1014 - 90)), constant_values=70).astype(np.uint8)
    size = int(re.search(r"resize = \[(\d+)", text).group(1)) if "resize" in text else 28
    return noise.integers(0, 256, (7, size, size), np.uint8)


def answers(model, x):
    """What the library gives for samples: bytes, codes or floats."""
    found, predictor = ctypes.c_void_p(), ctypes.c_void_p()
    if (LIBRARY.ridgeline_load(str(model).encode(), ctypes.byref(found)) or
            LIBRARY.ridgeline_prepare(found, ctypes.c_int64(len(x)), b"cpu", 2, 0, ctypes.byref(predictor))):
        raise AssertionError(LIBRARY.ridgeline_last_error().decode())
    assert LIBRARY.ridgeline_input_type(predictor) == (1 if x.dtype == np.float32 else 2)
    y = np.empty((len(x), LIBRARY.ridgeline_output_size(predictor)), np.float32)
    if LIBRARY.ridgeline_run(predictor, ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(len(x)), ctypes.c_void_p(y.ctypes.data)):
        raise AssertionError(LIBRARY.ridgeline_last_error().decode())
    LIBRARY.ridgeline_free_predictor(predictor)
    LIBRARY.ridgeline_free_model(found)
    return y


def main():
    if "RIDGELINE_ONNX:BOOL=OFF" in (tool.BUILD / "CMakeCache.txt").read_text():
        print("skipped: this build has no ONNX")
        return 77
    python = tool.python_with("onnx")
    if python is None:
        return 77
    noise = np.random.default_rng(5)
    jobs, ours = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_sets(folder, noise)
        env = tool.environment(RIDGELINE_DATA=str(folder))
        configs = sorted((tool.SOURCE / "configs").rglob("*.toml"))
        assert len(configs) > 12, configs
        for config in configs:
            run, file = folder / config.stem, folder / f"{config.stem}.onnx"
            sets = ("train.batch=8", f"train.max_steps={STEPS}", "run.precision=fp32")
            tool.run("train", config, "--out", run, "--device", "cpu", "--no-tune", *(flag for each in sets for flag in ("--set", each)),
                     env=env, cwd=folder)
            tool.run("export", run, "--onnx", file)
            given = folder / f"{config.stem}.x.npy"
            x = samples(config, noise)
            np.save(given, x)
            jobs += [file, given, folder / f"{config.stem}.ort.npy"]
            ours[config.stem] = answers(run, x)
        tool.command([python, "-c", RUNNER, *jobs])
        for config, mine in ours.items():
            want = np.load(folder / f"{config}.ort.npy").reshape(len(mine), -1)
            assert mine.shape == want.shape, (config, mine.shape, want.shape)
            worst = np.max(np.abs(mine - want) / (1 + np.abs(want)))
            print(f"{config}: differs by {worst:.1e} of {want.std():.2g}")
            assert worst <= TOLERANCE, config
    return 0


sys.exit(main())
