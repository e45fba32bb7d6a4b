"""Modules of PyTorch that people write themselves: recurrent ones, functional calls, reshapes, blocks."""

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn

torch = pytest.importorskip("torch", reason="needs PyTorch: install python3-torch")
F = torch.nn.functional


def module_of(forward, **children):
    """A module with these children, whose forward is forward(self, x)."""
    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, child in children.items():
                self.add_module(name, child)

        def forward(self, x):
            return forward(self, x)

    torch.manual_seed(3)
    return Made().eval()


class Block(torch.nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding="same", bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.conv2(out)
        out += x
        return self.relu(out)


def last_timestep(self, x):
    y, _ = self.rnn(x)
    return self.head(y[:, -1, :])


def last_hidden(self, x):
    _, (h, c) = self.rnn(x)
    return self.head(h[-1])


def squeezed_hidden(self, x):
    _, h = self.rnn(x)
    return self.head(h.squeeze(0))


def mnist(self, x):
    """The network of PyTorch's own example."""
    x = F.relu(F.max_pool2d(self.conv1(x), 2))
    x = F.dropout(F.relu(F.max_pool2d(self.conv2(x), kernel_size=2)), training=self.training)
    x = F.relu(self.fc1(x.view(-1, 20)))
    return self.fc2(F.dropout(x, 0.3, training=self.training))


def from_zeros(self, x):
    """The first states that many write out, which are those that a module has anyway."""
    h = torch.zeros(2, x.size(0), 5).to(x.device)
    y, _ = self.rnn(x, (h, torch.zeros((2, x.size(0), 5), device=x.device)))
    return self.head(y[:, -1, :])


def text_cnn(self, x):
    x = x.unsqueeze(1).squeeze(1).permute(0, 2, 1)
    wide, narrow = F.relu(self.a(x)), F.relu(self.b(x))
    wide = F.max_pool1d(wide, wide.size(2)).squeeze(2)
    return self.head(torch.cat([wide, narrow.max(dim=2)[0], torch.max(narrow, 2).values, narrow.amax(-1)], 1))


def flattened(self, x):
    n, channels, height, width = self.conv(x).shape
    return self.head(self.conv2(x).view(n, channels * height * width))


T = torch.nn
NETS = {
    "zeros": (module_of(from_zeros, rnn=T.LSTM(4, 5, 2, batch_first=True), head=T.Linear(5, 3)), (6, 4)),
    "text-cnn": (module_of(text_cnn, a=T.Conv1d(4, 2, 3), b=T.Conv1d(4, 3, 2), head=T.Linear(11, 3)), (6, 4)),
    "both-directions": (module_of(lambda self, x: self.head(torch.cat((self.rnn(x)[1][-2], self.rnn2(x)[1][-1]), 1)),
                                  rnn=T.GRU(4, 5, 2, batch_first=True, bidirectional=True),
                                  rnn2=T.GRU(4, 3, batch_first=True, bidirectional=True), head=T.Linear(8, 3)), (6, 4)),
    "first-state": (module_of(lambda self, x: self.head(self.rnn(x)[1][0][0]), rnn=T.LSTM(4, 5, batch_first=True),
                              head=T.Linear(5, 3)), (6, 4)),
    "largest-timestep": (module_of(lambda self, x: self.head(self.rnn(x)[0].max(1)[0]), rnn=T.GRU(4, 5, batch_first=True),
                                   head=T.Linear(5, 3)), (6, 4)),
    "extents": (module_of(flattened, conv=T.Conv2d(1, 2, 3), conv2=T.Conv2d(1, 2, 3), head=T.Linear(32, 3)), (1, 6, 6)),
    "adaptive-pools": (T.Sequential(T.Conv2d(1, 2, 3), T.AdaptiveAvgPool2d((2, 4)), T.AdaptiveMaxPool2d((1, 2)), T.Flatten(),
                                    T.Linear(4, 3)).eval(), (1, 6, 10)),
    "interpolate": (module_of(lambda self, x: self.head(F.interpolate(F.interpolate(x, scale_factor=2), mode="bilinear",
                                                                      scale_factor=2).flatten(1)), head=T.Linear(64, 3)),
                    (1, 2, 2)),
    "one-place": (T.Sequential(T.Conv2d(1, 2, 3), T.AdaptiveMaxPool2d(1), T.Flatten(), T.CELU(), T.Linear(2, 3)), (1, 6, 6)),
    "padded": (T.Sequential(T.ConstantPad2d((1, 0, 2, 1), 0.5), T.Conv2d(1, 2, 3), T.MaxPool2d(2, ceil_mode=True), T.Flatten(),
                            T.Linear(2 * 3 * 2, 3)), (1, 5, 5)),
    "gated": (T.Sequential(T.Linear(4, 6), T.GLU(), T.Linear(3, 3)), (4,)),
    "gated-function": (module_of(lambda self, x: self.head(F.glu(self.conv(x), 1).flatten(1)), conv=T.Conv1d(4, 6, 3),
                                 head=T.Linear(12, 3)), (4, 6)),
    "chunks": (module_of(lambda self, x: self.head(torch.tanh(self.a(x).chunk(2, 1)[0]) * torch.chunk(self.a(x), 2, dim=1)[1]),
                         a=T.Tanh(), head=T.Linear(4, 3)), (8,)),
    "splits": (module_of(lambda self, x: self.head(self.a(x).split([5, 3], 1)[1] + torch.split(x, 3, 1)[0]), a=T.ReLU(),
                         head=T.Linear(3, 3)), (8,)),
    "slices": (module_of(lambda self, x: self.head(torch.cat((x[:, 5:], x[:, 1:3]), 1)), head=T.Linear(5, 3)), (8,)),
    "lstm": (module_of(last_timestep, rnn=T.LSTM(4, 5, 2, batch_first=True), head=T.Linear(5, 3)), (6, 4)),
    "lstm-hidden": (module_of(last_hidden, rnn=T.LSTM(4, 5, batch_first=True), head=T.Linear(5, 3)), (6, 4)),
    "gru-squeeze": (module_of(squeezed_hidden, rnn=T.GRU(4, 5, batch_first=True), head=T.Linear(5, 3)), (6, 4)),
    "rnn-relu": (module_of(last_timestep, rnn=T.RNN(4, 5, nonlinearity="relu", batch_first=True), head=T.Linear(5, 3)),
                 (6, 4)),
    "bidirectional": (module_of(lambda self, x: self.head(self.rnn(x)[0].mean(1)),
                                rnn=T.GRU(4, 5, batch_first=True, bidirectional=True), head=T.Linear(10, 3)), (6, 4)),
    "every-timestep": (module_of(lambda self, x: self.out(torch.relu(self.head(self.rnn(x)[0])).flatten(1)),
                                 rnn=T.LSTM(4, 5, batch_first=True), head=T.Linear(5, 2), out=T.Linear(12, 3)), (6, 4)),
    "sizes": (module_of(lambda self, x: self.b(self.a(x).view(x.size(0), -1)), a=T.Conv2d(1, 2, 3), b=T.Linear(32, 3)),
              (1, 6, 6)),
    "shape": (module_of(lambda self, x: self.b(self.a(x).reshape(x.shape[0], -1)), a=T.Conv2d(1, 2, 3),
                        b=T.Linear(32, 3)), (1, 6, 6)),
    "image-mean": (module_of(lambda self, x: self.b(F.leaky_relu(self.a(x), 0.2).mean((2, 3))), a=T.Conv2d(1, 4, 3),
                             b=T.Linear(4, 3)), (1, 6, 6)),
    "permute": (module_of(lambda self, x: self.b(F.elu(self.a(x.permute(0, 2, 1))).mean(-1)), a=T.Conv1d(4, 5, 3),
                          b=T.Linear(5, 3)), (6, 4)),
    "transpose": (module_of(lambda self, x: self.b(F.adaptive_avg_pool1d(self.a(x.transpose(1, 2)), 1).flatten(1)),
                            a=T.Conv1d(4, 5, 3), b=T.Linear(5, 3)), (6, 4)),
    "mnist": (module_of(mnist, conv1=T.Conv2d(1, 3, 3), conv2=T.Conv2d(3, 5, 2), fc1=T.Linear(20, 8),
                        fc2=T.Linear(8, 3)), (1, 12, 12)),
    "blocks": (T.Sequential(T.Conv2d(1, 4, 3), Block(4), T.Sequential(Block(4), T.AdaptiveAvgPool2d(1)), T.Flatten(),
                            T.Linear(4, 3)).eval(), (1, 6, 6)),
    "unflatten": (T.Sequential(T.Linear(5, 12), T.Unflatten(1, (3, 2, 2)), T.Upsample(scale_factor=2), T.ZeroPad2d(1),
                               T.Conv2d(3, 2, 3), T.Flatten(), T.Linear(32, 3)).eval(), (5,)),
}


@pytest.mark.parametrize("name", NETS)
def test_what_they_compute(name):
    module, shape = NETS[name]
    x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
    want = module(x).detach().numpy()
    model = rl.from_torch(module, input_shape=shape, loss="mse", device="cpu", tune=False)
    # Sums of a few dozen products in fp32.
    np.testing.assert_allclose(model.outputs(x), want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(model.to_torch()(x).detach().numpy(), want, rtol=2e-5, atol=2e-5)


def test_layers_that_pytorch_has_no_module_for():
    network = nn.Sequential(nn.Residual(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(),
                                        shortcut=[nn.Conv2d(2, 3, 1)]),
                            nn.Residual(nn.Conv2d(3, 3, 1)), nn.Slice(1, 1), nn.Pad((1, 0, 2, 1), 0.5),
                            nn.Transpose(2, 0, 1), nn.GroupNorm(2), nn.Reshape(3, -1), nn.GlobalAvgPool(), nn.Flatten(),
                            nn.LazyLinear(3))
    model = rl.Model(network, input_shape=(2, 4, 5), loss="mse", device="cpu", tune=False)
    x = torch.randn(7, 2, 4, 5)
    for module in (model.to_torch(), model.to_torch(share=True)):
        np.testing.assert_allclose(module(x).detach().numpy(), model.outputs(x), rtol=2e-5, atol=2e-5)
    flat = rl.Model(nn.Sequential(nn.LazyLinear(3)), input_shape=(2, 3), loss="mse", device="cpu", tune=False)
    np.testing.assert_allclose(flat.to_torch()(x[:, :, 0, :3]).detach().numpy(), flat.outputs(x[:, :, 0, :3]), rtol=2e-5,
                               atol=2e-5)


def test_they_train_and_share_weights():
    module, shape = NETS["lstm"]
    model = rl.from_torch(module, input_shape=shape, loss="mse", optimizer="adam", lr=0.01, device="cpu", tune=False,
                          share=True)
    random = np.random.default_rng(1)
    x = random.normal(size=(60, *shape)).astype(np.float32)
    history = model.fit(x, np.stack([x.mean((1, 2))] * 3, 1), epochs=20, batch_size=20)
    assert history["loss"][-1] < history["loss"][0] / 2
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), model.outputs(x), rtol=2e-5, atol=2e-5)


