#!/usr/bin/env python3
"""Times training steps of many ordinary small networks beside PyTorch and JAX, in one run on one machine.

usage: generality.py RESULT.json [--tool PATH] [--device cuda|cpu] [--precisions fp32,tf32,bf16] [--only TEXT]...
                     [--seconds S] [--compiled] [--python PYTHON] [--threads N] [--no-peers]

Ours runs before and after the peers, and the median of both counts. RESULT.json holds a case for each net and
precision: net, precision, ours_us, of_limit, kernels, peers_us, peer (the fastest), peer_us and ratio (above 1: ours is
faster); with --device cpu also the machine. Cases that are already in RESULT.json are kept unless they run again.
A run that is interrupted keeps what it has measured.
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from generality_cases import CASES

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = 20000
TABLE_SAMPLES, TABLE_FEATURES = 1_000_000, 28


def write_idx(path, shape, data):
    with open(path, "wb") as out:
        out.write(bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data)


def write_npy(path, rows, columns, floats):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header = header.ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + floats)


def write_table(folder):
    """Random numbers of about unit size; the target is the sum of each sample's first seven."""
    noise = array.array("f", (byte / 74 - 1.73 for byte in random.Random(2).randbytes(TABLE_SAMPLES * TABLE_FEATURES)))
    write_npy(folder / "x.npy", TABLE_SAMPLES, TABLE_FEATURES, noise.tobytes())
    sums = array.array("f", (sum(noise[at:at + 7]) for at in range(0, len(noise), TABLE_FEATURES)))
    write_npy(folder / "y.npy", TABLE_SAMPLES, 1, sums.tobytes())


def write_data(folder):
    """Random images of bytes and random text, without structure that a kernel could profit from."""
    noise = random.Random(1)
    images = folder / "images"
    images.mkdir()
    for part, n in (("train", SAMPLES), ("t10k", 256)):
        write_idx(images / f"{part}-images-idx3-ubyte", (n, 28, 28), noise.randbytes(n * 784))
        write_idx(images / f"{part}-labels-idx1-ubyte", (n,), bytes(noise.choices(range(10), k=n)))
    # 65 symbols, each of which must occur in the text.
    symbols = bytes(range(48, 113))
    (folder / "text.txt").write_bytes(symbols + bytes(noise.choices(symbols, k=1_000_000)))


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def config(case, precision, folder):
    data = f'name = {json.dumps(str(folder / ("text.txt" if case["text"] else "images")))}'
    if case["table"]:
        data = f'train = {json.dumps(str(folder / "x.npy"))}\ntarget = {json.dumps(str(folder / "y.npy"))}'
    layers = ",\n  ".join(map(toml, case["layers"]))
    steps = f"steps = {case['text']}\n" if case["text"] else ""
    return (f'[data]\n{data}\n{steps}[model]\nlayers = [\n  {layers},\n]\n'
            f'[train]\nbatch = {case["batch"]}\nepochs = 1000000\ndrop_last = true\neval_every = 1000000\n'
            f'clip_norm = {case["clip"]}\noptimizer = {toml(case["optimizer"])}\n'
            f'[run]\nprecision = "{precision}"\n')


