"""Makes allocations of GPU and pinned memory fail one after another: the result is one line of error and exit code 6, or
the run continues without that memory; never a crash, a hang or half a file. Needs a GPU."""

import argparse
import collections
import json
import random
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tool


def start(arguments, **env):
    return subprocess.run([tool.TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env=tool.environment(**env, LD_PRELOAD=str(tool.BUILD / "tests" / "device_alloc_shim.so")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=20, help="allocations of each command, by chance; 0: all")
    given = parser.parse_args()
    if tool.sanitized() or not json.loads(tool.run("info", "--json", "-").stdout)["gpus"]["found"]:
        print("skipped: needs a GPU, and a build without sanitizers")
        sys.exit(77)
    folder, tried = tool.Folder(), collections.Counter()
    try:
        model, out, rows = folder / "model", folder / "made", folder / "rows.csv"
        steps = ["--device", "cuda", "--no-tune", "--set", "train.max_steps=3"]
        tool.run("train", folder.config, "--out", model, "--quiet", *steps)
        images = folder.data / "t10k-images-idx3-ubyte"
        infer = ["infer", model, "--input", images, "--output", rows, "--device", "cuda", "--no-tune"]
        tool.run(*infer)
        good = rows.read_bytes()
        for name, arguments in (("train", ["train", folder.config, "--out", out, *steps]), ("infer", infer)):
            count = folder / "count"
            shutil.rmtree(out, ignore_errors=True)
            rows.unlink(missing_ok=True)
            done = start(arguments, RIDGELINE_DEVICE_ALLOCS=str(count))
            assert done.returncode == 0, done.stderr
            places = range(1, int(count.read_text()) + 1)
            assert len(places) > 3, f"only {len(places)} allocations were seen: the driver was reached some other way"
            for at in places if given.most == 0 else random.Random(7).sample(places, min(given.most, len(places))):
                shutil.rmtree(out, ignore_errors=True)
                rows.unlink(missing_ok=True)
                done = start(arguments, RIDGELINE_FAIL_DEVICE_ALLOC=str(at))
                lines = done.stderr.splitlines()
                said = [line for line in lines if line.startswith("ridgeline: ")
                        and not line.startswith("ridgeline: warning")]
                what = f"{name}, allocation {at} of {len(places)}: exit {done.returncode}: {done.stderr}"
                assert done.returncode in (0, 6), what
                assert done.returncode == 0 or (len(said) == 1 and lines[-1] == said[0]), what
                assert not rows.exists() or rows.read_bytes() == good, f"{what}: half of a file is left"
                tried[f"allocations of {name}"] += 1
                tried[f"allocations of {name} that ended it"] += done.returncode == 6
        for what, times in tried.items():
            print(f"{what}: {times}")
    finally:
        folder.close()


main()
