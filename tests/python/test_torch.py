"""PyTorch's tensors and modules."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp

torch = pytest.importorskip("torch", reason="needs PyTorch: install python3-torch")


def test_tensors_are_read_where_they_lie(trained, data):
    x, y = data
    tensor = torch.from_numpy(x)
    before = rl._core.copied_bytes()
    np.testing.assert_array_equal(trained.predict_proba(tensor), trained.predict_proba(x))
    assert rl._core.copied_bytes() == before
    assert trained.evaluate(tensor, torch.from_numpy(y)) == trained.evaluate(x, y)
    np.testing.assert_array_equal(trained.predict(tensor.t().contiguous().t()), trained.predict(x))
    tensor.requires_grad_()
    assert trained.predict(tensor).shape == (len(x),)
    out = torch.empty(len(x), 3)
    trained.predict_proba(x, out)
    np.testing.assert_array_equal(out.numpy(), trained.predict_proba(x))
    with pytest.raises(TypeError, match="float16|bfloat16"):
        trained.predict(tensor.detach().bfloat16())
    model = mlp()
    model.fit(torch.from_numpy(x), torch.from_numpy(y), epochs=1)
    two, same = mlp(outputs=2), mlp(outputs=2)
    two.fit(torch.from_numpy(x), torch.from_numpy(y > 0), epochs=1)
    same.fit(x, y > 0, epochs=1)
    np.testing.assert_array_equal(two.predict_proba(x), same.predict_proba(x))
    assert two.predict(torch.from_numpy(x > 0)).shape == (len(x),)


def test_scaling_is_no_part_of_a_module(data, tmp_path, recwarn):
    raw, scaled = mlp(), mlp(scale="standard")
    raw.to_onnx(tmp_path / "net.onnx")
    raw.save(tmp_path / "net.safetensors")
    for model in (raw, rl.load(tmp_path / "net.safetensors"), rl.load(tmp_path / "net.onnx")):
        model.to_torch()
    assert not recwarn
    scaled.fit(*data, epochs=1)
    with pytest.warns(UserWarning, match="to_torch: the module takes samples that are already scaled.*'standard'"):
        scaled.to_torch()


def nets():
    nn = torch.nn
    flat = lambda *layers: (nn.Sequential(*layers), (6,), (5, 6))
    yield flat(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    yield flat(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3))
    yield flat(nn.Linear(6, 8), nn.LayerNorm(8), nn.SiLU(), nn.Sequential(nn.Linear(8, 4), nn.ELU(0.5)), nn.Linear(4, 3))
    yield flat(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3), nn.Softplus())
    yield (nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(4, 4, (3, 1), groups=2), nn.Hardswish(), nn.AvgPool2d(2, 1), nn.Flatten(),
                         nn.Linear(4 * 1 * 3, 3)), (2, 8, 8), (5, 2, 8, 8))
    yield (nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.MaxPool1d(2),
                         nn.Flatten(), nn.Linear(12, 3)), (2, 14), (5, 2, 14))


@pytest.mark.parametrize("net", list(nets()), ids=lambda net: type(net[0][0]).__name__)
def test_from_torch_and_back(net):
    module, shape, batch = net
    torch.manual_seed(1)
    for each in module.modules():  # statistics that differ from their defaults
        if hasattr(each, "running_mean") and each.running_mean is not None:
            each.running_mean.normal_()
            each.running_var.uniform_(0.5, 2)
    module.eval()
    x = torch.randn(*batch)
    want = module(x).detach().numpy()
    model = rl.from_torch(module, input_shape=shape, loss="mse", device="cpu", tune=False)
    # Sums of a few dozen products in fp32.
    np.testing.assert_allclose(model.outputs(x), want, rtol=2e-5, atol=2e-5)
    back = model.to_torch()
    np.testing.assert_allclose(back(x).detach().numpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_of_other_types(dtype):
    module = torch.nn.Sequential(torch.nn.Linear(6, 3)).to(getattr(torch, dtype))
    weight = rl.from_torch(module, device="cpu", tune=False).state_dict()["0.weight"]
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(weight, module[0].weight.detach().float().numpy())


def test_modules_that_are_not_known():
    with pytest.raises(rl.UsageError, match="module 1 is PReLU"):
        rl.from_torch(torch.nn.Sequential(torch.nn.Linear(6, 2), torch.nn.PReLU()))
    with pytest.raises(rl.UsageError, match="input_shape"):
        rl.from_torch(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3)))
    with pytest.raises(rl.UsageError, match="approximate"):
        rl.from_torch(torch.nn.Sequential(torch.nn.Linear(6, 2), torch.nn.GELU(approximate="tanh")))
    with pytest.raises(TypeError, match="module: got int"):
        rl.from_torch(3)


def test_training_takes_the_steps_of_pytorch():
    """One epoch of SGD without shuffling, beside torch.optim."""
    x, y = blobs(64)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    config_model = rl.from_torch(module, optimizer={"type": "sgd", "lr": 0.1, "momentum": 0.9}, device="cpu",
                                 tune=False)
    config_model._config["train"]["shuffle"] = False
    config_model.fit(x, y, epochs=2, batch_size=16)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        for i in range(0, 64, 16):
            loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x[i:i + 16])),
                                                     torch.from_numpy(y[i:i + 16]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name, value in config_model.state_dict().items():
        np.testing.assert_allclose(value, module.state_dict()[name].numpy(), rtol=1e-4, atol=1e-5)