def ours(options, case, precision, folder, steps, *more):
    """Figures of `ridgeline train` over `steps` steps."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        file, result = pathlib.Path(own, "net.toml"), pathlib.Path(own, "net.json")
        file.write_text(config(case, precision, folder).replace("[train]\n", f"[train]\nmax_steps = {steps}\n"))
        done = subprocess.run([options.tool, "train", file, "--device", options.device, "--quiet", "--json", result,
                               *(["--threads", str(options.threads)] if options.threads else []), *more],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed")
        return json.loads(result.read_text())


def cpu_model():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if "model name" in line), "unknown")


def peers(options, jobs, folder):
    jobs_file, out = folder / "jobs.json", folder / "peers.jsonl"
    jobs_file.write_text(json.dumps(jobs))
    which = ["torch", "jax"] + (["compile"] if options.compiled else [])
    environment = dict(os.environ)
    if options.threads:
        environment["OMP_NUM_THREADS"] = str(options.threads)
    for peer in which:  # a process each: they do not share a GPU's memory well
        subprocess.run([options.python, HERE / "peers" / "nets.py", jobs_file, out, options.device,
                        str(options.seconds), peer], env=environment, check=False)


def peers_figures(folder):
    out = folder / "peers.jsonl"
    return [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")] if out.exists() else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--tool", default="build/release/ridgeline/cli/ridgeline")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precisions", default="")
    parser.add_argument("--only", action="append", default=[], help="cases whose name holds this text")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--compiled", action="store_true", help="torch.compile as a third peer: minutes more")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and jax")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-peers", action="store_true", help="ours alone; the peers' figures that are kept stay")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit interrupts, too
    precisions = (options.precisions or ("fp32,tf32,bf16" if options.device == "cuda" else "fp32")).split(",")
    jobs = [{"case": case, "precision": precision} for case in CASES for precision in precisions
            if not options.only or any(text in case["name"] for text in options.only)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder)
        if any(job["case"]["table"] for job in jobs):
            write_table(folder)
        figures = {}
        least = 200 if options.device == "cuda" else 40

        first_us = {}

        def run_ours():
            for job in jobs:
                key = job["case"]["name"], job["precision"]
                try:
                    # The first run finds out how long a step takes. It is not counted, because it makes the plan
                    # and is the first to touch the data.
                    if key not in first_us:
                        first_us[key] = ours(options, job["case"], job["precision"], folder, 5 * least)["us_per_step"]
                    steps = max(least, int(options.seconds * 1e6 / first_us[key]))
                    figures.setdefault(key, []).append(ours(options, job["case"], job["precision"], folder, steps))
                except RuntimeError as error:
                    print(f"{key[0]}, {key[1]}: {error}", file=sys.stderr)

        def compile_one(job):
            try:
                ours(options, job["case"], job["precision"], folder, 1, "--no-tune")
            except RuntimeError:
                pass  # reported when it is measured
        if options.device == "cuda":  # generated kernels are compiled in parallel
            with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) * 3 // 4)) as pool:
                list(pool.map(compile_one, jobs))
        try:
            run_ours()
            if not options.no_peers:
                peers(options, jobs, folder)
            run_ours()
        except KeyboardInterrupt:
            print("generality: interrupted; keeping what has been measured", file=sys.stderr)
        lines = peers_figures(folder)
        figures = {key: reports for key, reports in figures.items() if reports}

    kept = json.loads(options.result.read_text()) if options.result.exists() else {"cases": []}
    cases = {(case["net"], case["precision"]): case for case in kept["cases"]}
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    for (net, precision), reports in figures.items():
        times = {line["peer"]: line["us"] for line in lines
                 if (line["net"], line["precision"]) == (net, precision) and "us" in line}
        if options.no_peers:
            times = cases.get((net, precision), {}).get("peers_us", {})
        case = {"net": net, "precision": precision,
                "ours_us": round(statistics.median(report["us_per_step"] for report in reports), 2),
                "of_limit": round(reports[-1]["limit_fraction"] or 0, 3),
                "kernels": len(reports[-1]["kernels"]), "peers_us": times,
                "date": date.today().isoformat(), "commit": commit.stdout.strip()}
        if options.device == "cpu":
            case["machine"] = f"{cpu_model()}, {options.threads or os.cpu_count()} threads"
        if times:
            best = min(times, key=times.get)
            case.update(peer=best, peer_us=times[best], ratio=round(times[best] / case["ours_us"], 2))
        cases[net, precision] = case
    order = {case["name"]: place for place, case in enumerate(CASES)}
    kept["cases"] = sorted(cases.values(), key=lambda case: (order.get(case["net"], 99), case["precision"]))
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(json.dumps(kept, indent=1) + "\n")

    ratios = [case["ratio"] for case in kept["cases"] if "ratio" in case]
    for case in kept["cases"]:
        print(f"{case['net']:<50} {case['precision']}  ours {case['ours_us']:9.2f} us in {case['kernels']:3d}  "
              f"{case.get('peer', 'no peer'):<24} {case.get('peer_us', 0):9.2f}  {case.get('ratio', 0):6.2f}x")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} cases: least {min(ratios):.2f}x, geometric mean {mean:.2f}x; kept in {options.result}")


main()
