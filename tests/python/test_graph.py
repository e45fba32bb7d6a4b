"""Nets that branch."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import mlp  # noqa: F401
from ridgeline import nn


def branching(**keywords):
    x = nn.Input((6,))
    a = nn.ReLU()(nn.Linear(6, 8)(x))
    b = nn.Tanh()(nn.Linear(6, 8)(x))
    y = nn.Linear(24, 3)(nn.Concat()(a + b, a * b, nn.Mean()(a, b)))
    return rl.Model(nn.Graph(x, y), **{"optimizer": "adam", "lr": 0.02, "device": "cpu", "tune": False, **keywords})


def by_hand(state, x):
    weights = [value for name, value in state.items() if name.endswith("weight")]
    biases = [value for name, value in state.items() if name.endswith("bias")]
    a = np.maximum(x @ weights[0].T + biases[0], 0)
    b = np.tanh(x @ weights[1].T + biases[1])
    logits = np.concatenate([a + b, a * b, (a + b) / 2], 1) @ weights[2].T + biases[2]
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_a_graph_computes_what_it_says(data):
    x, y = data
    model = branching()
    np.testing.assert_allclose(model.predict_proba(x), by_hand(model.state_dict(), x), atol=1e-5)
    model.fit(x, y, epochs=6, batch_size=24)
    assert model.evaluate(x, y)["accuracy"] > 0.9
    np.testing.assert_allclose(model.predict_proba(x), by_hand(model.state_dict(), x), atol=1e-5)


def test_a_residual_block(data):
    x, y = data
    inside = nn.Residual(nn.LazyLinear(6), nn.ReLU())
    model = rl.Model(nn.Sequential(inside, nn.Linear(6, 3)), input_shape=(6,), device="cpu", tune=False)
    state = model.state_dict()
    hidden = x + np.maximum(x @ state["0.0.weight"].T + state["0.0.bias"], 0)
    logits = hidden @ state["1.weight"].T + state["1.bias"]
    np.testing.assert_allclose(model.predict_proba(x), np.exp(logits) / np.exp(logits).sum(1, keepdims=True),
                               atol=1e-5)


def test_graphs_are_checked():
    x, other = nn.Input((4,)), nn.Input((4,))
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="twice"):
        nn.Graph(x, layer(layer(x)))
    with pytest.raises(ValueError, match="another nn.Input"):
        nn.Graph(x, nn.Linear(4, 2)(x) + nn.Linear(4, 2)(other))
    with pytest.raises(TypeError, match="input: got"):
        nn.Graph(nn.Linear(4, 2)(x), nn.Linear(4, 2)(x))
    with pytest.raises(TypeError, match="input 0 of"):
        nn.Linear(4, 2)(3)
    with pytest.raises(ValueError, match="got 1 inputs, expected 2 to 64"):
        nn.Add()(x)
    with pytest.raises(ValueError, match=r"layer 1 \(linear\): got 5 inputs, expected 4"):
        rl.Model(nn.Graph(x, nn.Linear(5, 2)(nn.ReLU()(x))), device="cpu")
    assert "<- n0, input" in repr(nn.Graph(x, nn.Linear(4, 4)(x) + x))


def test_pytorch_modules_that_branch(data):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(6, 8)
            self.second = torch.nn.Linear(8, 8)
            self.third = torch.nn.Linear(16, 3)

        def forward(self, x):
            a = torch.relu(self.first(x))
            b = torch.nn.functional.gelu(self.second(a)) + a
            return self.third(torch.cat([a, b * a], 1))

    x = data[0]
    net = Net()
    model = rl.from_torch(net, loss="mse", device="cpu", tune=False)
    want = net(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model.outputs(x), want, atol=1e-5)
    np.testing.assert_allclose(model.to_torch()(torch.from_numpy(x)).detach().numpy(), want, atol=1e-5)

    class Twice(Net):
        def forward(self, x):
            return self.third(torch.cat([self.second(self.second(self.first(x)))] * 2, 1))

    class Odd(Net):
        def forward(self, x):
            return self.first(x).cumsum(1)

    with pytest.raises(rl.UsageError, match="second is called twice"):
        rl.from_torch(Twice())
    with pytest.raises(rl.UsageError, match="a call that has no layer"):
        rl.from_torch(Odd())
