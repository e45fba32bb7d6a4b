"""ONNX files, out and in."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import ridgeline as rl
from conftest import mlp
from ridgeline import nn


def test_there_and_back(trained, data, tmp_path):
    x, _ = data
    path = tmp_path / "net.onnx"
    trained.to_onnx(path)
    file = trained.to_onnx()
    assert path.read_bytes() == file
    back = rl.from_onnx(path, device="cpu", tune=False)
    np.testing.assert_allclose(back.predict_proba(x), trained.predict_proba(x), atol=1e-6)
    assert back.predict(x).tolist() == trained.predict(x).tolist()
    half = trained.to_onnx(opset=13, half_weights=True)
    assert len(half) < len(file)


def test_layers_of_a_file_train_in_a_new_model(trained, data, tmp_path):
    path = tmp_path / "net.onnx"
    trained.to_onnx(path)
    model = rl.from_onnx(path, device="cpu", tune=False)
    with pytest.raises(rl.UsageError, match="fit: the model is that of an ONNX file, and predicts; to train its layers: new ="):
        model.fit(*data)
    new = rl.Model({"model": model.config["model"]}, input_shape=model.input_shape, scale="raw", loss="cross-entropy",
                   device="cpu", tune=False)
    new.load_state_dict(model.state_dict())
    np.testing.assert_allclose(new.predict_proba(data[0]), trained.predict_proba(data[0]), atol=1e-6)
    assert new.fit(*data, epochs=1)["loss"][0] < 0.5


def test_a_scaled_regressor(data, tmp_path):
    x, _ = data
    model = mlp(outputs=1, loss="mse", scale="standard")
    model.fit(x, 100 + 20 * x[:, 0], epochs=3)
    path = tmp_path / "values.onnx"
    model.to_onnx(path)
    back = rl.from_onnx(path, device="cpu", tune=False)
    np.testing.assert_allclose(back.outputs(x)[:, 0], model.predict(x), rtol=1e-4)


def test_errors(tmp_path, trained):
    with pytest.raises(FileNotFoundError):
        rl.from_onnx(tmp_path / "nowhere.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no such thing")
    with pytest.raises(rl.ModelError, match="bad.onnx"):
        rl.from_onnx(tmp_path / "bad.onnx")
    with pytest.raises(rl.UsageError, match="opset"):
        trained.to_onnx(opset=3)
    x = nn.Input((4,))
    a = nn.Linear(4, 4)(x)
    graph = rl.Model(nn.Graph(x, nn.Linear(4, 2)(nn.ReLU()(a) + a)), device="cpu", tune=False)
    path = tmp_path / "graph.onnx"
    graph.to_onnx(path)
    samples = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(rl.from_onnx(path, device="cpu", tune=False).outputs(samples), graph.outputs(samples),
                               atol=1e-5)


def test_another_protobuf_in_the_process(tmp_path):
    """TensorFlow loads its protobuf globally before ridgeline; this stand-in has a parser that ends the process."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    symbol = "_ZN6google8protobuf11MessageLite20ParseFromCodedStreamEPNS0_2io16CodedInputStreamE"
    (tmp_path / "other.c").write_text(f"#include <stdlib.h>\nint {symbol}(void* a, void* b) {{ _Exit(77); }}\n")
    other = tmp_path / "other.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", other, tmp_path / "other.c"], check=True)
    script = f"""
import ctypes, sys, types
ctypes.CDLL({str(other)!r}, mode=ctypes.RTLD_GLOBAL)
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
import ridgeline as rl
from ridgeline import nn
rl.Model(nn.Sequential(nn.Linear(4, 3)), tune=False).to_onnx({str(tmp_path / "net.onnx")!r})
print(rl.from_onnx({str(tmp_path / "net.onnx")!r}).input_shape)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "(4,)\n"), done.stderr
