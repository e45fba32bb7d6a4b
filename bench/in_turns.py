"""Code that the comparisons with PyTorch on the CPU share: arguments, the stopwatch, the file of results."""
import argparse
import json
import time

import torch


def arguments(*paths, seconds):
    """The paths, --threads, --rounds and --seconds (of one timing); PyTorch gets as many threads."""
    parser = argparse.ArgumentParser()
    for path in paths:
        parser.add_argument(path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=seconds)
    parsed = parser.parse_args()
    torch.set_num_threads(parsed.threads)
    return parsed


def times(call, seconds, first=3, least=5):
    """Milliseconds of a call, sorted: `first` calls not counted, then at least `least`."""
    for _ in range(first):
        call()
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < least:
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    return sorted(taken)


def keep(path, **result):
    with open(path, "w") as file:
        json.dump({"torch": torch.__version__, "precision": "fp32", **result}, file, indent=2)
        file.write("\n")
