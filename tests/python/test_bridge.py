"""ridgeline.torch.Module: gradients, parameters, shared weights."""

import copy
import pickle
import threading

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp
from ridgeline import nn

torch = pytest.importorskip("torch")
import ridgeline.torch  # noqa: E402


def small(**keywords):
    return rl.Model(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(), nn.Linear(5, 3)),
                    **{"precision": "fp64", "device": "cpu", "tune": False, **keywords})


def test_gradcheck():
    module = ridgeline.torch.Module(small())
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for mode in (True, False):
        module.train(mode)
        assert torch.autograd.gradcheck(module, (x,))
        assert torch.autograd.gradcheck(lambda *weights: module(x), tuple(module.parameters()))


@pytest.mark.parametrize("network, shape", [
    (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), (1, 5, 5)),
    (nn.Sequential(nn.GRU(2, 3), nn.Select(), nn.Linear(3, 2)), (4, 2)),
])
def test_gradcheck_of_other_layers(network, shape):
    module = ridgeline.torch.Module(rl.Model(network, input_shape=shape, precision="fp64", device="cpu", tune=False))
    x = torch.randn(3, *shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,))
    assert torch.autograd.gradcheck(lambda *weights: module(x), tuple(module.parameters()))


def test_gradients_of_a_graph_are_those_of_pytorch():
    x = nn.Input((4,))
    a = nn.SiLU()(nn.Linear(4, 4)(x))
    model = rl.Model(nn.Graph(x, nn.Linear(4, 2)(a * x + a)), device="cpu", tune=False)
    ours, theirs = ridgeline.torch.Module(model), model.to_torch().train()
    data = torch.randn(7, 4, requires_grad=True)
    (ours(data) ** 2).sum().backward()
    dx, data.grad = data.grad, None
    (theirs(data) ** 2).sum().backward()
    torch.testing.assert_close(dx, data.grad, rtol=1e-4, atol=1e-5)
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_it_trains_inside_a_larger_net():
    x, y = (torch.from_numpy(each) for each in blobs())
    torch.manual_seed(1)
    inner = ridgeline.torch.Module(mlp(inputs=8, outputs=8))
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), inner, torch.nn.Linear(8, 3))
    assert "2.0.weight" in net.state_dict() and len(list(net.parameters())) == 8
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (net(x).argmax(1) == y).float().mean() > 0.9
    # What was trained is in the memory that the module computes with, and in the model made of it.
    hidden = torch.relu(net[0](x)).detach()
    model = inner.to_model()
    state = model.state_dict()
    np.testing.assert_array_equal(state["0.weight"], inner.state_dict()["0.weight"].numpy())
    for same in (copy.deepcopy(inner), pickle.loads(pickle.dumps(inner))):
        torch.testing.assert_close(same(hidden), inner(hidden))


def test_a_compiled_net_runs_around_it():
    if not hasattr(torch, "compile"):
        pytest.skip("needs PyTorch 2")
    inner = rl.Model(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)), device="cpu", tune=False)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), ridgeline.torch.Module(inner), torch.nn.Linear(8, 2))
    x = torch.rand(5, 4)
    torch.compile(net, backend="eager")(x).sum().backward()
    compiled = [each.grad.clone() for each in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    for got, each in zip(compiled, net.parameters(), strict=True):
        torch.testing.assert_close(got, each.grad)


def test_dropout_and_statistics():
    network = nn.Sequential(nn.Linear(6, 64), nn.BatchNorm(), nn.Dropout(0.5), nn.Linear(64, 3))
    module = ridgeline.torch.Module(rl.Model(network, device="cpu", tune=False))
    x = torch.randn(32, 6, requires_grad=True)
    assert not torch.equal(module(x), module(x))
    assert int(module.state_dict()["1.num_batches_tracked"]) == 2
    module(x).sum().backward()
    assert int(module.state_dict()["1.num_batches_tracked"]) == 3, "the backward pass counts nothing"
    module.eval()
    with torch.no_grad():
        assert torch.equal(module(x), module(x))
    with pytest.raises(rl.UsageError, match=r"layer 1 \(batchnorm\) has gradients in training alone"):
        module(x).sum().backward()


def test_wrong_tensors_and_threads():
    module = ridgeline.torch.Module(mlp())
    x = torch.randn(2, 6)
    for wrong, error, message in ((x.double(), TypeError, "x: got torch.float64, expected torch.float32"),
                                  (x[:, :4], ValueError, r"x: got shape \(2, 4\), expected \(n, 6\)"),
                                  (x[:0], ValueError, r"x: got shape \(0, 6\)"),
                                  (x.numpy(), TypeError, "x: got ndarray")):
        with pytest.raises(error, match=message):
            module(wrong)
    want = module(x)
    answers = [None] * 4

    def work(i):
        answers[i] = [module(x) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(torch.equal(each, want) for answer in answers for each in answer)
    with pytest.raises(ValueError, match=r"0\.weight: got a tensor of other memory"):
        module.double()(x)


def test_shared_weights():
    x, y = blobs()
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    model = rl.from_torch(net, share=True, loss="cross-entropy", optimizer="adam", lr=0.02, device="cpu", tune=False)
    assert net[0].weight.data_ptr() == model.state_dict(copy=False)["0.weight"].ctypes.data
    samples = torch.from_numpy(x)

    def check():
        want = torch.softmax(net(samples), 1).detach().numpy()
        np.testing.assert_allclose(model.predict_proba(x), want, atol=1e-5)

    check()
    model.fit(x, y, epochs=3)
    check()
    model.train_step(x, y)
    model.predict(x)
    check()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    torch.nn.functional.cross_entropy(net(samples), torch.from_numpy(y)).backward()
    optimizer.step()
    check()
    assert net[0].weight.data_ptr() == model.state_dict(copy=False)["0.weight"].ctypes.data
    copied = rl.from_torch(net, device="cpu", tune=False)
    assert copied.state_dict(copy=False)["0.weight"].ctypes.data != net[0].weight.data_ptr()
    other = model.to_torch(share=True)
    assert other[2].bias.data_ptr() == model.state_dict(copy=False)["2.bias"].ctypes.data
