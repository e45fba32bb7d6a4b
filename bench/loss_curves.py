#!/usr/bin/env python3
"""Trains a perceptron on MNIST here and in PyTorch from the same initial weights on the same
batches in the same order, and writes both loss curves as JSON (scripts/perf-plots draws them). Needs
PyTorch and the safetensors package, and the set mnist.

  python3 bench/loss_curves.py --tool build/release/bin/ridgeline --device cuda --out curves.json
  python3 bench/loss_curves.py --device cuda --precisions fp16,bf16 --weights half --widths 128,128,128 --batch 32 \\
      --steps 2000 --kernels cuda.mlp_train --out whole-step.json
"""
import argparse
import gzip
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
# The scale of a byte here, in every precision.
SCALE = torch.tensor(1 / 255, dtype=torch.float32).item()
# What each of our precisions is compared with, and how far apart the curves may be. Two runs that
# round differently diverge exponentially (ReLU units flip), so only one epoch is compared: in fp64 to
# the nine digits that are logged, otherwise to the accumulated rounding of the products.
PRECISIONS = {
    "fp64": (torch.float64, None, 1e-8),
    "fp32": (torch.float32, None, 1e-4),
    "tf32": (torch.float32, "tf32", 2e-2),
    "bf16": (torch.float32, torch.bfloat16, 1e-1),
    "fp16": (torch.float32, torch.float16, 1e-1),
}
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def config(args, precision):
    hidden = "".join(f'{{ type = "linear", out = {width} }}, {{ type = "relu" }}, ' for width in args.widths)
    length = f"max_steps = {args.steps}\nepochs = 1000" if args.steps else f"epochs = {args.epochs}"
    half = 'weights = "half"\nloss_scale = "none"\n' if args.weights == "half" else ""
    return (f'[data]\nname = "mnist"\nscale = "unit"\n[model]\nlayers = [{hidden}{{ type = "linear", out = 10 }}]\n'
            f'[train]\nbatch = {args.batch}\nseed = 1\nshuffle = false\n{length}\nlog_steps = 128\n'
            f'optimizer = {{ type = "sgd", lr = {args.lr} }}\n[run]\nprecision = "{precision}"\n{half}')


def train_here(args, precision, folder, sets=()):
    """The kernels of the plan, and (step, mean loss since the step before) as metrics.jsonl has it."""
    folder.mkdir()
    (folder / "net.toml").write_text(config(args, precision))
    command = [args.tool, "train", folder / "net.toml", "--device", args.device, "--data",
               Path(args.data).resolve().parent, "--out", folder / "run", "--json", folder / "run.json"]
    for pattern in args.kernels:
        command += ["--kernels", pattern]
    for setting in sets:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    kernels = json.loads((folder / "run.json").read_text())["kernels"]
    return kernels, [(m["step"], m["loss"]) for m in map(json.loads, lines) if m["event"] == "train"]


def images_and_labels(data):
    def read(name, skip):
        path = Path(data) / name
        raw = gzip.open(path.with_name(name + ".gz")).read() if not path.exists() else path.read_bytes()
        return torch.frombuffer(bytearray(raw[skip:]), dtype=torch.uint8)
    return read("train-images-idx3-ubyte", 16).reshape(-1, 784), read("train-labels-idx1-ubyte", 8).long()


def train_there(args, precision, weights, images, labels, steps):
    dtype, compute, _ = PRECISIONS[precision]
    batch = args.batch
    if args.weights == "half":  # pure halves on both sides
        dtype, compute = HALVES[precision], None
    torch.backends.cuda.matmul.allow_tf32 = compute == "tf32"
    layers = []
    for index in sorted({int(name.split(".")[0]) for name in weights}):
        w = weights[f"{index}.weight"]
        layer = torch.nn.Linear(w.shape[1], w.shape[0])
        layer.load_state_dict({"weight": w, "bias": weights[f"{index}.bias"]})
        layers += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1]).to(args.device, dtype)
    step_of = torch.optim.SGD(net.parameters(), lr=args.lr)
    x, y = images.to(args.device), labels.to(args.device)
    losses, samples = [], []
    epoch_steps = -(-len(x) // batch)
    for step in range(steps):
        part = slice(step % epoch_steps * batch, (step % epoch_steps + 1) * batch)
        step_of.zero_grad()
        half = compute if isinstance(compute, torch.dtype) else torch.bfloat16
        with torch.autocast(args.device, half, enabled=isinstance(compute, torch.dtype)):
            out = net(x[part].to(dtype) * SCALE)
            loss = torch.nn.functional.cross_entropy(out if dtype == torch.float64 else out.float(), y[part])
        loss.backward()
        step_of.step()
        losses.append(loss.detach())
        samples.append(len(y[part]))
    return torch.stack(losses).double().tolist(), samples


def over_windows(losses, samples, ends):
    """The mean loss of the steps up to each end since the end before, as metrics.jsonl has it."""
    means, begin = [], 0
    for end in ends:
        weight = sum(samples[begin:end])
        means.append(sum(l * r for l, r in zip(losses[begin:end], samples[begin:end])) / weight)
        begin = end
    return means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/release/bin/ridgeline")
    parser.add_argument("--data", required=True, help="the folder 'mnist' with its four files")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precisions", default="fp64,fp32")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="instead of epochs")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--widths", default="256,128", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--weights", default="master", choices=["master", "half"], help="of bf16 and fp16")
    parser.add_argument("--kernels", action="append", default=[], help="kernels that ours may use")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--out", default="loss-curves.json")
    args = parser.parse_args()
    images, labels = images_and_labels(args.data)
    net = "-".join(map(str, [784, *args.widths, 10]))
    result = {"network": f"{net}, ReLU, SGD, batch {args.batch}, MNIST in file order", "weights": args.weights,
              "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
              "torch": torch.__version__, "lr": args.lr, "curves": []}
    failed = False
    for precision in args.precisions.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            train_here(args, precision, folder / "start",
                       ["train.max_steps=1", 'train.optimizer={ type = "sgd", lr = 1e-30 }'])
            weights = load_file(folder / "start" / "run" / "model.safetensors")
            kernels, ours = train_here(args, precision, folder / "full")
        ends = [step for step, _ in ours]
        losses, samples = train_there(args, precision, weights, images, labels, ends[-1])
        theirs = over_windows(losses, samples, ends)
        apart = max(abs(a - b) / b for (_, a), b in zip(ours, theirs))
        bound = PRECISIONS[precision][2]
        failed |= apart > bound
        print(f"{precision}: {len(ends)} points, curves apart by at most {apart:.1e} (bound {bound:.0e})", flush=True)
        result["curves"].append({"precision": precision, "steps": ends, "ours": [l for _, l in ours],
                                 "pytorch": theirs, "apart": apart, "bound": bound, "kernels": kernels})
        Path(args.out).write_text(json.dumps(result) + "\n")  # kept in case a later one is cut off
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
