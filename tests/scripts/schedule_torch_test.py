"""Learning rates, step by step, are those of PyTorch's schedulers: SequentialLR of LinearLR and the schedule."""

import json
import sys

sys.dont_write_bytecode = True
import tool

tool.import_torch()
from random_nets import SCHEDULES, rates, toml

# 44 samples in batches of 16: epochs of three steps.
STEPS_PER_EPOCH = 3
MORE = (
    {"type": "constant", "warmup_steps": 1},
    {"type": "constant", "warmup_steps": 200},
    {"type": "step"},
    {"type": "step", "every_steps": 1, "factor": 0.9, "warmup_steps": 2},
    {"type": "step", "every_epochs": 2, "factor": 0.5, "warmup_steps": 7},
    {"type": "step", "every_steps": 5, "factor": 0.5, "warmup_steps": 12},
    {"type": "cosine", "min_factor": 0.2, "warmup_steps": 1},
    {"type": "cosine", "steps": 100, "warmup_steps": 10},
    {"type": "cosine", "epochs": 4, "warmup_steps": 11},
    {"type": "cosine", "steps": 13, "warmup_steps": 12, "min_factor": 0.5},
)
RUNS = (("train.epochs=8",), ("train.epochs=50", "train.max_steps=23"), ("train.epochs=3", "train.max_steps=100"))


def logged(folder, schedule, run):
    out = folder / "run"
    sets = [word for change in (*run, f"train.schedule={toml(schedule)}", "train.log_steps=1", "train.batch=16",
                                "train.optimizer.lr=0.07") for word in ("--set", change)]
    tool.run("train", folder.config, "--quiet", "--force", "--threads", 1, "--out", out, *sets)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["lr"] for line in lines if line["event"] == "train"]


def main():
    folder = tool.Folder(samples=44)
    worst = 0
    for number, schedule in enumerate(SCHEDULES + MORE):
        for run in RUNS if schedule["type"] == "cosine" else (RUNS[number % len(RUNS)],):
            got = logged(folder, schedule, run)
            keys = dict(change[len("train."):].split("=") for change in run)
            total = int(keys["epochs"]) * STEPS_PER_EPOCH
            if "max_steps" in keys:
                total = min(total, int(keys["max_steps"]))
            want = rates(schedule, 0.07, STEPS_PER_EPOCH, total, total)
            assert len(got) == total, (schedule, run, len(got), total)
            for step, (ours, theirs) in enumerate(zip(got, want)):
                # PyTorch multiplies a rate from step to step: a few roundings each.
                off = abs(ours - theirs) / 0.07
                assert off <= 1e-15 * (4 + 4 * step), f"{schedule}, {run}: step {step}: {ours}, not {theirs}"
                worst = max(worst, off)
    for change, parts in (('{type="cosine",steps=9,warmup_steps=9}', ("schedule.steps", "warmup_steps")),
                          ('{type="cosine",epochs=3,warmup_steps=9}', ("3 epochs of 3 steps", "warm-up of 9"))):
        said = tool.run("train", folder.config, "--set", f"train.schedule={change}", "--set", "train.batch=16",
                        code=2).stderr
        assert all(part in said for part in parts), said
    folder.close()
    print(f"rates differ from torch's by at most {worst:.1e} of the base rate")


if __name__ == "__main__":
    main()
