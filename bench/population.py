#!/usr/bin/env python3
"""Times many small networks trained at once: `ridgeline sweep` beside JAX vmap + scan and PyTorch bmm, on one machine.

usage: population.py RESULT.json [--tool PATH] [--device cpu|cuda] [--net 784-32-10] [--batch 32] [--members 64]
                     [--steps 1875] [--precision fp32] [--threads N] [--python PYTHON]

RESULT.json has, in us of a step of all members together: `ours` and `one_by_one` (the members' training times; side by
side they are divided by how many ran at once), `jax` and `torch` (whose members share one program; `torch` is a CUDA graph
on a GPU), and what a user waits: `ours_seconds` and `one_by_one_seconds` of the whole command, with loading, planning and
evaluation. Members have rates, seeds and orders of their own. Ours runs before and after the peers, and the better counts,
as it does of the peers' repeats.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
from datetime import date

SAMPLES = 60000


def write_idx(path, shape, data):
    with open(path, "wb") as out:
        out.write(bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data)


def write_data(folder, features):
    noise = random.Random(1)
    for part, n in (("train", SAMPLES), ("t10k", 256)):
        write_idx(folder / f"{part}-images-idx3-ubyte", (n, 1, features), noise.randbytes(n * features))
        write_idx(folder / f"{part}-labels-idx1-ubyte", (n,), bytes(noise.choices(range(10), k=n)))


def write_config(folder, given):
    layers = []
    for out in given.sizes[1:]:
        layers += [f'{{ type = "linear", out = {out} }}', '{ type = "relu" }']
    text = f"""[data]
