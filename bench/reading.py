#!/usr/bin/env python3
"""Measures how soon training on a large array begins, and how fast tables of numbers are parsed.

usage: reading.py RIDGELINE TABLE_READ RESULT.json [--rounds N] [--gigabytes G] [--folder DIR]

RIDGELINE is the tool, TABLE_READ the program of bench/micro/table_read.cpp of the same build. It writes arrays of fp32 of this
size, [n, 1024] and [n, 28], whose targets are values, and starts training on each: once with nothing known of the machine (its
kernels and ceilings are measured then), then until nothing is left to measure, and then N times, of which the median counts.
Measuring takes several starts because these runs are so short (20 steps) that each measures for a second at most. The files are
in the page cache, as after they were written. It ends with the rates of TABLE_READ.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile

import numpy as np

CONFIG = """
[data]
train = "{folder}/x.npy"
target = "{folder}/y.npy"
scale = "{scale}"
[model]
layers = [{{ type = "linear", out = 64 }}, {{ type = "relu" }}, {{ type = "linear", out = 1 }}]
[train]
batch = 1024
max_steps = 20
optimizer = {{ type = "adam" }}
[run]
device = "cpu"
"""


MOST_STARTS = 12


def write_arrays(folder, samples, width):
    draw = np.random.default_rng(1)
    array = np.lib.format.open_memmap(folder / "x.npy", "w+", dtype=np.float32, shape=(samples, width))
    for first in range(0, samples, 1 << 16):
        array[first:first + (1 << 16)] = draw.random((min(1 << 16, samples - first), width), np.float32)
    np.save(folder / "y.npy", np.asarray(array[:, :4].sum(1)))
    array.flush()


def start(tool, folder, scale, cache):
    (folder / "net.toml").write_text(CONFIG.format(folder=folder, scale=scale))
    subprocess.run([tool, "train", folder / "net.toml", "--quiet", "--json", folder / "report.json"], check=True,
                   env=dict(os.environ, XDG_CACHE_HOME=str(cache)))
    report = json.loads((folder / "report.json").read_text())
    return report["startup_seconds"], report["tuning_seconds"], report["threads"]


def settle(tool, folder, scale, cache):
    """Starts until the kernels of all plans are known, and returns the seconds of these starts."""
    seconds = []
    for _ in range(MOST_STARTS):
        startup, tuning, _ = start(tool, folder, scale, cache)
        if tuning < 0.05:
            break
        seconds.append(startup)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ridgeline")
    parser.add_argument("table_read")
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", help="where there is room for the arrays")
    given = parser.parse_args()
    rows = []
    for width in (1024, 28):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            folder = pathlib.Path(name)
            samples = int(given.gigabytes * 1e9 / (4 * width))
            write_arrays(folder, samples, width)
            for scale in ("standard", "none"):
                first = start(given.ridgeline, folder, scale, folder / f"cache-{scale}")
                settling = settle(given.ridgeline, folder, scale, folder / f"cache-{scale}")
                seconds = [start(given.ridgeline, folder, scale, folder / f"cache-{scale}")[0] for _ in range(given.rounds)]
                rows.append({"array": [samples, width], "scale": scale, "seconds": statistics.median(seconds),
                             "all_seconds": seconds, "first_seconds": first[0], "first_tuning_seconds": first[1], "settling_seconds": settling,
                             "threads": first[2]})
                print(json.dumps(rows[-1]), flush=True)
    said = subprocess.run([given.table_read], check=True, capture_output=True, text=True).stdout
    tables = [{"table": what, "megabytes_per_second": float(rate)} for what, rate in re.findall(r"(.+): (\d+) MB/s", said)]
    print(json.dumps(tables))
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    result = {"machine": f"{cpu or platform.machine()}, {os.cpu_count()} processors", "start": rows, "tables": tables}
    given.result.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
