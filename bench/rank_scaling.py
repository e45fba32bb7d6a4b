#!/usr/bin/env python3
"""Measures how a training step scales over ranks of one host, one thread each, beside what the cores allow.

Alternates, so that a machine whose cores differ and change from second to second is the same for all:
one rank on each core alone; as many processes at once that do not talk to one another, each with its
share of the batch (what the machine allows); ranks; ranks with the step's kernels apart.

usage: bench/rank_scaling.py TOOL OUT.json --cores 0,1,2,3 [--config FILE] [--data DIR] [--rounds 3]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

APART = ["--kernels", "!cpu.mlp_train_all_reduce"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("out")
    parser.add_argument("--cores", required=True)
    parser.add_argument("--config", default="configs/bench/mlp-512-b3000.toml")
    parser.add_argument("--batch", type=int, default=3000, help="the config's")
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="of a run of all ranks")
    options = parser.parse_args()
    cores = options.cores.split(",")
    folder = pathlib.Path(tempfile.mkdtemp())
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def command(name, steps, *more):
        data = ["--data", options.data] if options.data else []
        return [options.tool, "train", options.config, "--threads", "1", "--no-tune", "--quiet", "--device", "cpu",
                "--set", "train.epochs=1000000", "--set", f"train.max_steps={steps}",
                "--json", str(folder / f"{name}.json"), *data, *more]

    def start(line):
        return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)

    def finish(processes):
        for process in processes:
            if process.wait() != 0:
                raise SystemExit(f"{process.args[0]} failed")

    def report(name):
        return json.loads((folder / f"{name}.json").read_text())

    def alone(core):
        finish([start(["taskset", "-c", core, *command("one", max(4, options.steps // 4))])])
        return report("one")["us_per_step"]

    def apart():
        share = ["--set", f"train.batch={options.batch // len(cores)}"]
        finish([start(["taskset", "-c", core, *command(core, options.steps, *share)]) for core in cores])
        return [report(core)["us_per_step"] for core in cores]

    def together(*kernels):
        finish([start(["mpirun", "-n", str(len(cores)), "--cpu-set", options.cores, "--bind-to", "core",
                       *command("ranks", options.steps, *kernels)])])
        found = report("ranks")
        waited = [a / b for a, b in zip(found["rank_blocked_seconds"], found["rank_train_seconds"])]
        return {"us_per_step": found["us_per_step"], "waited": waited, "kernels": found["kernels"]}

    rounds = []
    for _ in range(options.rounds):
        one = [alone(core) for core in cores]
        rates = [1e6 / us for us in apart()]
        line = {"one_us": one, "apart_us": [1e6 / rate for rate in rates], "ranks": together(),
                "ranks_kernels_apart": together(*APART)}
        # What the machine allows: as many steps of the whole batch as the processes make of their shares.
        mean = statistics.mean(one)
        line["allowed"] = sum(rates) / len(cores) * mean * 1e-6
        for kind in "ranks", "ranks_kernels_apart":
            line[kind]["speedup"] = mean / line[kind]["us_per_step"]
        rounds.append(line)
        print(f"one {mean:.0f} us ({', '.join(f'{us:.0f}' for us in one)}); the cores allow {line['allowed']:.2f}x;",
              "; ".join(f"{line[kind]['us_per_step']:.0f} us, {line[kind]['speedup']:.2f}x, "
                        f"waited {100 * max(line[kind]['waited']):.1f} % ({line[kind]['kernels'][0]})"
                        for kind in ("ranks", "ranks_kernels_apart")), flush=True)
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")
    middle = {kind: statistics.median(line[kind]["speedup"] for line in rounds)
              for kind in ("ranks", "ranks_kernels_apart")}
    result = {"cpu": model, "cores": options.cores, "config": options.config, "rounds": rounds,
              "median_speedup": middle, "median_allowed": statistics.median(line["allowed"] for line in rounds)}
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    print("medians:", ", ".join(f"{kind} {value:.2f}x" for kind, value in middle.items()),
          f"of {result['median_allowed']:.2f}x that the cores allow")


main()
