"""Merges the files that scripts/gpu-check left in a folder into one JSON file of figures.

  gpu_check_merge.py FOLDER FILE

Exits with 1 when the GPU and the CPU learnt to accuracies further apart than 0.5 points.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

MOST_APART = 0.005  # sums in another order change an accuracy by no more than this


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def machine():
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm"
    name, driver, memory, clock = (
        output_of("nvidia-smi", query, "--format=csv,noheader").split("\n")[0].split(", ") + [""] * 4
    )[:4]
    commit = output_of("git", "describe", "--always", "--dirty", "--abbrev=40")
    return {
        "commit": os.environ.get("COMMIT") or commit or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "device": name,
        "driver": driver,
        "memory": memory,
        "max_sm_clock": clock,
    }


def ran(folder):
    """{section: {name: {exit, seconds, last}}} of every program that ran."""
    sections = {}
    table = folder / "ran.tsv"
    for line in table.read_text().splitlines() if table.exists() else ():
        section, name, code, begin, end = line.split("\t")
        log = (folder / f"{section}-{name}.log").read_text(errors="replace")
        lines = [text.strip() for text in re.split(r"[\r\n]", log) if text.strip()]
        sections.setdefault(section, {})[name] = {
            "exit": int(code),
            "seconds": round(float(end) - float(begin), 1),
            "last": lines[-1] if lines else "",
        }
    return sections


def figures_of(folder):
    """{section: {name: what the program wrote itself}}: SECTION-NAME.json and .jsonl."""
    figures = {}
    for path in sorted(folder.glob("*-*.json*")):
        section, name = path.stem.split("-", 1)
        text = path.read_text()
        if path.suffix == ".jsonl":
            found = [json.loads(line) for line in text.splitlines() if line]
        else:
            found = json.loads(text)
        figures.setdefault(section, {})[name] = found
    # The kernels' benchmarks only print: their lines are the figures.
    for log in sorted(folder.glob("kernels-*.log")):
        name = log.stem.split("-", 1)[1]
        figures.setdefault("kernels", {}).setdefault(name, log.read_text(errors="replace").splitlines())
    return figures


def compare_training(train):
    """Accuracy on the GPU less that on the CPU, for each config that ran on both."""
    return {
        name[:-5]: train[name]["accuracy"] - train[name[:-5] + "-cpu"]["accuracy"]
        for name in sorted(train)
        if name.endswith("-cuda") and name[:-5] + "-cpu" in train
    }


def main():
    folder, file = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    merged = json.loads(file.read_text()) if file.exists() else {}
    sections = ran(folder)
    merged.update(machine())
    merged.setdefault("ran", {}).update(sections)
    figures = figures_of(folder)
    for section in sections:
        merged.setdefault("figures", {})[section] = figures.get(section, {})
    good = True
    if "train" in sections:
        apart = compare_training(figures.get("train", {}))
        merged["accuracy_cuda_minus_cpu"] = apart
        for name, difference in apart.items():
            print(f"{name}: accuracy on the GPU {100 * difference:+.2f} points from the CPU's")
            good &= abs(difference) <= MOST_APART
        good &= bool(apart)
    file.write_text(json.dumps(merged, indent=1) + "\n")
    for section, programs in sections.items():
        for name, result in programs.items():
            print(f"{section:9} {name:14} exit {result['exit']}  {result['seconds']:6.1f} s")
    print(f"figures in {file}")
    sys.exit(0 if good else 1)


main()
