#!/usr/bin/env python3
"""Times convolutional networks beside PyTorch and ONNX Runtime on the CPU, alternating on the same machine.

usage: compare_conv.py RIDGELINE CONFIGS RESULT.json [--threads N] [--rounds N] [--seconds S]

It times inference of fashion-lenet72's network (256 images, fp32) by ours, PyTorch in both of its layouts and, if
installed, ONNX Runtime; and a training step of fashion-lenet (batch 128, fp32, Adam) by ours and PyTorch in both
layouts. Each round times all of them and keeps the median and the least (ours: the fastest tenth); the round with the
least median counts.
"""
import json
import os
import subprocess
import tempfile

import torch
from torch import nn
from torch.nn import functional

import in_turns


def lenet72():
    return nn.Sequential(nn.Conv2d(1, 12, 7), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 7), nn.Tanh(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4056, 120), nn.Tanh(), nn.Linear(120, 10))


def fashion_lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 10))


LAYOUTS = (("torch", torch.contiguous_format), ("torch channels last", torch.channels_last))


def inference_calls(threads):
    calls, images = {}, torch.randn(256, 1, 72, 72)
    for name, layout in LAYOUTS:
        net = lenet72().eval().to(memory_format=layout)
        x = images.contiguous(memory_format=layout)

        def call(net=net, x=x):
            with torch.inference_mode():
                net(x).softmax(1)

        calls[name] = call
    try:
        import onnxruntime
        path = os.path.join(tempfile.mkdtemp(), "lenet72.onnx")
        torch.onnx.export(nn.Sequential(lenet72(), nn.Softmax(1)).eval(), (images,), path, dynamo=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        key, value = session.get_inputs()[0].name, images.numpy()
        calls["onnxruntime"] = lambda: session.run(None, {key: value})
    except ImportError:
        print("no onnxruntime here", flush=True)
    return calls


def training_calls():
    calls = {}
    for name, layout in LAYOUTS:
        net = fashion_lenet().to(memory_format=layout)
        x = torch.randn(128, 1, 28, 28).contiguous(memory_format=layout)
        y = torch.randint(0, 10, (128,))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

        def call(net=net, x=x, y=y, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()

        calls[name] = call
    return calls


def ours(tool, config, flags, threads):
    """Median and fastest tenth of a step, ms, and its kernels."""
    path = os.path.join(tempfile.mkdtemp(), "profile.json")
    subprocess.run([tool, "profile", config, "--device", "cpu", "--threads", str(threads), "--json", path,
                    *flags], capture_output=True, check=True)
    with open(path) as file:
        profile = json.load(file)
    step = profile["us"]
    return (step["median"] / 1000, step["p10"] / 1000), [kernel["kernel"] for kernel in profile["kernels"]]


def main():
    arguments = in_turns.arguments("tool", "configs", "result", seconds=1.0)
    work = (("inference of fashion-lenet72, 256 images", "lenet72",
             ["--batch", "256", "--set", "run.precision=fp32"], inference_calls(arguments.threads), 3.0),
            ("training step of fashion-lenet, batch 128",
             os.path.join(arguments.configs, "fashion-lenet.toml"), [], training_calls(), 1.5))
    lines = []
    for what, config, flags, calls, goal in work:
        best, kernels = {}, []
        for _ in range(arguments.rounds):
            try:
                pair, kernels = ours(arguments.tool, config, flags, arguments.threads)
                best["ours"] = min(best.get("ours", pair), pair)
            except subprocess.CalledProcessError as error:
                print(what, error.stderr.decode()[-300:], flush=True)
                break
            for name, call in calls.items():
                times = in_turns.times(call, arguments.seconds)
                pair = times[len(times) // 2], times[0]
                best[name] = min(best.get(name, pair), pair)
        if "ours" not in best:
            continue
        peer = min((name for name in best if name != "ours"), key=lambda name: best[name])
        lines.append({"what": what, "threads": arguments.threads, "median_ms_and_least": best,
                      "best_peer": peer, "ratio": round(best[peer][0] / best["ours"][0], 2), "goal": goal,
                      "kernels": kernels})
        print(json.dumps(lines[-1]), flush=True)
    in_turns.keep(arguments.result, lines=lines)


main()