name = "{folder}"
[model]
layers = [{", ".join(layers[:-1])}]
[train]
batch = {given.batch}
epochs = {-(-given.steps * given.batch // SAMPLES)}
max_steps = {given.steps}
optimizer = {{ type = "sgd", lr = 0.01 }}
[run]
device = "{given.device}"
precision = "{given.precision}"
"""
    (folder / "net.toml").write_text(text)
    return folder / "net.toml"


def ours(config, given, *flags):
    """Microseconds per step of all members, and seconds of the whole command."""
    rates = ",".join(f"{1e-3 + 1e-4 * i:.5f}" for i in range(given.members))
    begin = time.perf_counter()
    done = subprocess.run([given.tool, "sweep", str(config), "--set", f"train.optimizer.lr={rates}", "--json", "-", *flags,
                           *(["--threads", str(given.threads)] if given.threads else [])],
                          capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    reports = [point["report"] for point in json.loads(done.stdout)["points"]]
    together = 1 if given.device == "cuda" or "--one-by-one" in flags else min(len(reports), given.threads or os.cpu_count())
    return {"us": 1e6 * sum(report["train_seconds"] for report in reports) / together / given.steps, "seconds": seconds,
            "kernels": reports[0]["kernels"]}


def peer(name, given):
    """Runs a peer in a separate process, because two of them interfere in threads and memory."""
    done = subprocess.run([given.python, __file__, "-", "--peer", name, "--device", given.device, "--net", given.net,
                           "--batch", str(given.batch), "--members", str(given.members), "--precision", given.precision,
                           "--threads", str(given.threads)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "no output"}
    return json.loads(done.stdout.splitlines()[-1])


def best_of(run, repeats=3):
    run()
    return min(run() for _ in range(repeats))


def jax_us(given):
    os.environ["JAX_PLATFORMS"] = "cpu" if given.device == "cpu" else ""
    import jax
    import jax.numpy as jnp
    import numpy
    members, batch, sizes = given.members, given.batch, given.sizes
    half = given.precision == "bf16"
    kind = jnp.bfloat16 if half else jnp.float32
    inputs = jnp.asarray(numpy.random.randint(0, 256, (SAMPLES, sizes[0]), numpy.uint8))
    labels = jnp.asarray(numpy.random.randint(0, sizes[-1], (SAMPLES,)))
    rates = jnp.linspace(1e-3, 1e-1, members)

    def loss(weights, x, y):
        for i, (w, b) in enumerate(weights):
            x = x.astype(kind) @ w.astype(kind) + b.astype(kind)
            if i + 1 < len(weights):
                x = jax.nn.relu(x)
        return -jnp.mean(jax.nn.log_softmax(x.astype(jnp.float32))[jnp.arange(batch), y])

    def step(state, _):
        weights, key = state
        key, now = jax.random.split(key)
        picked = jax.random.randint(now, (members, batch), 0, SAMPLES)
        gradients = jax.vmap(jax.grad(loss))(weights, inputs[picked].astype(kind) * (1 / 255.0), labels[picked])
        weights = jax.tree_util.tree_map(lambda w, g: w - rates.reshape((members,) + (1,) * (w.ndim - 1)) * g, weights, gradients)
        return (weights, key), None

    key = jax.random.PRNGKey(0)
    state = ([(jax.random.normal(key, (members, a, b)) * 0.05, jnp.zeros((members, b))) for a, b in zip(sizes, sizes[1:])], key)
    steps = 200 if given.device == "cuda" else 30
    precision = "bfloat16" if half else "tensorfloat32" if given.precision == "tf32" else "float32"
    with jax.default_matmul_precision(precision):
        many = jax.jit(lambda state: jax.lax.scan(step, state, None, length=steps)[0])

        def run():
            begin = time.perf_counter()
            jax.block_until_ready(many(state))
            return (time.perf_counter() - begin) / steps * 1e6

        return best_of(run)


def torch_us(given):
    import torch
    members, batch, sizes = given.members, given.batch, given.sizes
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.allow_tf32 = given.precision == "tf32"
    device, kind = given.device, torch.bfloat16 if given.precision == "bf16" else torch.float32
    inputs = torch.randint(0, 256, (SAMPLES, sizes[0]), device=device, dtype=torch.uint8)
    labels = torch.randint(0, sizes[-1], (SAMPLES,), device=device)
    weights = [torch.randn(members, a, b, device=device, dtype=kind) * 0.05 for a, b in zip(sizes, sizes[1:])]
    biases = [torch.zeros(members, 1, b, device=device, dtype=kind) for b in sizes[1:]]
    rates = torch.linspace(1e-3, 1e-1, members, device=device, dtype=kind).view(members, 1, 1)
    picked = torch.randint(0, SAMPLES, (members * batch,), device=device)
    minus = torch.full((members, batch, 1), -1.0, device=device)

    def step():
        x = [inputs[picked].view(members, batch, sizes[0]).to(kind) / 255]
        for i, w in enumerate(weights):
            z = torch.baddbmm(biases[i], x[-1], w)
            x.append(z.relu_() if i + 1 < len(weights) else z)
        gradient = torch.softmax(x[-1].float(), -1)
        gradient.scatter_add_(2, labels[picked].view(members, batch, 1), minus)
        gradient = (gradient / batch).to(kind)
        for i in reversed(range(len(weights))):
            by_weights, by_bias = torch.bmm(x[i].transpose(1, 2), gradient), gradient.sum(1, keepdim=True)
            below = torch.bmm(gradient, weights[i].transpose(1, 2)) * (x[i] > 0) if i else None
            weights[i].sub_(rates * by_weights)
            biases[i].sub_(rates * by_bias)
            gradient = below

    repeats = 200 if device == "cuda" else 20
    if device == "cuda":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        once = graph.replay
    else:
        once = step

    def run():
        begin = time.perf_counter()
        for _ in range(repeats):
            once()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / repeats * 1e6

    return best_of(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("--tool", default="build/release/ridgeline/cli/ridgeline")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--net", default="784-32-10")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1875)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--python", default=sys.executable, help="the Python that has JAX and PyTorch")
    parser.add_argument("--peer", choices=("jax", "torch"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.sizes = [int(size) for size in given.net.split("-")]
    if given.peer:
        print(json.dumps({"us": (jax_us if given.peer == "jax" else torch_us)(given)}))
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_data(folder, given.sizes[0])
        config = write_config(folder, given)
        first = ours(config, given)
        peers = {name: peer(name, given) for name in ("jax", "torch")}
        second = ours(config, given)
        alone = ours(config, given, "--one-by-one")
    best = min(first, second, key=lambda each: each["us"])
    result = {"date": str(date.today()), "device": given.device, "net": given.net, "batch": given.batch,
              "members": given.members, "precision": given.precision, "threads": given.threads or os.cpu_count(),
              "kernels": best["kernels"], "ours": best["us"], "ours_seconds": min(first["seconds"], second["seconds"]),
              "one_by_one": alone["us"], "one_by_one_seconds": alone["seconds"]}
    for name, each in peers.items():
        result[name] = each.get("us", each.get("error"))
    pathlib.Path(given.result).write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
