#!/usr/bin/env python3
"""Times recurrent layers beside PyTorch's on the CPU, alternating on the same machine.

usage: compare_rnn.py RIDGELINE RESULT.json [--threads N] [--rounds N]

Needs a Python with torch. Each round times ours, then PyTorch's, in both of its layouts; the least
time of all rounds counts for each, so that whatever else the machine does favours nobody. Times are
of a whole sequence: forward without gradients, and forward + backward with dx and all dW.
"""
import json
import subprocess

import torch

import in_turns

# cell, hidden, batch, steps, the goal against PyTorch
WORK = [(cell, hidden, batch, steps, goal) for cell in ("lstm", "gru")
        for hidden, batch, steps, goal in ((128, 32, 64, 1.5), (512, 32, 64, 1.5), (1024, 64, 32, 1.15))]


def ours(tool, cell, hidden, batch, steps, threads, seconds):
    done = subprocess.run([tool, "bench", "rnn", "--cell", cell, "--hidden", str(hidden), "--batch",
                           str(batch), "--steps", str(steps), "--threads", str(threads), "--device",
                           "cpu", "--seconds", str(seconds), "--json", "-"],
                          capture_output=True, text=True, check=True)
    best = {}
    for line in json.loads(done.stdout):
        ms = line["us_min"] * steps / 1000
        if line["pass"] not in best or ms < best[line["pass"]][0]:
            best[line["pass"]] = ms, line["kernels"]
    return best


def torchs(cell, hidden, batch, steps, seconds):
    best = {}
    for batch_first in (False, True):
        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](hidden, hidden,
                                                                   batch_first=batch_first)
        shape = (batch, steps, hidden) if batch_first else (steps, batch, hidden)
        x, dy = torch.randn(shape, requires_grad=True), torch.randn(shape)

        def forward():
            with torch.no_grad():
                layer(x)

        def training():
            layer.zero_grad(set_to_none=True)
            x.grad = None
            layer(x)[0].backward(dy)

        for name, work in (("forward", forward), ("training", training)):
            ms = in_turns.times(work, seconds, first=1, least=1)[0]
            best[name] = min(best.get(name, ms), ms)
    return best


def main():
    arguments = in_turns.arguments("tool", "result", seconds=0.5)
    rows = []
    for cell, hidden, batch, steps, goal in WORK:
        mine, theirs, plans = {}, {}, {}
        for _ in range(arguments.rounds):
            for name, (ms, plan) in ours(arguments.tool, cell, hidden, batch, steps,
                                         arguments.threads, arguments.seconds).items():
                if ms < mine.get(name, ms + 1):
                    mine[name], plans[name] = ms, plan
            for name, ms in torchs(cell, hidden, batch, steps, arguments.seconds).items():
                theirs[name] = min(theirs.get(name, ms), ms)
        for name in ("forward", "training"):
            rows.append({"cell": cell, "hidden": hidden, "batch": batch, "steps": steps, "pass": name,
                         "ours_ms": round(mine[name], 3), "torch_ms": round(theirs[name], 3),
                         "ratio": round(theirs[name] / mine[name], 2), "goal": goal,
                         "kernels": plans[name]})
            row = rows[-1]
            print(f"| {cell} | {hidden} | {batch} | {steps} | {name} | {row['ours_ms']:.2f} | "
                  f"{row['torch_ms']:.2f} | {row['ratio']:.2f}x | {goal} |", flush=True)
    in_turns.keep(arguments.result, threads=arguments.threads, rows=rows)


main()
