"""Random networks, as configs for the tool and as PyTorch modules; and PyTorch's learning rates."""

import math
import random
import warnings

import tool

torch, np = tool.import_torch()
nn = torch.nn
warnings.filterwarnings("ignore", message="The epoch parameter in `scheduler.step")  # by SequentialLR itself

WIDTHS = (1, 2, 3, 5, 6, 7, 11, 12, 13, 17, 19, 23, 29, 33, 37)  # few are multiples of a vector's length
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "softplus", "hardswish")
PARAMETERS = {"leaky_relu": ("slope", (0.01, 0.2)), "elu": ("alpha", (1.0, 0.7))}
STEPS = 20


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


OPTIMIZERS = (
    {"type": "sgd", "lr": 0.05},
    {"type": "sgd", "lr": 0.03, "momentum": 0.9},
    {"type": "sgd", "lr": 0.02, "momentum": 0.8, "nesterov": True},
    {"type": "sgd", "lr": 0.05, "weight_decay": 0.01},
    {"type": "sgd", "lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.003},
    {"type": "adam", "lr": 0.002},
    {"type": "adam", "lr": 0.003, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.01},
    {"type": "adamw", "lr": 0.002},
    {"type": "adamw", "lr": 0.003, "beta1": 0.7, "weight_decay": 0.1},
)
SCHEDULES = (
    {"type": "constant"},
    {"type": "constant", "warmup_steps": 6},
    {"type": "step", "every_steps": 4, "factor": 0.5},
    {"type": "step", "every_epochs": 1, "factor": 0.7, "warmup_steps": 5},
    {"type": "cosine"},
    {"type": "cosine", "min_factor": 0.1, "warmup_steps": 4},
    {"type": "cosine", "steps": 15, "min_factor": 0.3, "warmup_steps": 1},
    {"type": "cosine", "epochs": 7, "warmup_steps": 3},
)


def rates(schedule, base, steps_per_epoch, total, count):
    """The rates of `count` steps by PyTorch's schedulers; `total` steps are those of the run."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    scheduler = torch.optim.lr_scheduler
    warmup = schedule.get("warmup_steps", 0)
    end = math.inf
    if schedule["type"] == "constant":
        proper = scheduler.ConstantLR(optimizer, factor=1.0)
    elif schedule["type"] == "step":
        every = schedule.get("every_steps") or schedule.get("every_epochs", 1) * steps_per_epoch
        proper = scheduler.StepLR(optimizer, every, gamma=schedule.get("factor", 0.1))
    else:
        length = schedule.get("steps") or schedule.get("epochs", 0) * steps_per_epoch or total
        end = max(1, length - warmup)
        proper = scheduler.CosineAnnealingLR(optimizer, end, eta_min=schedule.get("min_factor", 0.0) * base)
    if warmup > 1:
        rise = scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
        proper = scheduler.SequentialLR(optimizer, [rise, proper], [warmup])
    elif warmup == 1:  # one step at the full rate, then the schedule
        still = scheduler.ConstantLR(optimizer, factor=1.0)
        proper = scheduler.SequentialLR(optimizer, [still, proper], [warmup])
    found = []
    for step in range(count):
        # PyTorch's cosine rises again after its end; ours stays where it is.
        found.append(schedule.get("min_factor", 0.0) * base if step - warmup >= end else
                     optimizer.param_groups[0]["lr"])
        optimizer.step()
        proper.step()
    return found


SAME = {"kernel": [3, 3], "stride": 1, "padding": 1, "dilation": 1, "groups": 1}
POINT = {"kernel": 1, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


def written(layer):
    """A layer without what only this file wants to know of it: the channels that a block gives."""
    return {key: value for key, value in layer.items() if key != "out" or "layers" not in layer}


class Net:
    """Layers as dictionaries of the config's keys, with the shape that each of them makes of a sample."""

    def __init__(self, number, draw, family):
        self.number, self.draw, self.family = number, draw, family
        self.classes = draw.choice((2, 3, 5, 7, 10, 11))
        self.batch = draw.choice((5, 6, 7, 11, 13, 16, 19, 29))
        self.samples = draw.randrange(1, 5) * self.batch + draw.randrange(2, self.batch)
        self.tests = draw.randrange(3, 40)
        self.loss = draw.choice(("cross-entropy", "cross-entropy", "mse"))
        self.clip = draw.choice((0, 0, 0.3, 2.0))
        self.scale = draw.choice(("unit", "unit", "standard"))
        self.layers, self.codes = [], 0
        getattr(self, family)()
        self.add({"type": "linear", "out": self.classes})
        self.steps_per_epoch = -(-self.samples // self.batch)

    def add(self, layer):
        if self.draw.random() < 0.15 and layer.get("type") in ("linear", "conv1d", "conv2d"):
            layer["bias"] = False
        self.layers.append(layer)
        return layer

    def width(self):
        return self.draw.choice(WIDTHS)

    def activation(self):
        layer = self.add({"type": self.draw.choice(ACTIVATIONS)})
        if layer["type"] in PARAMETERS and self.draw.random() < 0.7:
            key, values = PARAMETERS[layer["type"]]
            layer[key] = self.draw.choice(values)

    def maybe_norm(self, size=()):
        """`size` is that of a channel. A normalisation of one number gives zero but for rounding, and whether that is
        above a kink of the activation after it is chance: it takes all dimensions, or fewer groups."""
        norm = self.draw.choice((None, "batchnorm", "layernorm", "groupnorm", "rmsnorm"))
        channels, dims = self.layers[-1].get("out"), len(size) + 1

        def drawn():
            last = self.draw.randrange(0, dims + 1)
            return 0 if 0 < last < dims and np.prod(size[-last:]) == 1 else last
        if norm == "batchnorm":
            self.add({"type": norm, "momentum": self.draw.choice((0.1, 0.3)), "affine": self.draw.random() < 0.8})
        elif norm == "layernorm":
            self.add({"type": norm, "dims": drawn()})
        elif norm == "groupnorm":
            groups = [g for g in range(1, channels + 1) if channels % g == 0 and (np.prod(size) > 1 or g < channels)]
            self.add({"type": norm, "groups": self.draw.choice(groups or [1]), "affine": self.draw.random() < 0.8})
        elif norm == "rmsnorm":
            self.add({"type": norm, "dims": drawn(), "affine": self.draw.random() < 0.8})

    def mlp(self):
        self.sample = self.draw.choice(((7,), (5, 6), (33,), (3, 4, 5)))
        for _ in range(self.draw.randrange(0, 4)):
            self.add({"type": "linear", "out": self.width()})
            if self.draw.random() < 0.4:
                self.maybe_norm()
            self.activation()

    def window(self, size, axes, pool=False):
        """Kernel, stride, padding and dilation that leave something of an image, and what they leave."""
        keys = {"kernel": [], "stride": [], "padding": [], "dilation": []}
        left = []
        for extent in size:
            kernel = self.draw.randrange(2 if pool else 1, min(4, extent) + 1) if extent > 1 else 1
            dilation = 1 if pool or (kernel - 1) * 2 + 1 > extent else self.draw.choice((1, 1, 2))
            stride = self.draw.choice((1, 2, 3) if extent > 4 else (1,))
            padding = self.draw.randrange(0, kernel // 2 + 1)
            for key, value in zip(keys, (kernel, stride, padding, dilation)):
                keys[key].append(value)
            left.append((extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
        if pool:
            del keys["dilation"]
        return {key: value if axes == 2 else value[0] for key, value in keys.items()}, left

    def convolutions(self, axes, channels, size):
        name = f"{axes}d"
        for _ in range(self.draw.randrange(1, 4)):
            groups = self.draw.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
            out = groups * self.draw.choice((1, 2, 3, 5, 6, 12) if groups < 5 else (1, 2))
            window, size = self.window(size, axes)
            self.add({"type": "conv" + name, "out": out, "groups": groups, **window})
            channels = out
            if self.draw.random() < 0.6:
                self.maybe_norm(size)
            if self.draw.random() < 0.9:
                self.activation()
            if self.draw.random() < 0.4 and min(size) > 1:
                window, size = self.window(size, axes, pool=True)
                kind = self.draw.choice(("max", "avg"))
                if kind == "avg":
                    window["count_include_pad"] = self.draw.random() < 0.5
                self.add({"type": f"{kind}pool{name}", **window})
        if self.draw.random() < 0.25:
            self.add({"type": "global_avgpool"})
        elif self.draw.random() < 0.3:
            self.add({"type": "flatten"})
        if self.draw.random() < 0.4:
            self.add({"type": "linear", "out": self.width()})
            self.activation()

    def conv2d(self):
        channels, *size = self.sample = self.draw.choice(((1, 9, 8), (2, 7, 11), (3, 10, 10), (5, 6, 7)))
        if channels == 1:
            self.sample = tuple(size)
        self.convolutions(2, channels, size)

    def conv1d(self):
        self.sample = self.draw.choice(((1, 23), (3, 19), (6, 16), (12, 11)))
        self.convolutions(1, self.sample[0], self.sample[1:])

    def recurrent(self):
        self.sample = self.draw.choice(((4, 5), (7, 3), (9, 12)))
        self.cell()

    def cell(self):
        cell = {"type": self.draw.choice(("rnn", "gru", "lstm")), "hidden": self.width(),
                "layers": self.draw.choice((1, 1, 2, 3)), "bidirectional": self.draw.random() < 0.4}
        if cell["type"] == "rnn":
            cell["activation"] = self.draw.choice(("tanh", "relu"))
        if self.draw.random() < 0.2:
            cell["bias"] = False
        self.add(cell)
        if self.draw.random() < 0.3:
            self.add({"type": "layernorm", "dims": 1})
        if self.draw.random() < 0.3:
            self.add({"type": "linear", "out": self.width(), "per_step": True})
            self.activation()
        if self.draw.random() < 0.6:
            self.add({"type": "select", "at": self.draw.choice((-1, 0, 2))})

    def embedded(self):
        """Bytes as codes."""
        self.sample, self.codes, self.scale = (self.draw.choice((5, 8)),), 256, "raw"
        self.add({"type": "embedding", "vocabulary": 256, "out": self.width()})
        self.cell()

    def one_hot(self):
        self.sample, self.codes, self.scale = (self.draw.choice((9, 14)),), 13, "raw"
        self.add({"type": "onehot_conv1d", "symbols": 12, "out": self.width(), "kernel": self.draw.choice((1, 3, 4))})
        self.activation()
        if self.draw.random() < 0.5:
            self.add({"type": "maxpool1d", "kernel": 2})

    def residual(self):
        """Convolutions with skips, some of which change the number of channels or the size."""
        channels, *size = self.sample = self.draw.choice(((1, 9, 8), (2, 7, 11), (3, 6, 6)))
        self.add({"type": "conv2d", "out": self.draw.choice((3, 5, 8)), **SAME})
        for _ in range(self.draw.randrange(1, 3)):
            channels = self.layers[-1].get("out", channels)
            if self.draw.random() < 0.5:
                self.maybe_norm(self.sample[-2:])
            self.activation()
            keep = self.draw.random() < 0.5
            out, stride = (channels, 1) if keep else (self.draw.choice((2, 4, 6)), self.draw.choice((1, 2)))
            body = [{"type": "conv2d", "out": out, **SAME, "stride": stride},
                    {"type": "batchnorm", "momentum": 0.1, "affine": True},
                    {"type": self.draw.choice(("relu", "tanh", "silu"))}, {"type": "conv2d", "out": out, **SAME}]
            block = {"type": "residual", "layers": body, "out": out}
            if keep and self.draw.random() < 0.5:
                block["repeat"] = 2
            elif not keep:
                block["shortcut"] = [{"type": "conv2d", "out": out, **POINT, "stride": stride}]
            self.add(block)
        self.activation()
        if self.draw.random() < 0.5:
            self.add({"type": "global_avgpool"})

    def branches(self):
        """Convolutions side by side, whose results are joined, and a gate for each channel."""
        self.sample = self.draw.choice(((2, 8, 6), (3, 4, 10)))
        out = self.draw.choice((3, 4, 8))
        self.add({"type": "conv2d", "out": out, **SAME})
        self.activation()
        self.layers[-1]["name"] = "trunk"
        self.add({"type": "conv2d", "out": out, **SAME, "inputs": ["trunk"], "name": "a"})
        self.add({"type": "maxpool2d", "kernel": 2, "inputs": ["trunk"]})
        self.add({"type": "conv2d", "out": out, **POINT})
        self.add({"type": "upsample", "factor": 2, "mode": self.draw.choice(("nearest", "bilinear")), "name": "b"})
        join = self.draw.choice(("add", "mean", "multiply", "concat"))
        inputs = self.draw.choice((["a", "b"], ["b", "a", "trunk"], ["a", "a", "b"]))
        self.add({"type": join, "inputs": inputs, "name": "joined"})
        out *= len(inputs) if join == "concat" else 1
        self.add({"type": "global_avgpool"})
        self.add({"type": "linear", "out": out})
        self.add({"type": "sigmoid", "name": "gate"})
        self.add({"type": self.draw.choice(("multiply", "add")), "inputs": ["joined", "gate"]})
        if self.draw.random() < 0.5:
            self.add({"type": "slice", "axis": self.draw.choice((0, 1, -1)), "start": 1})
        if self.draw.random() < 0.5:
            self.add({"type": "pad", "padding": self.draw.choice(([1], [0, 2], [1, 0, 2, 1])), "value": 0.5})
        self.add({"type": "transpose", "axes": self.draw.choice(([1, 0, 2], [2, 0, 1]))})
        self.activation()

    def skips(self):
        """Dilated causal convolutions, gated, with a sum of skips, as in WaveNet."""
        self.sample = self.draw.choice(((1, 23), (3, 16)))
        wide = self.draw.choice((3, 5, 8))
        self.add({"type": "conv1d", "out": wide, **POINT, "name": "h0"})
        depth = self.draw.randrange(2, 4)
        for i in range(depth):
            window = {"kernel": 2, "stride": 1, "padding": 0, "dilation": 2 ** i, "groups": 1}
            self.add({"type": "pad", "padding": [2 ** i, 0], "value": 0.0, "inputs": [f"h{i}"], "name": f"p{i}"})
            self.add({"type": "conv1d", "out": wide, **window})
            self.add({"type": "tanh", "name": f"f{i}"})
            self.add({"type": "conv1d", "out": wide, **window, "inputs": [f"p{i}"]})
            self.add({"type": "sigmoid", "name": f"g{i}"})
            self.add({"type": "multiply", "inputs": [f"f{i}", f"g{i}"], "name": f"z{i}"})
            self.add({"type": "conv1d", "out": 6, **POINT, "name": f"s{i}"})
            if i + 1 < depth:
                self.add({"type": "conv1d", "out": wide, **POINT, "inputs": [f"z{i}"], "name": f"r{i}"})
                self.add({"type": "add", "inputs": [f"r{i}", f"h{i}"], "name": f"h{i + 1}"})
        self.add({"type": "add", "inputs": [f"s{i}" for i in range(depth)]})
        self.activation()

    def dense(self):
        """Linear layers that also read the input, and a block of them that repeats."""
        self.sample = self.draw.choice(((7,), (12,)))
        self.add({"type": "linear", "out": self.width()})
        self.activation()
        self.layers[-1]["name"] = "h"
        self.add({"type": "concat", "inputs": ["h", "input"]})
        self.add({"repeat": 2, "layers": [
            {"type": "linear", "out": 12}, {"type": "tanh", "name": "t"}, {"type": "reshape", "shape": [3, -1]},
            {"type": "transpose", "axes": [1, 0]}, {"type": "flatten", "name": "u"},
            {"type": "concat", "inputs": ["t", "u", "block_input"]}]})

    def config(self, folder, **run):
        lines = ["[data]", f'name = "{folder}"', f'scale = "{self.scale}"', "[model]", "layers = ["]
        lines += [f"  {toml(written(layer))}," for layer in self.layers]
        lines += ["]", "[train]", f"batch = {self.batch}", f"epochs = {STEPS}", f"max_steps = {STEPS}",
                  f"seed = {self.number}", "shuffle = false", f'loss = "{self.loss}"', f"clip_norm = {self.clip}",
                  f"optimizer = {toml(self.optimizer)}", f"schedule = {toml(self.schedule)}",
                  "log_steps = 1", "eval_every = 1000", "[run]", 'device = "cpu"', "tune = false"]
        return "\n".join(lines + [f"{key} = {toml(value)}" for key, value in run.items()]) + "\n"

    def __str__(self):
        return (f"net {self.number} ({self.family}): {self.samples} samples of {self.sample} in batches of {self.batch}, "
                f"{self.loss}, clip {self.clip}, {toml(self.optimizer)}, {toml(self.schedule)}\n    "
                + "\n    ".join(map(toml, self.layers)))


FAMILIES = ("mlp", "conv2d", "conv1d", "recurrent", "mlp", "conv2d", "conv2d", "conv1d", "recurrent", "embedded",
            "one_hot", "residual", "branches", "skips", "dense", "conv2d", "residual")


def nets(seed, count):
    """Every family, optimizer and schedule in turn, in combinations that the seed decides."""
    draw = random.Random(seed)
    optimizers, schedules = list(OPTIMIZERS), list(SCHEDULES)
    draw.shuffle(optimizers)
    draw.shuffle(schedules)
    for number in range(count):
        net = Net(number, random.Random(f"{seed} {number}"), FAMILIES[number % len(FAMILIES)])
        net.optimizer = optimizers[number % len(optimizers)]
        net.schedule = schedules[number % len(schedules)]
        yield net


class RmsNorm(nn.Module):
    """Over the last dimensions, by hand: PyTorch has it from 2.4 on."""

    def __init__(self, shape, affine):
        super().__init__()
        self.dims = tuple(range(-len(shape), 0))
        self.weight = nn.Parameter(torch.ones(shape)) if affine else None

    def forward(self, x):
        y = x * torch.rsqrt((x * x).mean(self.dims, keepdim=True) + 1e-5)
        return y if self.weight is None else y * self.weight


class Module(nn.Module):
    """A layer of a config in PyTorch; the parameters have the names of the config's weights."""

    def __init__(self, layer, sample, codes):
        super().__init__()
        self.layer, self.codes = dict(layer), codes
        kind, bias = layer["type"], layer.get("bias", True)
        wide = int(np.prod(sample))
        if kind == "linear":
            self.inner = nn.Linear(sample[-1] if layer.get("per_step") else wide, layer["out"], bias)
        elif kind in ("conv1d", "conv2d"):
            axes = int(kind[-2])
            channels = sample[0] if len(sample) > axes else 1
            self.inner = (nn.Conv1d if axes == 1 else nn.Conv2d)(
                channels, layer["out"], layer["kernel"], layer["stride"], layer["padding"], layer["dilation"],
                layer["groups"], bias)
        elif kind == "onehot_conv1d":
            self.inner = nn.Conv1d(layer["symbols"], layer["out"], layer["kernel"], bias=bias)
        elif kind[:7] in ("maxpool", "avgpool"):
            keys = {key: layer[key] for key in ("stride", "padding", "count_include_pad") if key in layer}
            self.inner = getattr(nn, {"m": "Max", "a": "Avg"}[kind[0]] + f"Pool{kind[-2:]}")(layer["kernel"], **keys)
        elif kind == "batchnorm":
            self.inner = (nn.BatchNorm2d if len(sample) == 3 else nn.BatchNorm1d)(
                sample[0], momentum=layer["momentum"], affine=layer["affine"])
        elif kind == "layernorm":
            self.inner = nn.LayerNorm(sample[-layer["dims"]:] if layer["dims"] else sample)
        elif kind == "groupnorm":
            self.inner = nn.GroupNorm(layer["groups"], sample[0], affine=layer["affine"])
        elif kind == "rmsnorm":
            self.inner = RmsNorm(sample[-layer["dims"]:] if layer["dims"] else sample, layer["affine"])
        elif kind == "embedding":
            self.inner = nn.Embedding(layer["vocabulary"], layer["out"])
        elif kind in ("rnn", "gru", "lstm"):
            keys = {"nonlinearity": layer["activation"]} if kind == "rnn" else {}
            self.inner = getattr(nn, kind.upper())(sample[1], layer["hidden"], layer["layers"], bias, batch_first=True,
                                                   bidirectional=layer["bidirectional"], **keys)
        else:
            self.inner = nn.Identity()

    def forward(self, x):
        kind = self.layer["type"]
        if kind in ("relu", "tanh", "sigmoid"):
            return getattr(torch, kind)(x)
        if kind in ACTIVATIONS:
            key, _ = PARAMETERS.get(kind, ("", ()))
            numbers = [self.layer[key]] if key in self.layer else []
            return getattr(nn.functional, kind)(x, *numbers)
        if kind == "linear":
            return self.inner(x if self.layer.get("per_step") else x.flatten(1))
        if kind in ("conv1d", "conv2d"):
            return self.inner(x.unsqueeze(1) if x.dim() == int(kind[-2]) + 1 else x)
        if kind == "embedding":
            return self.inner(x.long())
        if kind == "onehot_conv1d":
            hot = nn.functional.one_hot(x.long(), self.codes)[..., :self.layer["symbols"]]
            return self.inner(hot.transpose(1, 2).to(self.inner.weight.dtype))
        if kind == "global_avgpool":
            return x.flatten(2).mean(2)
        if kind == "select":
            return x[:, self.layer["at"]]
        if kind == "flatten":
            return x.flatten(1)
        if kind == "reshape":
            return x.reshape([len(x)] + self.layer["shape"])
        if kind == "transpose":
            return x.permute([0] + [1 + axis for axis in self.layer["axes"]])
        if kind == "slice":
            axis = self.layer["axis"] + (1 if self.layer["axis"] >= 0 else 0)
            return x.narrow(axis, self.layer["start"], x.shape[axis] - self.layer["start"])
        if kind == "pad":
            padding = self.layer["padding"]
            if len(padding) == 1:
                padding = padding * 2 * (x.dim() - 2)
            return nn.functional.pad(x, padding, value=self.layer["value"])
        if kind == "upsample":
            keys = {"align_corners": False} if self.layer["mode"] == "bilinear" else {}
            return nn.functional.interpolate(x, scale_factor=self.layer["factor"], mode=self.layer["mode"], **keys)
        out = self.inner(x)
        return out[0] if isinstance(out, tuple) else out


class Join(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = dict(layer)

    def forward(self, xs):
        kind = self.layer["type"]
        if kind == "concat":
            return torch.cat(xs, 1 + self.layer.get("axis", 0))
        rank = max(x.dim() for x in xs)
        xs = [x.reshape(x.shape + (1,) * (rank - x.dim())) for x in xs]
        total = xs[0]
        for x in xs[1:]:
            total = total * x if kind == "multiply" else total + x
        return total / len(xs) if kind == "mean" else total


class Block(nn.Module):
    """A list of layers. Its modules have the names of the layers' places in the config."""

    def __init__(self, layers, x, names, codes):
        super().__init__()
        self.layers = layers
        names = {**names, "block_input": x}
        for i, layer in enumerate(layers):
            xs = [names[name] for name in layer.get("inputs", ())] or [x]
            self.add_module(str(i), made(layer, xs, names, codes).eval())
            with torch.no_grad():
                x = self.step(i, xs, names)
            names[layer.get("name")] = x

    def step(self, i, xs, names, noise=None):
        module = getattr(self, str(i))
        if isinstance(module, (Block, Repeat)):
            return module(xs[0], names, noise)
        y = module(xs) if isinstance(module, Join) else module(xs[0])
        return noise.through(y) if noise else y

    def forward(self, x, names, noise=None):
        names = {**names, "block_input": x}
        for i, layer in enumerate(self.layers):
            x = self.step(i, [names[name] for name in layer.get("inputs", ())] or [x], names, noise)
            names[layer.get("name")] = x
        return x


class Residual(Block):
    def __init__(self, layer, x, names, codes):
        super().__init__(layer["layers"], x, names, codes)
        if "shortcut" in layer:
            self.shortcut = Block(layer["shortcut"], x, names, codes)

    def forward(self, x, names, noise=None):
        y = super().forward(x, names, noise)
        y = y + (self.shortcut(x, names, noise) if hasattr(self, "shortcut") else x)
        return noise.through(y) if noise else y


class Repeat(nn.Module):
    def __init__(self, layer, x, names, codes):
        super().__init__()
        for i in range(layer["repeat"]):
            once = {key: value for key, value in layer.items() if key != "repeat"}
            self.add_module(str(i), made(once, [x], names, codes).eval())
            with torch.no_grad():
                x = getattr(self, str(i))(x, names)

    def forward(self, x, names, noise=None):
        for block in self.children():
            x = block(x, names, noise)
        return x


def made(layer, xs, names, codes):
    if "repeat" in layer:
        return Repeat(layer, xs[0], names, codes)
    if layer.get("type") == "residual":
        return Residual(layer, xs[0], names, codes)
    if "type" not in layer:
        return Block(layer["layers"], xs[0], names, codes)
    if layer["type"] in ("add", "mean", "multiply", "concat"):
        return Join(layer)
    return Module(layer, tuple(xs[0].shape[1:]), codes)


def in_torch(net):
    """The modules of a net, for samples of its shape; forward(x, {"input": x})."""
    x = torch.zeros((2,) + net.sample)
    return Block(net.layers, x, {"input": x}, net.codes)
