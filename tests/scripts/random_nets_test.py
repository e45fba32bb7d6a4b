"""Networks drawn at random train here as in PyTorch: the loss of every step, every tensor after 20 steps (weights,
running statistics, the optimizer's state) and the evaluation that follows, in fp64 and fp32, by several plans.

    random_nets_test.py [--seed N] [--count N] [--only I] [--device cuda]
                                                                # --seed 0: another seed each time, which is printed

How far a correct run may be from PyTorch's in fp64, which is the reference, is measured and not guessed. Two correct
runs differ because they round, and training enlarges the difference: by how much depends on the net. So for each net
PyTorch trains again

  - in fp32: its distance from the reference, tensor by tensor, is what roundings of 2^-24 in sums of these lengths
    come to after these steps;
  - in fp64 with noise: outputs of layers, gradients that enter them and weights after each step are multiplied by
    1 + d e, |e| <= 1, e drawn for each element. With d = 2^-24 that is a second sample of what fp32 does; with
    d = 2^-40, where all is still linear, it says how much the net enlarges any small disturbance; with d = 2^-51 and
    the samples of each batch backwards it is what roundings of fp64 itself come to, where a gradient is zero but for
    them (of a bias before a batch norm) and Adam divides it by its size.

A run in fp32 may be off by FACTOR times the larger of the first two, and by two roundings and a random walk of one
rounding a step. A run in fp64 by FACTOR times the sum of the last two and the first, scaled from 2^-40 and from 2^-24
to 2^-53. FACTOR is 16: fast algorithms for convolutions err up to seven times as much as the direct sum
(docs/conv.md), and a sample of one draw may be half of another. What a wrong kernel does, such as a sample of the batch or
a tap left out, is off by a part in a hundred or more. Bounds that would not see that are counted and must be rare.

The evaluation is compared with PyTorch's of the same tensors, those that our run ended with. Its difference from the
evaluation of PyTorch's own run would say little: a bias before a batch norm has a gradient of rounding alone, of which
Adam makes steps of any direction, and the running mean follows them late.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()
from random_nets import STEPS, in_torch, nets, rates

FACTOR = 16
DRAWS = 6  # of the noise of an evaluation, which is one number and not the length of a tensor
U = {"fp32": 2.0 ** -24, "fp64": 2.0 ** -53}
SMALL = 2.0 ** -40
# A bound above this share of a tensor's length could hide a wrong kernel; so many in a hundred may be.
TELLS = {"fp32": 1e-2, "fp64": 1e-8}
MOST_VAGUE = 10

# Plans that differ: kernels left out, or the only ones.
CUDA_PLANS = (
    (),
    ("!cuda.program", "!cuda.mlp"),
    ("!cuda.program", "!cuda.mlp", "!*.cudnn", "!*.cublaslt"),
)
PLANS = (
    (),
    ("!cpu.mlp",),
    ("!cpu.mlp", "!*.onednn", "!*.blocked"),
    ("!*.blocked",),
    ("!cpu.activation.simd", "!cpu.mlp"),
    ("!*.winograd1d", "!*.images", "!cpu.mlp"),
    ("!*.simd",),
    ("!*.direct", "!*.winograd1d", "!*.pool_sparse"),
)


def write_set(folder, net):
    """Random bytes; every class is among the labels."""
    draw = np.random.default_rng(net.number + 1000)
    net.data = {}
    folder.mkdir()
    for part, count in (("train", net.samples), ("t10k", net.tests)):
        samples = draw.integers(0, net.codes or 256, (count,) + net.sample, dtype=np.uint8)
        labels = draw.integers(0, net.classes, count, dtype=np.uint8)
        labels[-1] = net.classes - 1
        net.data[part] = samples, labels
        tool.write_idx(folder / f"{part}-images-idx3-ubyte", samples.shape, samples.tobytes())
        tool.write_idx(folder / f"{part}-labels-idx1-ubyte", labels.shape, labels.tobytes())


def arrays(path):
    types = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
    tensors, metadata = tool.read_safetensors(path)
    return {name: np.frombuffer(data, types[kind]).reshape(shape)
            for name, (kind, shape, data) in tensors.items()}, metadata


class Noise:
    def __init__(self, size, seed):
        self.size, self.generator = size, torch.Generator().manual_seed(seed)

    def __call__(self, x):
        return x * (1 + self.size * (2 * torch.rand(x.shape, generator=self.generator, dtype=x.dtype) - 1))

    def through(self, x):
        """With noise, and noise on the gradient that comes back."""
        x = self(x)
        if x.requires_grad:
            x.register_hook(self)
        return x


def optimizer_of(net, parameters):
    o = dict(net.optimizer)
    kind, lr = o.pop("type"), o.pop("lr")
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr, **o)
    betas = (o.pop("beta1", 0.9), o.pop("beta2", 0.999))
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](
        parameters, lr, betas, o.pop("epsilon", 1e-8), **o)


def forward(net, modules, x, noise=None):
    return modules(x, {"input": x}, noise).flatten(1)


def loss_of(net, y, labels):
    if net.loss == "mse":
        return torch.nn.functional.mse_loss(y, torch.nn.functional.one_hot(labels, net.classes).to(y.dtype))
    return torch.nn.functional.cross_entropy(y, labels)


def clip(parameters, most):
    """As torch.nn.utils.clip_grad_norm_, which adds 1e-6 to the norm."""
    norm = torch.sqrt(sum((p.grad ** 2).sum() for p in parameters))
    if norm > most:
        for p in parameters:
            p.grad *= most / norm


def modules_of(net, state, dtype):
    """The net in PyTorch with these weights and statistics; other tensors are passed over."""
    modules = in_torch(net).to(dtype)
    names = {name: name.replace(".inner", "") for name in modules.state_dict()}
    modules.load_state_dict({name: torch.tensor(state[own]) for name, own in names.items()})
    return modules


def batch(net, metadata, dtype, part, first, last):
    # The same fp32 numbers in every precision.
    scale, shift = (float(np.float32(metadata[f"ridgeline.{key}"])) for key in ("scale", "shift"))
    samples, labels = net.data[part]
    x = torch.tensor(samples[first:last])
    if not net.codes:
        x = x.to(dtype) * scale + shift
    return x, torch.tensor(labels[first:last].astype(np.int64))


def evaluation(net, state, metadata, dtype, noise=None):
    """The test loss of these weights and statistics, and how many samples are right."""
    modules = modules_of(net, state, dtype).eval()
    with torch.no_grad():
        x, labels = batch(net, metadata, dtype, "t10k", 0, net.tests)
        y = forward(net, modules, x, noise)
        return loss_of(net, y, labels).item(), int((y.argmax(1) == labels).sum())


def in_steps(net, start, metadata, dtype, noise=None, backwards=False):
    """Losses of the steps, and tensors after them (the optimizer's state as checkpoints name it). `backwards`: the
    samples of each batch from the last to the first, which sums do not mind but for rounding."""
    modules = modules_of(net, start, dtype)
    state = {name.replace(".inner", ""): p for name, p in modules.state_dict().items()}
    assert {k: tuple(v.shape) for k, v in state.items()} == {k: v.shape for k, v in start.items()}, net
    named = {name.replace(".inner", ""): p for name, p in modules.named_parameters()}
    optimizer = optimizer_of(net, named.values())
    modules.train()
    losses = []
    for step, rate in enumerate(rates(net.schedule, net.optimizer["lr"], net.steps_per_epoch, STEPS, STEPS)):
        optimizer.param_groups[0]["lr"] = rate
        first = step % net.steps_per_epoch * net.batch
        x, labels = batch(net, metadata, dtype, "train", first, first + net.batch)
        if backwards:
            x, labels = x.flip(0), labels.flip(0)
        loss = loss_of(net, forward(net, modules, x, noise), labels)
        optimizer.zero_grad()
        loss.backward()
        if net.clip:
            clip(list(named.values()), net.clip)
        optimizer.step()
        if noise:
            with torch.no_grad():
                for p in named.values():
                    p.copy_(noise(p))
        losses.append(loss.item())
    tensors = {name.replace(".inner", ""): p for name, p in modules.state_dict().items()}
    names = {"momentum_buffer": "momentum", "exp_avg": "m", "exp_avg_sq": "v"}
    for name, p in named.items():
        for key, value in optimizer.state[p].items():
            if key in names and value is not None:
                tensors[f"optimizer.{name}.{names[key]}"] = value
    return np.array(losses), {name: t.detach().numpy() for name, t in tensors.items()}


def linear(name, tensor):
    """A tensor as something that errors of gradients enter once. Adam's second moment is their square: where
    gradients are exactly zero, as a bias's before a batch norm, it is nothing but a square of roundings."""
    tensor = tensor.astype(float)
    return np.sqrt(tensor) if name.startswith("optimizer.") and name.endswith(".v") else tensor


class Reference:
    """PyTorch's run from some weights in fp64, and how far a run in a precision may be from it."""

    def __init__(self, net, start, metadata, precision):
        self.net, self.metadata, self.u = net, metadata, U[precision]
        self.losses, self.tensors = in_steps(net, start, metadata, torch.float64)
        single = in_steps(net, start, metadata, torch.float32)
        if precision == "fp32":
            samples = ((single, 1), (in_steps(net, start, metadata, torch.float64, Noise(self.u, 7)), 1))
        else:
            samples = ((single, self.u / U["fp32"]),
                       (in_steps(net, start, metadata, torch.float64, Noise(SMALL, 7)), self.u / SMALL),
                       (in_steps(net, start, metadata, torch.float64, Noise(4 * self.u, 8), backwards=True), 1))
        walk = 2 * self.u * (1 + np.sqrt(STEPS))

        def bound(distance, size):
            # fp32's samples are of one thing; fp64's are of different things, which add up.
            join = max if precision == "fp32" else sum
            return FACTOR * join([distance(sample) * part for sample, part in samples]) + walk * size

        largest = np.maximum.accumulate  # errors grow; a step's own may be small by chance
        self.loss_bounds = FACTOR * sum(largest(np.abs(s[0] - self.losses)) * part for s, part in samples) + \
            walk * np.maximum(np.abs(self.losses), np.abs(self.losses).max() / 100)
        self.bounds = {name: bound(lambda s: self.distance(name, s[1][name]), self.size(name))
                       for name, t in self.tensors.items() if t.dtype != np.int64}

    def size(self, name):
        """What roundings of a tensor are relative to. A gradient that is exactly zero, as that of a batch norm's
        weight behind a dead ReLU, is a sum of terms that are not: the others of its kind say how large."""
        kind = name.split(".")[-1]
        own = self.length(name)
        return own if own > 0 else max(self.length(key) for key in self.tensors if key.endswith(kind))

    def length(self, name):
        return np.linalg.norm(linear(name, self.tensors[name]))

    def distance(self, name, tensor):
        return np.linalg.norm(linear(name, tensor) - linear(name, self.tensors[name]))

    def faults(self, losses, tensors, evaluated):
        """What of a run of ours is beyond its bound."""
        if len(losses) != STEPS or set(tensors) != set(self.tensors):
            yield f"{len(losses)} losses, tensors {set(tensors) ^ set(self.tensors)}"
            return
        for step in np.flatnonzero(~(np.abs(losses - self.losses) <= self.loss_bounds))[:1]:
            yield (f"the loss of step {step + 1} is {losses[step]}, not {self.losses[step]}: off by "
                   f"{losses[step] - self.losses[step]:.2e}, bound {self.loss_bounds[step]:.2e}")
        for name, want in self.tensors.items():
            if want.dtype == np.int64:
                if (tensors[name] != want).any():
                    yield f"{name} is {tensors[name]}, not {want}"
                continue
            off = self.distance(name, tensors[name])
            if not off <= self.bounds[name]:
                yield f"{name} is off by {off:.2e} of {self.length(name):.2e}, bound {self.bounds[name]:.2e}"
        yield from self.evaluation_faults(tensors, *evaluated)

    def evaluation_faults(self, tensors, loss, correct):
        """What is wrong with the evaluation of the tensors that a run of ours ended with, which PyTorch evaluates too."""
        want, right = evaluation(self.net, tensors, self.metadata, torch.float64)
        draws = [evaluation(self.net, tensors, self.metadata, torch.float64, Noise(self.u, seed))[0] for seed in range(DRAWS)]
        bound = FACTOR * max(abs(draw - want) for draw in draws) + 4 * self.u * abs(want)
        if not abs(loss - want) <= bound:
            yield f"the test loss is {loss}, not {want}, bound {bound:.2e}"
        if self.u == U["fp64"] and correct != right:
            yield f"{correct} test samples are right, not {right}"

    def worst(self, tensors):
        """The largest share of a bound that a tensor takes up."""
        return max(self.distance(name, tensors[name]) / bound for name, bound in self.bounds.items() if bound > 0)

    def vague(self):
        limit = TELLS["fp32" if self.u == U["fp32"] else "fp64"]
        return sum(bound > limit * self.length(name) for name, bound in self.bounds.items())


class Runs:
    """Runs of the tool; some tune, in a cache of their own."""

    def __init__(self, folder, device):
        self.folder, self.device = folder, device
        self.cache = folder / "cache"
        known = tool.BUILD / "test-cache" / "ridgeline"
        (self.cache / "ridgeline").mkdir(parents=True)
        for file in known.glob("ceilings-*.json"):
            shutil.copy(file, self.cache / "ridgeline")

    def start(self, net):
        """The weights that the tool begins with, in fp64; those in fp32 are the same, rounded."""
        home = self.folder / f"net{net.number}"
        home.mkdir()
        write_set(home / "data", net)
        config = home / "net.toml"
        config.write_text(net.config(home / "data"))
        tool.run("train", config, "--quiet", "--set", "train.epochs=0", "--set", "run.precision=fp64", "--threads", 1,
                 "--device", self.device, "--out", home / "start")
        return arrays(home / "start" / "model.safetensors")

    def train(self, net, precision, plan, tuned, threads):
        home = self.folder / f"net{net.number}"
        out = pathlib.Path(tempfile.mkdtemp(dir=home))
        words = ["train", home / "net.toml", "--quiet", "--json", "-", "--set", f"run.precision={precision}",
                 "--set", f"run.tune={str(tuned).lower()}", "--threads", threads, "--device", self.device, "--out", out]
        for kernels in plan:
            words += ["--kernels", kernels]
        environment = tool.environment(XDG_CACHE_HOME=str(self.cache)) if tuned else tool.environment()
        try:
            report = json.loads(tool.run(*words, env=environment).stdout)
        except AssertionError as error:
            return None, str(error), None, []
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = np.array([line["loss"] for line in lines if line["event"] == "train"], float)
        tensors, _ = arrays(out / "checkpoint.safetensors")
        skipped = ("optimizer.clip", "optimizer.clipped")
        tensors = {name: t for name, t in tensors.items() if not name.startswith(skipped)}
        shutil.rmtree(out)
        correct = round(report["accuracy"] * net.tests)
        kernels = sorted(set(report["kernels"] + report["kernels_last_batch"]))
        return losses, tensors, (report["loss"], correct), kernels


def jobs_of(net, device):
    """(precision, kernels, tuned, threads) of the runs of a net."""
    plans = PLANS if device == "cpu" else CUDA_PLANS
    plan = plans[net.number % len(plans)]
    other = plans[(net.number * 3 + 1) % len(plans)]
    yield "fp64", plan, False, 1 + net.number % 3
    yield "fp32", other, False, 1 + net.number % 2
    if other != ():
        yield "fp32", (), False, 2
    if net.number % 3 == 0:
        yield "fp64" if net.number % 2 else "fp32", (), True, 2


def check(runs, net):
    """What is wrong with a net's runs, and figures about them."""
    start, metadata = runs.start(net)
    single = {name: t.astype(np.float32) if t.dtype == np.float64 else t for name, t in start.items()}
    references = {"fp64": Reference(net, start, metadata, "fp64"),
                  "fp32": Reference(net, single, metadata, "fp32")}
    faults, worst = [], {"fp64": 0, "fp32": 0}
    for precision, plan, tuned, threads in jobs_of(net, runs.device):
        losses, tensors, evaluated, kernels = runs.train(net, precision, plan, tuned, threads)
        if losses is None:
            faults.append(tensors)
            continue
        where = f"{precision}, {'tuned' if tuned else 'fixed'} {' '.join(plan)}, {threads} threads, by {' '.join(kernels)}"
        try:
            faults += [f"{fault}\n    {where}" for fault in references[precision].faults(losses, tensors, evaluated)]
            worst[precision] = max(worst[precision], references[precision].worst(tensors))
        except (KeyError, ValueError) as error:
            faults.append(f"{error!r}\n    {where}")
    vague = {precision: (r.vague(), len(r.bounds)) for precision, r in references.items()}
    return faults, worst, vague


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--only", type=int, help="this net alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2, help="nets side by side")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    flags.seed = flags.seed or int(time.time())
    print(f"seed {flags.seed}")
    chosen = [net for net in nets(flags.seed, flags.count) if flags.only in (None, net.number)]
    bad, worst, vague = 0, {"fp64": 0, "fp32": 0}, {"fp64": [0, 0], "fp32": [0, 0]}
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        runs = Runs(pathlib.Path(name), flags.device)
        for net, (faults, shares, unclear) in zip(chosen, pool.map(lambda net: check(runs, net), chosen)):
            for precision in worst:
                worst[precision] = max(worst[precision], shares[precision])
                vague[precision] = [a + b for a, b in zip(vague[precision], unclear[precision])]
            if faults:
                bad += 1
                print(f"\n{net}")
                for fault in faults:
                    print(f"  {fault}")
    for precision, (unclear, count) in vague.items():
        print(f"{precision}: at most {worst[precision]:.2f} of a bound; {unclear} of {count} bounds say little")
        if flags.only is None and unclear * 100 > MOST_VAGUE * count:
            print(f"{precision}: too many bounds say little")
            bad += 1
    if bad:
        print(f"{bad} of {len(chosen)} nets differ from PyTorch; again: {sys.argv[0]} --seed {flags.seed}")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
