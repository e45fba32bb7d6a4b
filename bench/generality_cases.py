"""Typical networks: the cases of bench/generality.py.

A case is the layers, batch and optimizer of a config, over images of bytes, sequences of such rows, text, or a table of
floats whose last column is learnt by squared errors."""


def mlp(*widths, act="relu", dropout=0.0, norm=None):
    """Layers of a perceptron: hidden widths, then the outputs."""
    layers = []
    for width in widths[:-1]:
        layers.append({"type": "linear", "out": width})
        if norm:
            layers.append({"type": norm})
        layers.append({"type": act})
        if dropout:
            layers.append({"type": "dropout", "p": dropout})
    return layers + [{"type": "linear", "out": widths[-1]}]


def conv(out, kernel, pool=2, norm=None, act="relu", **more):
    """A convolution with the layers that usually follow it."""
    layers = [{"type": "conv2d", "out": out, "kernel": kernel, "padding": kernel // 2, **more}]
    if norm:
        layers.append({"type": norm})
    layers.append({"type": act})
    return layers + ([{"type": "maxpool2d", "kernel": pool}] if pool else [])


SGD = {"type": "sgd", "lr": 0.01}
MOMENTUM = {"type": "sgd", "lr": 0.01, "momentum": 0.9}
NESTEROV = {"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True}
ADAM = {"type": "adam", "lr": 1e-3}
ADAMW = {"type": "adamw", "lr": 1e-3, "weight_decay": 0.01}


def case(name, layers, batch, optimizer, shape=(28, 28), clip=0.0, text=None, table=0):
    return {"name": name, "layers": layers, "batch": batch, "optimizer": optimizer,
            "shape": [table] if table else list(shape), "clip": clip, "text": text, "table": table}


# The first ten are the shipped configs and similar ones; the others vary one or several things.
CASES = [
    case("fashion-mlp: 784-256-128-10, dropout, Adam", [
        {"type": "linear", "out": 256}, {"type": "relu"}, {"type": "dropout", "p": 0.1},
        *mlp(128, 10)], 128, ADAM),
    case("mnist-mlp: 784-256-128-10, Adam", mlp(256, 128, 10), 128, ADAM),
    case("784-2000-10, Adam", mlp(2000, 10), 1000, ADAM),
    case("784-128x6-10, Adam", mlp(*[128] * 6, 10), 32, ADAM),
    case("784-300-100-10, tanh, momentum", mlp(300, 100, 10, act="tanh"), 64, MOMENTUM),
    case("784-128-128-128-10, SGD", mlp(128, 128, 128, 10), 32, SGD),
    case("784-64-10, SGD", mlp(64, 10), 16, SGD),
    case("mnist-cnn", [
        *conv(16, 3, norm="batchnorm", bias=False), *conv(32, 3, norm="batchnorm", bias=False),
        *mlp(128, 10)], 128, ADAM, shape=(1, 28, 28)),
    case("mnist-rows-gru", [{"type": "gru", "hidden": 128}, {"type": "select", "at": -1},
                            {"type": "linear", "out": 10}], 64, ADAM, clip=1.0),
    case("shakespeare-lstm", [
        {"type": "embedding", "vocabulary": 65, "out": 64},
        {"type": "lstm", "hidden": 256, "layers": 2, "dropout": 0.2}, {"type": "dropout", "p": 0.2},
        {"type": "linear", "out": 65, "per_step": True}], 32, ADAM, clip=5.0, text=64),
    case("784-16-10, Adam", mlp(16, 10), 1, ADAM),
    case("784-777-333-10, Adam", mlp(777, 333, 10), 100, ADAM),
    case("784-512-10, sigmoid, SGD", mlp(512, 10, act="sigmoid"), 3000, SGD),
    case("784-1024-1024-10, AdamW, dropout", mlp(1024, 1024, 10, dropout=0.2), 128, ADAMW),
    case("784-1024x3-10, SGD", mlp(1024, 1024, 1024, 10), 32, SGD),
    case("784-4096-10, momentum", mlp(4096, 10), 64, MOMENTUM),
    case("784-32x10-10, tanh, Nesterov", mlp(*[32] * 10, 10, act="tanh"), 32, NESTEROV),
    case("784-256-256-10, layernorm, gelu, AdamW", mlp(256, 256, 10, act="gelu", norm="layernorm"), 64, ADAMW),
    case("784-256-256-10, batchnorm, Adam", mlp(256, 256, 10, norm="batchnorm"), 128, ADAM),
    case("784-128-64-10, Adam, clip", mlp(128, 64, 10), 64, ADAM, clip=1.0),
    case("784-10, Adam", mlp(10), 256, ADAM),
    case("784-100-10, momentum, batch 8", mlp(100, 10), 8, MOMENTUM),
    case("784-256-128-10, Adam, batch 4096", mlp(256, 128, 10), 4096, ADAM),
    case("784-509-251-127-10, ReLU, AdamW", mlp(509, 251, 127, 10), 97, ADAMW),
    case("784-2048-2048-10, Adam", mlp(2048, 2048, 10), 128, ADAM),
    case("fashion-lenet", [*conv(32, 5), *conv(64, 5), *mlp(256, 10)], 128, ADAM, shape=(1, 28, 28)),
    case("conv 8-16, SGD momentum, batch 32", [*conv(8, 3), *conv(16, 3), *mlp(10)], 32, MOMENTUM,
         shape=(1, 28, 28)),
    case("conv 12-12 stride 2, batchnorm, batch 29", [
        *conv(12, 3, pool=0, norm="batchnorm"), *conv(12, 3, pool=0, norm="batchnorm", stride=2),
        *mlp(10)], 29, ADAM, shape=(1, 28, 28)),
    case("LSTM 64 over rows, Adam", [{"type": "lstm", "hidden": 64}, {"type": "select", "at": -1},
                                     {"type": "linear", "out": 10}], 32, ADAM),
    case("RNN 256 over rows, momentum", [{"type": "rnn", "hidden": 256}, {"type": "select", "at": -1},
                                         {"type": "linear", "out": 10}], 128, MOMENTUM),
    *[case(f"table 28-256-256-1, MSE, Adam, batch {batch}", mlp(256, 256, 1), batch, ADAM, table=28)
      for batch in (256, 1024, 8192)],
]
