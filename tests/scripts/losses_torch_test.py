"""Every loss, with every optimizer, has PyTorch's curve: 200 steps in fp32 from the same weights on the same batches,
each loss within 1e-5. Targets are classes, or values and labels of a file of one's own."""

import concurrent.futures
import json
import sys

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()
from random_nets import toml

STEPS, SAMPLES, BATCH, CLASSES, FEATURES = 200, 90, 16, 6, 20  # the last batch of an epoch has ten samples
MOST = 1e-5
WORKERS = 4  # a run waits for its files more than it computes

WEIGHTS = [0.5, 2.0, 1.0, 0.25, 3.0, 1.5]
POSITIVE = [2.0, 0.5, 1.0, 3.0, 1.5, 1.0]
QUANTILES = [0.1, 0.5, 0.8]
LOSSES = (
    "cross-entropy",
    {"type": "cross-entropy", "smoothing": 0.1},
    {"type": "cross-entropy", "weights": WEIGHTS},
    {"type": "cross-entropy", "weights": WEIGHTS, "smoothing": 0.2},
    {"type": "cross-entropy", "weights": "balanced"},
    "mse",
    "mae",
    {"type": "huber", "delta": 0.3},
    "binary-cross-entropy",
    {"type": "binary-cross-entropy", "pos_weight": 2.5},
    {"type": "binary-cross-entropy", "pos_weight": POSITIVE},
    {"type": "quantile", "quantiles": QUANTILES},
)
# With an output for each of two values, or more by the loss.
VALUES, OF_VALUES = 2, (
    "mse",
    "mae",
    {"type": "huber", "delta": 0.3},
    {"type": "binary-cross-entropy", "pos_weight": [2.0, 0.5]},
    {"type": "quantile", "quantiles": QUANTILES},
)
OPTIMIZERS = (
    {"type": "sgd", "lr": 0.05},
    {"type": "sgd", "lr": 0.02, "momentum": 0.9},
    {"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True},
    {"type": "adam", "lr": 0.002},
    {"type": "adamw", "lr": 0.002, "weight_decay": 0.05},
)
CONFIG = """
[data]
{data}
[model]
layers = [{{ type = "linear", out = 24 }}, {{ type = "silu" }}, {{ type = "linear", out = {outputs} }}]
[train]
batch = {batch}
epochs = {steps}
max_steps = {steps}
shuffle = false
log_steps = 1
eval_every = 1000
loss = {loss}
optimizer = {optimizer}
[run]
device = "cpu"
tune = false
"""


# Their gradients jump where an output meets its target, and roundings decide on which side, in PyTorch as here. Such a
# curve is compared on those of several sets on which its outputs in fp64 keep furthest away from all targets, and must
# agree on one of them: a wrong gradient differs on each.
JUMPS, SETS, TRIED = ("mae", "quantile"), 8, 3


def kind_of(loss):
    return loss if isinstance(loss, str) else loss["type"]


def values_of(y, target):
    """The target of each output; several outputs may share one."""
    if not target.is_floating_point():
        target = torch.nn.functional.one_hot(target, CLASSES).to(y.dtype)
    return target.repeat_interleave(y.shape[1] // target.shape[1], 1)


def criterion(loss, targets):
    """PyTorch's function of the outputs and the targets of a batch."""
    table = {"type": loss} if isinstance(loss, str) else loss
    kind, labels = table["type"], targets
    f = torch.nn.functional

    def pinball(y, target):
        off = values_of(y, target) - y
        q = torch.tensor([QUANTILES[c % len(QUANTILES)] for c in range(y.shape[1])], dtype=y.dtype)
        return torch.maximum(q * off, (q - 1) * off).mean()

    if kind == "cross-entropy":
        weights = table.get("weights")
        if weights == "balanced":
            counts = np.bincount(labels, minlength=CLASSES)
            weights = (len(labels) / (CLASSES * counts)).tolist()
        weights = torch.tensor(weights) if weights else None
        return lambda y, label: f.cross_entropy(y, label, None if weights is None else weights.to(y.dtype),
                                                label_smoothing=table.get("smoothing", 0.0))
    if kind == "mse":
        return lambda y, label: f.mse_loss(y, values_of(y, label))
    if kind == "mae":
        return lambda y, label: f.l1_loss(y, values_of(y, label))
    if kind == "huber":
        return lambda y, label: f.huber_loss(y, values_of(y, label), delta=table["delta"])
    if kind == "binary-cross-entropy":
        positive = torch.tensor(table["pos_weight"]) if "pos_weight" in table else None
        return lambda y, label: f.binary_cross_entropy_with_logits(y, values_of(y, label), pos_weight=positive)
    return pinball


def optimizer_of(table, parameters):
    table = dict(table)
    kind = table.pop("type")
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](parameters, **table)


def in_torch(start, loss, optimizer, x, targets):
    """The loss of each step, and how near any output came to its target."""
    outputs = len(start["2.bias"])
    net = torch.nn.Sequential(torch.nn.Linear(FEATURES, 24), torch.nn.SiLU(), torch.nn.Linear(24, outputs))
    weights = {name: torch.tensor(value) for name, value in start.items()}
    dtype = weights["2.bias"].dtype
    net.to(dtype).load_state_dict(weights)
    steps = optimizer_of(optimizer, net.parameters())
    compare = criterion(loss, targets)
    x, target = torch.tensor(x).to(dtype), torch.tensor(targets)
    target = target.to(dtype) if target.is_floating_point() else target
    losses, nearest, batches = [], np.inf, -(-SAMPLES // BATCH)
    for step in range(STEPS):
        first = step % batches * BATCH
        y, wanted = net(x[first:first + BATCH]), target[first:first + BATCH]
        value = compare(y, wanted)
        nearest = min(nearest, (values_of(y, wanted) - y).abs().min().item())
        steps.zero_grad()
        value.backward()
        steps.step()
        losses.append(value.item())
    return np.array(losses), nearest


def weights_of(path):
    tensors, _ = tool.read_safetensors(path)
    return {name: np.frombuffer(data, np.float32).reshape(shape).copy() for name, (_, shape, data) in tensors.items()}


def write_classes(folder, draw):
    """Bytes and classes as IDX files; the config's lines, and the training set as PyTorch takes it."""
    folder.mkdir()
    for part, count in (("t10k", 12), ("train", SAMPLES)):
        samples = draw.integers(0, 256, (count, 1, FEATURES), dtype=np.uint8)
        labels = draw.integers(0, CLASSES, count, dtype=np.uint8)
        labels[:CLASSES] = range(CLASSES)
        tool.write_idx(folder / f"{part}-images-idx3-ubyte", samples.shape, samples.tobytes())
        tool.write_idx(folder / f"{part}-labels-idx1-ubyte", labels.shape, labels.tobytes())
    x = samples.reshape(SAMPLES, FEATURES).astype(np.float32) * np.float32(1 / 255)
    return f'name = "{folder}"', x, labels.astype(np.int64)


def write_values(folder, draw, labels):
    folder.mkdir()
    x = draw.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
    y = draw.standard_normal((SAMPLES, VALUES)).astype(np.float32)
    y = (y > 0).astype(np.float32) if labels else y
    for part, count in (("train", SAMPLES), ("test", 12)):
        np.save(folder / f"{part}_x.npy", x[:count])
        np.save(folder / f"{part}_y.npy", y[:count])
    files = "".join(f'{key} = "{folder / name}.npy"\n' for key, name in (
        ("train", "train_x"), ("target", "train_y"), ("test", "test_x"), ("test_target", "test_y")))
    return files + 'scale = "none"\ntarget_scale = "none"', x, y


class Curves:
    """Runs of the tool, several at a time, beside PyTorch's."""

    def __init__(self, folder):
        self.folder, self.worst, self.count, self.made, self.starts, self.runs = folder, 0, 0, 0, {}, []
        self.workers = concurrent.futures.ThreadPoolExecutor(WORKERS)

    def add(self, loss, optimizer, outputs, sets):
        def started(lines):
            """The arguments of a run on this data, and the weights that it starts from."""
            config = self.folder / f"net{self.made}.toml"
            config.write_text(CONFIG.format(data=lines, outputs=outputs, batch=BATCH, steps=STEPS, loss=toml(loss),
                                            optimizer=toml(optimizer)))
            run = ("train", config, "--quiet")
            if outputs not in self.starts:
                out = self.folder / f"start{outputs}"
                tool.run(*run, "--set", "train.epochs=0", "--out", out)
                self.starts[outputs] = weights_of(out / "model.safetensors")
            return run, self.starts[outputs]

        _, start = started(sets[0][0])
        best = sets[:1]
        if kind_of(loss) in JUMPS:
            exact = {name: value.astype(np.float64) for name, value in start.items()}
            best = sorted(sets, key=lambda each: -in_torch(exact, loss, optimizer, *each[1:])[1])[:TRIED]
        tries = []
        for lines, x, targets in best:
            out = self.folder / f"run{self.made}"
            run, _ = started(lines)
            tries.append((self.workers.submit(self.train, run, 1 + self.made % 2, out),
                          in_torch(start, loss, optimizer, x, targets)[0]))
            self.made += 1
        self.runs.append((tries, loss, optimizer))

    @staticmethod
    def train(run, threads, out):
        tool.run(*run, "--threads", threads, "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return np.array([line["loss"] for line in lines if line["event"] == "train"])

    def check(self):
        for tries, loss, optimizer in self.runs:
            curves = [(curve.result(), want) for curve, want in tries]
            assert all(len(got) == STEPS for got, _ in curves), (loss, [len(got) for got, _ in curves])
            got, want = min(curves, key=lambda each: np.abs(each[0] - each[1]).max())
            off = np.abs(got - want)
            assert off.max() <= MOST, (f"{toml(loss)}, {toml(optimizer)}: step {off.argmax() + 1} has the loss "
                                       f"{got[off.argmax()]}, not {want[off.argmax()]}")
            self.worst, self.count = max(self.worst, off.max()), self.count + 1
        self.workers.shutdown()


def main():
    folder = tool.Folder()
    draw = np.random.default_rng(5)
    classes = [write_classes(folder / f"classes{i}", draw) for i in range(SETS)]
    values = [write_values(folder / f"values{i}", draw, False) for i in range(SETS)]
    labels = [write_values(folder / f"labels{i}", draw, True) for i in range(SETS)]
    torch.set_num_threads(1)  # the nets are small, and the runs want the processors
    curves = Curves(folder)
    for optimizer in OPTIMIZERS:
        for loss in LOSSES:
            curves.add(loss, optimizer, CLASSES, classes)
        for loss in OF_VALUES:
            outputs = VALUES * len(QUANTILES) if kind_of(loss) == "quantile" else VALUES
            curves.add(loss, optimizer, outputs, labels if kind_of(loss) == "binary-cross-entropy" else values)
    curves.check()
    folder.close()
    print(f"{curves.count} curves of {STEPS} steps differ from PyTorch's by at most {curves.worst:.1e}")


if __name__ == "__main__":
    main()
