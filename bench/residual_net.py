#!/usr/bin/env python3
"""Profiles a training step of ResNet-9 on random images of bytes on a GPU, with its skips and without them.

usage: residual_net.py RESULT.json [--tool PATH] [--batch 512] [--precision bf16] [--device cuda] [--once]

RESULT.json keeps what it holds of other frameworks (`peers_us`); `steps` is replaced: microseconds of a step and of each
kernel of its plan.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile
from datetime import date

HERE = pathlib.Path(__file__).resolve().parent


def write_npy(path, dtype, shape, data):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def conv(out, pool=False):
    layers = [{"type": "conv2d", "out": out, "kernel": 3, "padding": 1, "bias": False}, {"type": "batchnorm"},
              {"type": "relu"}]
    return layers + ([{"type": "maxpool2d", "kernel": 2}] if pool else [])


def resnet9(skips):
    def twice(out):
        return [{"type": "residual", "layers": conv(out) + conv(out)}] if skips else conv(out) + conv(out)
    return [*conv(64), *conv(128, True), *twice(128), *conv(256, True), *conv(512, True), *twice(512),
            {"type": "maxpool2d", "kernel": 4}, {"type": "flatten"}, {"type": "linear", "out": 10}]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def profile(options, folder, skips):
    config, result = folder / "net.toml", folder / "profile.json"
    config.write_text(f'[data]\ntrain = "{folder}/x.npy"\ntarget = "{folder}/y.npy"\n[model]\nlayers = '
                      f'{toml(resnet9(skips))}\n[train]\nbatch = {options.batch}\nloss = "cross-entropy"\n'
                      'optimizer = { type = "sgd", lr = 0.01, momentum = 0.9 }\n'
                      f'[run]\nprecision = "{options.precision}"\n')
    subprocess.run([options.tool, "profile", config, "--device", options.device, "--seconds", "1", "--json", result],
                   check=True, stdout=subprocess.DEVNULL)
    found = json.loads(result.read_text())
    return {"us": round(found["us"]["median"], 1),
            "kernels": [[each["kernel"], round(each["us"]["median"], 1)] for each in found["kernels"]]}


def keep(options, kept):
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    kept.update(net=f"ResNet-9, 3x32x32, batch {options.batch}, {options.precision}, SGD with momentum, random bytes",
                date=date.today().isoformat(), commit=commit.stdout.strip())
    options.result.write_text(json.dumps(kept, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--tool", default="build/release/ridgeline/cli/ridgeline")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--once", action="store_true", help="without the net that has no skips")
    options = parser.parse_args()
    kept = json.loads(options.result.read_text()) if options.result.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder, count = pathlib.Path(name), max(100, 4 * options.batch)
        noise = random.Random(1)
        write_npy(folder / "x.npy", "|u1", (count, 3, 32, 32), noise.randbytes(count * 3072))
        write_npy(folder / "y.npy", "|u1", (count,), bytes(i % 10 for i in range(count)))
        kept["steps"] = {"resnet9": profile(options, folder, True)}
        keep(options, kept)
        if not options.once:
            kept["steps"]["without skips"] = profile(options, folder, False)
            keep(options, kept)
    for step, found in kept["steps"].items():
        print(f"{step:<15} {found['us']:9.1f} us in {len(found['kernels'])} kernels")


main()
