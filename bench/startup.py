#!/usr/bin/env python3
"""How soon training begins: each config is trained with an empty tuning cache, and interrupted SECONDS after it is ready
for its first step.

usage: startup.py RIDGELINE RESULT.json CONFIG... [--seconds S] [--threads N]

The result has, for each config, the seconds from the start of the process until then, those of them in which kernels were
measured, the plan, and us a step of the steps that followed. RIDGELINE_DATA names the folder of the data sets."""
import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time


def start(tool, config, seconds, threads):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        begin = time.monotonic()
        run = subprocess.Popen([tool, "train", config, "--json", report, "--device", "cpu", "--threads", str(threads)],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                               env=dict(os.environ, XDG_CACHE_HOME=folder))
        if not any(re.match(r"plan of .*ready in", line) for line in run.stderr):
            raise SystemExit(f"{config}: ended with {run.wait()} before its first step")
        ready = time.monotonic() - begin
        time.sleep(seconds)
        run.send_signal(signal.SIGINT)
        run.communicate()
        said = json.loads(report.read_text())
    return {"config": pathlib.Path(config).stem, "seconds": ready, "tuning_seconds": said["tuning_seconds"],
            "us_per_step": said["us_per_step"], "kernels": said["kernels"], "plan": said["plan_source"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ridgeline")
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    result = {"machine": cpu, "threads": given.threads, "date": datetime.date.today().isoformat(), "start": []}
    for config in given.configs:
        row = start(given.ridgeline, config, given.seconds, given.threads)
        result["start"].append(row)
        print(f"{row['config']:<22} ready in {row['seconds']:5.2f} s, tuning {row['tuning_seconds']:5.2f} s; "
              f"{row['us_per_step']:9.1f} us a step, {len(row['kernels'])} kernels, {row['plan']}", flush=True)
        given.result.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