def test_embeddings_take_codes():
    codes = np.random.default_rng(1).integers(0, 9, (40, 6))
    module = module_of(lambda self, x: self.head(self.rnn(self.embed(x))[0][:, -1]), embed=T.Embedding(9, 4),
                       rnn=T.GRU(4, 5, batch_first=True), head=T.Linear(5, 3))
    want = module(torch.from_numpy(codes)).softmax(1).detach().numpy()
    model = rl.from_torch(module, input_shape=(6,), optimizer="adam", lr=0.02, device="cpu", tune=False)
    for same in (codes, codes.astype(np.int32), codes.astype(np.uint8), codes.tolist(), torch.from_numpy(codes)):
        np.testing.assert_allclose(model.predict_proba(same), want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(model.to_torch()(torch.from_numpy(codes)).softmax(1).detach().numpy(), want, rtol=2e-5,
                               atol=2e-5)
    handle = model.compile(batch=40)
    for type in (np.uint8, np.int32, np.int64):
        np.testing.assert_allclose(handle(codes.astype(type)), want, rtol=2e-5, atol=2e-5)
    for wrong in (9, -1, 256):
        with pytest.raises(ValueError, match=f"x: got the code {wrong}, expected codes below 9"):
            handle(np.full((1, 6), wrong))
    with pytest.raises(TypeError, match="float64, expected uint8"):
        handle(codes.astype(np.float64))
    y = codes[:, 2] // 3
    assert model.train_step(codes, y)["loss"] > 0
    history = model.fit(codes, y, epochs=60, batch_size=20)
    assert history["loss"][-1] < history["loss"][0] / 2 and (model.predict(codes) == y).mean() > 0.8
    with pytest.raises(ValueError, match="the embedding knows 9 tokens"):
        model.predict(codes + 1)
    with pytest.raises(ValueError, match=r"x: got shape \(40, 5\).*takes \[6\]"):
        model.predict(codes[:, :5])


def test_more_codes_than_bytes_have():
    codes = np.random.default_rng(1).integers(0, 1000, (40, 6))
    module = module_of(lambda self, x: self.head(self.rnn(self.embed(x))[0][:, -1]), embed=T.Embedding(1000, 4),
                       rnn=T.GRU(4, 5, batch_first=True), head=T.Linear(5, 3))
    want = module(torch.from_numpy(codes)).softmax(1).detach().numpy()
    model = rl.from_torch(module, input_shape=(6,), optimizer="adam", device="cpu", tune=False)
    for batch in (1, 40):
        handle = model.compile(batch=batch)
        for same in (codes, codes.astype(np.int32), codes[:, ::-1].copy()[:, ::-1]):
            np.testing.assert_allclose(handle(same[:batch]), want[:batch], rtol=2e-5, atol=2e-5)
        for wrong, type in ((1000, np.int64), (-1, np.int64), (2**33, np.int64), (1000, np.int32)):
            with pytest.raises(ValueError, match=str(wrong)):
                handle(np.full((1, 6), wrong, dtype=type))
    plan = model.plan(codes, np.arange(40) % 3)
    assert "embedding" in plan.text.lower() and plan.kernels


@pytest.mark.parametrize("end", [T.Softmax(dim=1), T.LogSoftmax(dim=-1)])
def test_the_softmax_of_a_classifier_is_part_of_its_loss(end):
    net = T.Sequential(T.Linear(4, 5), T.ReLU(), T.Linear(5, 3), end)
    x = torch.randn(6, 4)
    want = net(x).detach()
    want = want.exp().numpy() if isinstance(end, T.LogSoftmax) else want.numpy()
    wrapped = module_of(lambda self, x: F.log_softmax(self.net(x), dim=1), net=net[:3])
    for module in (net, wrapped):
        model = rl.from_torch(module, device="cpu", tune=False)
        np.testing.assert_allclose(model.predict_proba(x), want, rtol=2e-5, atol=1e-6)
    with pytest.raises(rl.UsageError, match="at the end of a classifier"):
        rl.from_torch(net, loss="mse", device="cpu")
    with pytest.raises(rl.UsageError, match="module 1 is Softmax"):
        rl.from_torch(T.Sequential(T.Linear(4, 5), T.Softmax(dim=1), T.Linear(5, 2)), device="cpu")


@pytest.mark.parametrize("module, shape, message", [
    (module_of(last_timestep, rnn=T.LSTM(4, 5), head=T.Linear(5, 3)), (6, 4), "got batch_first=False, expected True"),
    (module_of(last_timestep, rnn=T.LSTM(4, 5, proj_size=2, batch_first=True), head=T.Linear(2, 3)), (6, 4), "proj_size=2"),
    (module_of(lambda self, x: self.head(self.rnn(x)[1][1][-1]), rnn=T.LSTM(4, 5, batch_first=True), head=T.Linear(5, 3)),
     (6, 4), "got the state of a cell, expected the hidden state"),
    (module_of(lambda self, x: self.head(self.rnn(x)[1][0][-2]), rnn=T.LSTM(4, 5, 2, batch_first=True), head=T.Linear(5, 3)),
     (6, 4), "got the state of a layer before the last, expected"),
    (module_of(squeezed_hidden, rnn=T.GRU(4, 5, batch_first=True, bidirectional=True), head=T.Linear(5, 3)), (6, 4),
     "got a call that has no layer here"),
    (module_of(lambda self, x: self.head(F.max_pool2d(x, x.size(2)).flatten(1)), head=T.Linear(1, 2)), None,
     "got an extent that is not known, expected numbers, or input_shape"),
    (module_of(lambda self, x: self.head(x.view(-1, 4)), head=T.Linear(4, 2)), (6, 4), "got extents that are not"),
    (module_of(lambda self, x: self.head(x.unsqueeze(0)), head=T.Linear(4, 2)), (4,), "got a shape that is not known"),
    (module_of(lambda self, x: self.head(x).max(1)[0], head=T.Linear(4, 2)), (4,), "got a maximum of something else"),
    (module_of(lambda self, x: self.rnn(x, torch.ones(1, len(x), 3))[0], rnn=T.GRU(4, 3, batch_first=True)), (6, 4), "trace|got"),
    (T.Sequential(T.Conv2d(1, 2, 3), T.AdaptiveAvgPool2d(3), T.Flatten()), (1, 6, 6), "got output_size=3, expected 1"),
    (module_of(lambda self, x: self.head(x[:, ::2]), head=T.Linear(2, 3)), (4,), "got the index"),
    (module_of(lambda self, x: self.head(x[:, -2:]), head=T.Linear(2, 3)), (4,), "got the index"),
    (module_of(lambda self, x: self.head(x.chunk(2)[0]), head=T.Linear(4, 3)), (4,), "parts of an unknown shape"),
    (T.Sequential(T.Linear(4, 4), T.PReLU()), (4,), "module 1 is PReLU; .*from_onnx reads more modules from the file of torch"),
    (T.Sequential(T.utils.weight_norm(T.Linear(4, 4))), (4,), "expected a plain one: torch.nn.utils.remove_weight_norm"),
    (module_of(lambda self, x: self.head(x).view(3, -1), head=T.Linear(4, 6)), (4,), "got extents that are not"),
    (module_of(lambda self, x: self.head(x).mean(0), head=T.Linear(4, 6)), (4,), "got a mean over 0"),
    (module_of(lambda self, x: self.head(x) - x, head=T.Linear(4, 4)), (4,), "got a call that has no layer here"),
    (module_of(lambda self, x: self.head(x) if x.sum() > 0 else x, head=T.Linear(4, 4)), (4,), "cannot trace Made"),
    (module_of(lambda self, x: self.head(x, x), head=T.Linear(4, 4)), (4,), "got 2 arguments, expected one"),
    (module_of(lambda self, x: {"y": self.head(x)}, head=T.Linear(4, 4)), (4,), "expected one tensor"),
    (T.Sequential(T.Linear(4, 4), T.TransformerEncoderLayer(4, 2)), (4,), "module 1 is TransformerEncoderLayer"),
    (T.Sequential(T.Conv2d(1, 2, 4, padding="same")), (1, 6, 6), "got .same. with a window of even width"),
    (T.Sequential(T.Linear(4, 3)), (6, 5), r"layer 0 \(linear\): got 4 inputs, expected 5"),
])
def test_refusals_name_the_place(module, shape, message):
    with pytest.raises(ValueError, match=message):
        rl.from_torch(module, input_shape=shape, device="cpu", tune=False)


def test_a_padded_embedding_says_what_training_changes():
    module = T.Sequential(T.Embedding(9, 4, padding_idx=0), T.Flatten(), T.Linear(24, 2))
    with pytest.warns(UserWarning, match="the vector of padding_idx is trained here as any other"):
        model = rl.from_torch(module, input_shape=(6,), device="cpu", tune=False)
    codes = torch.randint(0, 9, (5, 6))
    np.testing.assert_allclose(model.predict_proba(codes), module(codes).softmax(1).detach().numpy(), rtol=2e-5, atol=1e-6)


def test_frozen_modules_stay_frozen(data):
    module = T.Sequential(T.Linear(6, 8), T.ReLU(), T.Linear(8, 3))
    module[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = rl.from_torch(module, device="cpu", tune=False)
    model.fit(*data, epochs=1)
    after = model.state_dict()
    np.testing.assert_array_equal(after["0.weight"], before["0.weight"])
    assert (after["2.weight"] != before["2.weight"].numpy()).all()
    module[2].bias.requires_grad_(False)
    with pytest.raises(rl.UsageError, match="with and without requires_grad"):
        rl.from_torch(module, device="cpu", tune=False)


def test_the_sigmoid_of_labels_is_part_of_their_loss():
    net = T.Sequential(T.Linear(4, 5), T.ReLU(), T.Linear(5, 2), T.Sigmoid())
    x = torch.randn(6, 4)
    for module in (net, module_of(lambda self, x: torch.sigmoid(self.net(x)), net=net[:3])):
        model = rl.from_torch(module, loss="binary-cross-entropy", device="cpu", tune=False)
        np.testing.assert_allclose(model.predict_proba(x), net(x).detach().numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="needs PyTorch 2")
def test_compiled_modules():
    module = T.Sequential(T.Linear(4, 5), T.ReLU(), T.Linear(5, 3))
    x = torch.randn(6, 4)
    for net in (module, module_of(lambda self, x: self.net(x), net=module)):
        model = rl.from_torch(torch.compile(net, backend="eager"), loss="mse", device="cpu", tune=False)
        np.testing.assert_allclose(model.outputs(x), module(x).detach().numpy(), rtol=2e-5, atol=1e-6)


def test_a_squeezed_value_is_a_number():
    module = module_of(lambda self, x: self.b(torch.relu(self.a(x))).squeeze(-1), a=T.Linear(4, 5), b=T.Linear(5, 1))
    x = torch.randn(6, 4)
    model = rl.from_torch(module, loss="mse", device="cpu", tune=False)
    np.testing.assert_allclose(model.predict(x), module(x).detach().numpy(), rtol=2e-5, atol=1e-6)


def test_tracing_changes_no_module():
    """Shapes are found by running the module, whose statistics and modes stay."""
    module = module_of(lambda self, x: self.head(self.norm(self.conv(x)).squeeze(-1).flatten(1)), conv=T.Conv1d(2, 3, 4),
                       norm=T.BatchNorm1d(3), head=T.Linear(3, 2)).train()
    module.norm.eval()
    before, zeros = {name: value.clone() for name, value in module.state_dict().items()}, torch.zeros
    rl.from_torch(module, input_shape=(2, 4), device="cpu", tune=False)
    assert torch.zeros is zeros and module.training and module.conv.training and not module.norm.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_layers_have_the_arguments_of_pytorch():
    """A network of PyTorch's, and the same text with our layers, have the same weights."""
    def network(m):
        return m.Sequential(m.Conv2d(1, 4, 3, 1, 1), m.BatchNorm2d(4), m.GroupNorm(2, 4), m.Identity(),
                            m.AdaptiveAvgPool2d(1), m.Flatten(), m.Linear(4, 6), m.LayerNorm(6), m.BatchNorm1d(6))

    def sequence(m):
        return m.Sequential(m.LSTM(4, 5, 2, bidirectional=True), m.GRU(10, 3), m.RNN(3, 2, 1, "relu"))

    for make, shape in ((network, (1, 6, 6)), (sequence, (5, 4))):
        ours = rl.Model(make(nn), input_shape=shape, device="cpu", tune=False).state_dict()
        assert {name: value.shape for name, value in ours.items() if value.shape} == {
            name: tuple(value.shape) for name, value in make(T).state_dict().items() if value.shape}
    for padding, kernel, dilation in (("same", 3, 1), ("same", (3, 5), (2, 1)), ("valid", 4, 1), (1, 3, 1)):
        same = [m.Sequential(m.Conv2d(1, 2, kernel, 1, padding, dilation)) for m in (nn, T)]
        assert rl.from_torch(same[1], input_shape=(1, 9, 9), device="cpu").config == rl.Model(
            same[0], input_shape=(1, 9, 9), device="cpu").config
    with pytest.raises(ValueError, match="Conv1d: padding: got 'some'"):
        nn.Conv1d(1, 2, 3, padding="some")
    for wrong, message in (((nn.BatchNorm2d(5),), r"layer 1 \(batchnorm\): got 5 inputs, expected 4"),
                           ((nn.GroupNorm(2, 8),), r"layer 1 \(groupnorm\): got 8 inputs, expected 4"),
                           ((nn.Flatten(), nn.LayerNorm(5)), r"layer 2 \(layernorm\)")):
        with pytest.raises(ValueError, match=message):
            rl.Model(nn.Sequential(nn.Conv2d(1, 4, 3), *wrong), input_shape=(1, 6, 6), device="cpu")
    with pytest.raises(ValueError, match=r"layer 0 \(lstm\): got 3 inputs, expected 4"):
        rl.Model(nn.Sequential(nn.LSTM(3, 5)), input_shape=(6, 4), device="cpu")
    with pytest.raises(ValueError, match="batch_first: got False"):
        nn.LSTM(3, 5, batch_first=False)
