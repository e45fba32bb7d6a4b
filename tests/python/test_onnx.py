"""ONNX files, out and in."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import mlp
from ridgeline import nn


def test_there_and_back(trained, data, tmp_path):
    x, _ = data
    path = tmp_path / "net.onnx"
    file = trained.to_onnx(path)
    assert path.read_bytes() == file
    back = rl.from_onnx(path, device="cpu", tune=False)
    np.testing.assert_allclose(back.predict_proba(x), trained.predict_proba(x), atol=1e-6)
    assert back.predict(x).tolist() == trained.predict(x).tolist()
    half = trained.to_onnx(opset=13, half_weights=True)
    assert len(half) < len(file)


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
