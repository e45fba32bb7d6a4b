"""Random configs, many of them wrong: each is refused with one line, or trains three steps with the same losses
on the reference kernels and on the fast ones. Others are trained in two or three parts and at once, with random rules of
validation, and both must end with the same bits. The tests take few; by hand, with RIDGELINE, BUILD_DIR and SOURCE_DIR set:
    tests/scripts/random_configs_test.py --count 10000 --resumed 1000 --seed 1
Prints the counts; a failure is printed with its config."""

import argparse
import collections
import json
import math
import random
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tool

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "softplus", "hardswish")
INITS = ("default", "zeros", "ones", "xavier", "he", {"type": "normal", "std": 0.1}, {"type": "uniform", "bound": 0.2})
# What a value may become that is wrong, at the edge, or of another type.
ODD = (0, -1, 1, 2, 3, 7, 64, 4096, 4097, 2**31, 2**63 - 1, 0.5, -0.0, 1e-300, 1e38, 1e300, "inf", "nan", "", "linear",
       "relu", True, False, [], [1], [3, 2], [0, 0], [-1, -1], {}, {"type": "sgd"}, {"type": ""}, "\u00e9\n\"")


class Raw(str):
    """A value as it stands in TOML."""


def toml(value):
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else repr(value)


# Kinds of layers that fit a sample of so many dimensions, and the dimensions that they leave.
FITTING = {2: {"conv2d": 3, "conv1d": 2, "rnn": 2, "select": 1, "act": 2, "norm": 2, "dropout": 2, "flatten": 1, "linear": 1,
               "maxpool1d": 2, "shape": 2, "block": 2},
           3: {"conv2d": 3, "maxpool2d": 3, "avgpool2d": 3, "act": 3, "norm": 3, "dropout": 3, "flatten": 1, "linear": 1,
               "global_avgpool": 1, "shape": 3, "block": 3},
           1: {"linear": 1, "act": 1, "norm": 1, "dropout": 1, "flatten": 1, "block": 1}}
KINDS = sorted({kind for fitting in FITTING.values() for kind in fitting})


def stack(draw, count, dims):
    """Layers most of which fit each other."""
    layers = []
    for _ in range(count):
        kind = draw.choice(KINDS if draw.random() < 0.04 else sorted(FITTING[dims]))
        dims = FITTING[dims].get(kind, dims)
        layers.append(layer(draw, kind, dims))
    return layers


def layer(draw, kind, dims, depth=0):
    few = draw.choice((1, 2, 3, 4, 5, 8, 16, 17))
    if kind == "linear":
        made = {"type": kind, "out": few}
        for key, values in (("bias", (True, False)), ("init", INITS), ("per_step", (True, False))):
            if draw.random() < 0.2:
                made[key] = draw.choice(values)
        return made
    if kind == "act":
        return {"type": draw.choice(ACTIVATIONS)}
    if kind in ("conv2d", "conv1d"):
        made = {"type": kind, "out": few, "kernel": draw.choice((1, 2, 3, 3))}
        for key, values in (("stride", (1, 2)), ("padding", (0, 1, 2)), ("dilation", (1, 2)), ("groups", (1, 2)),
                            ("bias", (True, False))):
            if draw.random() < 0.3:
                made[key] = draw.choice(values)
        return made
    if "pool2d" in kind or "pool1d" in kind:
        made = {"type": kind, "kernel": draw.choice((1, 2, 3))}
        for key, values in (("stride", (1, 2, 3)), ("padding", (0, 1))):
            if draw.random() < 0.3:
                made[key] = draw.choice(values)
        return made
    if kind == "norm":
        return draw.choice(({"type": "batchnorm"}, {"type": "layernorm"}, {"type": "layernorm", "dims": 1},
                            {"type": "groupnorm", "groups": draw.choice((1, 2))}, {"type": "rmsnorm"},
                            {"type": "batchnorm", "affine": False, "momentum": 0.5}))
    if kind == "dropout":
        return {"type": kind, "p": draw.choice((0.0, 0.1, 0.5))}
    if kind == "rnn":
        made = {"type": draw.choice(("rnn", "gru", "lstm")), "hidden": few}
        for key, values in (("layers", (1, 2)), ("bidirectional", (True, False)), ("bias", (True, False))):
            if draw.random() < 0.3:
                made[key] = draw.choice(values)
        return made
    if kind == "shape":
        axes = draw.sample(range(dims), dims)
        return draw.choice(({"type": "reshape", "shape": [1] * (dims - 1) + [-1]}, {"type": "transpose", "axes": axes},
                            {"type": "slice", "axis": draw.randrange(dims), "start": draw.choice((0, 1, -1))},
                            {"type": "pad", "padding": 1}, {"type": "upsample", "factor": 2}))
    if kind == "block" and depth < 2:
        same = ("act", "norm", "dropout") + (("linear",) if dims == 1 else ("act",))
        inner = [layer(draw, draw.choice(same), dims, depth + 1) for _ in range(draw.randrange(1, 3))]
        return draw.choice(({"type": "residual", "layers": inner}, {"repeat": draw.choice((1, 2, 3)), "layers": inner}))
    return {"type": "flatten" if kind == "block" else kind}


