"""Every command of the README's lists and its Python run as printed, except for settings that make commands short."""

import csv
import gzip
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

SHORT = ["--set", "train.epochs=1", "--set", "train.max_steps=4", "--no-tune"]
MORE = {
    "train": SHORT,
    "sweep": SHORT,
    "profile": ["--seconds", "0.02", "--no-tune"],
    "ladder": ["--seconds", "0.01", "--rung", "simd"],
    "plan": ["--no-tune"],
    "infer": ["--no-tune"],
    "serve": ["--no-tune", "--port", "0"],
}


def commands():
    text = (tool.SOURCE / "README.md").read_text()
    block = text.split("## What it does")[1].split("\n## ")[0]
    lines = re.findall(r"^ {4}(\S.*)$", block, re.M)
    return [re.split(r"\s+# ", line)[0] for line in lines]


# The demo installs this data set; a machine that has it elsewhere only is handed its own images.
IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz")


def write_inputs(folder):
    """Writes the files that the commands name and a user would have."""
    noise = random.Random(1)
    with open(folder / "houses.csv", "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["area", "rooms", "town", "price"])
        for _ in range(300):
            area, rooms = noise.uniform(30, 200), noise.randrange(1, 7)
            town = noise.choice(["Ely", "York", "Bath"])
            writer.writerow([f"{area:.1f}", rooms, town, f"{area * 2000 + 9000 * rooms + len(town) * 5000:.0f}"])
    with gzip.open(folder / "images.gz", "wb") as out:
        out.write(bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (10, 28, 28)) + bytes(28 * 28 * 10))


def run(words, folder, env):
    """Runs a command to its end; a server until it is ready, and then ends it as a service manager would."""
    if "serve" not in words:
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        said = ""
        while "http://" not in said and (line := process.stderr.readline()):
            said += line
        process.terminate()
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, stdout, said + stderr)


def run_python(folder):
    """Runs the Python of the README on random arrays, if the build has made the module."""
    (code,) = re.findall(r"```python\n(.*?)```", (tool.SOURCE / "README.md").read_text(), re.S)
    package, python = tool.BUILD / "python", tool.SOURCE / "build" / "python-env" / "bin" / "python"
    if not list(package.glob("ridgeline/_core*.so")) or not python.exists():
        print("not run here: the Python, for want of the module")
        return
    arrays = ("import numpy as np\nrandom = np.random.default_rng(1)\n"
              "x, x_test = (random.random((n, 784), dtype=np.float32) for n in (600, 100))\n"
              "y, y_test = (random.integers(0, 10, n) for n in (600, 100))\n")
    check = "assert labels.shape == (100,) and set(labels.tolist()) <= set(range(10)), labels\n"
    tool.command([python, "-c", arrays + code + check], cwd=folder, env=tool.environment(PYTHONPATH=str(package)))
    print("ran the Python", flush=True)


def main():
    lines = commands()
    if len(lines) < 10:
        sys.exit(f"only {len(lines)} commands found in README.md")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(folder)
        (folder / "configs").symlink_to(tool.SOURCE / "configs")
        env = tool.environment(PATH=f"{pathlib.Path(tool.TOOL).parent}:{os.environ['PATH']}")
        skipped = []
        for line in lines:
            words = shlex.split(line)
            if "cuda" in words or (words[0] == "mpirun" and shutil.which("mpirun") is None):
                skipped.append(line)
                continue
            if not IMAGES.exists():
                words = ["images.gz" if word == str(IMAGES) else word for word in words]
            if words[0] == "mpirun":  # this may be root, and have fewer cores than ranks
                words[1:1] = ["--allow-run-as-root", "--oversubscribe"]
            command = words[words.index("ridgeline") + 1]
            done = run(words + MORE.get(command, []), folder, env)
            if done.returncode == 3 and "data get" in done.stderr:
                print(f"skipped: no data for {line}; set RIDGELINE_DATA")
                sys.exit(77)
            if done.returncode != 0:
                sys.exit(f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
            print("ran", line, flush=True)
        run_python(folder)
        for line in skipped:
            print("not run here:", line)


main()