def spoil(draw, table):
    """Changes one thing anywhere in the config: a value, a key, a layer too many or too few."""
    places = []

    def walk(at):
        for key in list(at) if isinstance(at, dict) else range(len(at)):
            places.append((at, key))
            if isinstance(at[key], (dict, list)):
                walk(at[key])

    walk(table)
    at, key = draw.choice(places)
    how = draw.random()
    if how < 0.6:
        at[key] = draw.choice(ODD)
        if at[key] in ("inf", "nan") and not isinstance(at[key], bool):
            at[key] = Raw(at[key])
    elif how < 0.8 and isinstance(at, dict):
        at[str(key) + draw.choice("xs_")] = at.pop(key)
    elif isinstance(at, dict):
        at.pop(key)
    else:
        at.insert(key, at[key])


def config(draw, data):
    layers = stack(draw, draw.randrange(0, 6), 2) + [{"type": "linear", "out": 4}]
    optimizer = draw.choice(({"type": "sgd", "lr": 0.05}, {"type": "sgd", "lr": 0.01, "momentum": 0.9},
                             {"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
                             {"type": "adam", "lr": 0.002}, {"type": "adamw", "lr": 0.002}))
    train = {"batch": draw.choice((1, 2, 3, 16, 31, 50, 200)), "max_steps": 3, "seed": draw.randrange(100), "log_steps": 1,
             "optimizer": optimizer}
    for key, values in (("loss", ("mse", "mae", "cross-entropy", {"type": "huber", "delta": 0.5},
                                  {"type": "cross-entropy", "smoothing": 0.1}, "binary-cross-entropy")),
                        ("clip_norm", (0.5, 1)), ("shuffle", (True, False)), ("drop_last", (True, False)),
                        ("freeze", ([0], ["linear"])),
                        ("schedule", ({"type": "cosine"}, {"type": "constant", "warmup_steps": 2}))):
        if draw.random() < 0.25:
            train[key] = draw.choice(values)
    made = {"data": {"name": str(data)}, "model": {"layers": layers}, "train": train,
            "run": {"device": "cpu", "tune": False, "precision": draw.choice(("fp32", "fp32", "fp64"))}}
    if draw.random() < 0.2:
        made["data"]["scale"] = draw.choice(("raw", "unit", "standard"))
    if draw.random() < 0.3:
        spoil(draw, made)
    return "".join(f"[{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
                   if isinstance(table, dict) else f"{name} = {toml(table)}\n"
                   for name, table in sorted(made.items(), key=lambda item: isinstance(item[1], dict)))


def rules(draw):
    """Settings of a run that is stopped and continued: what it validates, keeps, counts and saves between epochs."""
    steps = draw.randrange(4, 40)
    given = {"train.max_steps": steps, "train.epochs": 100, "train.checkpoint_steps": draw.choice((0, 1, 3, 1000)),
             "train.log_steps": draw.choice((1, 2, 5)), "train.eval_every": draw.choice((1, 1, 2))}
    if draw.random() < 0.7:
        given["data.split"] = toml({"validation": draw.choice((0.1, 0.3)), "seed": 1})
        given["train.monitor"] = draw.choice(("loss", "loss", "accuracy", "f1", "auc", "mse"))
        given["train.keep"] = draw.choice(("best", "last"))
        given["train.patience"] = draw.choice((0, 0, 1, 3))
    for key, value in (("data.augment", toml({"shift": 1, "flip": True})), ("data.resident", "false"),
                       ("run.precision", draw.choice(("bf16", "fp16"))), ("run.recompute", "true")):
        if draw.random() < 0.2:
            given[key] = value
    return given, sorted(draw.sample(range(1, steps), draw.choice((1, 2)))) + [steps]


class Runs:
    def __init__(self):
        self.folder = tool.Folder(samples=60)
        self.counts = collections.Counter()
        self.cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def train(self, text, *more, out="out"):
        """The exit code, the losses and the output."""
        path, out = self.folder / "random.toml", self.folder / out
        path.write_text(text)
        if "--resume" not in more:
            shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run([tool.TOOL, "train", path, "--out", out, "--quiet", "--threads", "1", "--set",
                               "train.checkpoint_seconds=0", *more], capture_output=True, text=True,
                              env=tool.environment(**self.cache), timeout=60)
        lines = done.stderr.splitlines()
        assert done.returncode in (0, 2, 3, 4, 6), f"exit {done.returncode}: {done.stderr[-2000:]}"
        if done.returncode != 0:
            faults = [each for each in lines if each.startswith("ridgeline: ") and "warning: " not in each]
            assert len(faults) == 1 and lines[-1] == faults[0], f"not one line of error: {done.stderr[-2000:]}"
        metrics = out / "metrics.jsonl"
        kept = map(json.loads, metrics.read_text().splitlines()) if metrics.exists() else ()
        return done.returncode, [each["loss"] for each in kept if each["event"] == "train"], done.stderr

    def check(self, text):
        code, losses, said = self.train(text)
        if code in (2, 3, 6):
            self.counts["refused"] += 1
            return
        plain_code, plain, plain_said = self.train(text, "--kernels", "cpu.*.reference")
        assert code == plain_code, f"exit {code} and by the reference {plain_code}: {said} {plain_said}"
        if code == 4:
            self.counts["not finite in both"] += 1
            return
        assert len(losses) == len(plain), (losses, plain)
        for fast, slow in zip(losses, plain):
            fast, slow = (math.nan if each is None else each for each in (fast, slow))
            assert math.isclose(fast, slow, rel_tol=2e-3, abs_tol=1e-5), f"{losses} and by the reference {plain}"
        self.counts["trained alike"] += 1

    def check_resumed(self, text, draw):
        given, stops = rules(draw)
        # A cosine that ends with the run would be another one in each part, as a warning says.
        text = text.replace('{ type = "cosine" }', '{ type = "cosine", steps = 30 }')
        settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        code, _, said = self.train(text, *settings)
        if code in (2, 3, 6):
            self.counts["refused"] += 1
            return
        for i, stop in enumerate(stops):
            resumes = ["--resume"] if i > 0 else []
            parts, _, words = self.train(text, *settings, "--set", f"train.max_steps={stop}", *resumes, out="parts")
            if parts != 0:
                break
        if code == 4 or parts == 4:  # an evaluation at the end of a part may be the one that is not finite
            self.counts["not finite"] += 1
            return
        assert code == parts, f"exit {code} and in parts {stops} {parts}: {said} {words}\n{settings}"
        for name in ("checkpoint.safetensors", "model.safetensors"):
            whole, joined = self.folder / "out" / name, self.folder / "parts" / name
            assert tool.tensors(whole) == tool.tensors(joined), f"{name}: other bits in parts {stops}\n{settings}"
            state = [tool.read_safetensors(each)[1].get("ridgeline.checkpoint") for each in (whole, joined)]
            assert state[0] == state[1], f"{state} in parts {stops}\n{settings}"
        self.counts["resumed alike"] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resumed", type=int, default=10)
    given = parser.parse_args()
    runs = Runs()
    fallen = 0
    for number in range(given.count + given.resumed):
        draw = random.Random(f"{given.seed}:{number}")
        text = config(draw, runs.folder.data)
        try:
            runs.check(text) if number < given.count else runs.check_resumed(text, draw)
        except (AssertionError, subprocess.TimeoutExpired) as fault:
            fallen += 1
            print(f"seed {given.seed}, config {number}: {fault}\n{text}\n", flush=True)
    print(f"{given.count + given.resumed} configs: " + ", ".join(f"{count} {what}" for what, count in sorted(runs.counts.items())) +
          f", {fallen} fell")
    runs.folder.close()
    sys.exit(1 if fallen else 0)


main()
