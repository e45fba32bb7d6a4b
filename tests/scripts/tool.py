"""Code that the tests of the command-line tool share: a small data set, a config, ways to run the tool."""

import fcntl
import gzip
import importlib.util
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

TOOL = os.environ["RIDGELINE"]
BUILD = pathlib.Path(os.environ["BUILD_DIR"])
SOURCE = pathlib.Path(os.environ["SOURCE_DIR"])

CONFIG = """
[data]
name = "{data}"
[model]
layers = [
  {{ type = "linear", out = 16 }},
  {{ type = "relu" }},
  {{ type = "linear", out = 4 }},
]
[train]
batch = 16
epochs = 3
seed = 3
optimizer = {{ type = "sgd", lr = 0.1, momentum = 0.9 }}
[run]
device = "cpu"
tune = false
"""


def sanitized():
    """Whether this is a build with sanitizers, whose memory and times mean nothing."""
    cache = BUILD / "CMakeCache.txt"
    return cache.exists() and bool(re.search(r"^RIDGELINE_SANITIZE:\w+=.+$", cache.read_text(), re.M))


def environment(**more):
    kept = dict(os.environ, XDG_CACHE_HOME=str(BUILD / "test-cache"))
    kept.update(more)
    return kept


def run(*arguments, code=0, env=None, **options):
    """Runs the tool to its end and checks its exit code; a failure must be one line on stderr."""
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True,
                          env=env or environment(), timeout=300, **options)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit {done.returncode}, not {code}\n"
                             f"{done.stdout}\n{done.stderr}")
    if code not in (0, 130, 143):
        lines = [line for line in done.stderr.splitlines() if line.startswith("ridgeline: ")
                 and not line.startswith("ridgeline: warning")]
        if len(lines) != 1 or done.stderr.splitlines()[-1] != lines[0]:
            raise AssertionError(f"{arguments}: not one line of error:\n{done.stderr}")
    return done


def start(*arguments, **options):
    return subprocess.Popen([TOOL, *map(str, arguments)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, env=environment(), **options)


def write_idx(path, shape, data, packed=False):
    head = bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape)
    opened = gzip.open(path, "wb") if packed else open(path, "wb")
    with opened as out:
        out.write(head + data)


def images(count, seed):
    """6x6 images with one bright quadrant, which is the label."""
    noise = random.Random(seed)
    pixels, labels = bytearray(), bytearray()
    for _ in range(count):
        label = noise.randrange(4)
        labels.append(label)
        for p in range(36):
            bright = (p // 18) * 2 + (p % 6) // 3 == label
            pixels.append(noise.randrange(120) + (110 if bright else 0))
    return bytes(pixels), bytes(labels)


class Folder:
    """A temporary folder with a data set and a config for it."""

    def __init__(self, samples=200):
        self._kept = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self._kept.name)
        self.data = self.path / "data"
        self.data.mkdir()
        for part, n, seed in (("train", samples, 1), ("t10k", 100, 2)):
            pixels, labels = images(n, seed)
            write_idx(self.data / f"{part}-images-idx3-ubyte", (n, 6, 6), pixels)
            write_idx(self.data / f"{part}-labels-idx1-ubyte", (n,), labels)
        self.config = self.path / "small.toml"
        self.config.write_text(CONFIG.format(data=self.data))

    def __truediv__(self, name):
        return self.path / name

    def close(self):
        self._kept.cleanup()


def command(arguments, **options):
    """Runs another program; if it fails, the message is its stderr."""
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done


def python_with(name):
    """A virtual environment of our own under the build folder, of the packages in tests/requirements/NAME.txt; None when
    it cannot be made. Tests that run at the same time and want the same one wait for each other."""
    with open(BUILD / f"{name}-venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return make_environment(name)


def make_environment(name):
    wanted = SOURCE / "tests" / "requirements" / f"{name}.txt"
    home = BUILD / f"{name}-venv"
    python, made_of = home / "bin" / "python", home / "requirements.txt"
    if python.exists() and made_of.exists() and made_of.read_text() == wanted.read_text():
        return python
    for step in ([sys.executable, "-m", "venv", "--clear", str(home)],
                 [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(wanted)]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: {' '.join(step[1:4])} failed: {done.stderr.strip()[-200:]}")
            return None
    made_of.write_text(wanted.read_text())
    return python


def need(package):
    """Where this Python lacks the package or numpy, starts the script again in one that has both: the one that
    RIDGELINE_PEERS_PYTHON names, else the system's, for which `make test` installs them. Where there is none the
    script ends as skipped."""
    if importlib.util.find_spec(package) and importlib.util.find_spec("numpy"):
        return
    seek = f"import sys, importlib.util as u; sys.exit(not (u.find_spec('{package}') and u.find_spec('numpy')))"
    for python in (os.environ.get("RIDGELINE_PEERS_PYTHON"), "/usr/bin/python3"):
        if not python or "RIDGELINE_PYTHON_SOUGHT" in os.environ:
            continue
        try:
            found = subprocess.run([python, "-c", seek]).returncode == 0
        except OSError:
            continue
        if found:
            sys.stdout.flush()
            os.execvpe(python, [python, *sys.argv], dict(os.environ, RIDGELINE_PYTHON_SOUGHT="1"))
    print(f"skipped: needs {package}: install python3-{package}, or name a Python that has it in RIDGELINE_PEERS_PYTHON")
    sys.exit(77)


def import_torch():
    """PyTorch and numpy, as need() finds them."""
    need("torch")
    import numpy
    import torch
    return torch, numpy


def read_safetensors(path):
    """The tensors of a safetensors file as {name: (dtype, shape, bytes)}, and its metadata."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = raw[8 + length:]
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])])
            for name, e in header.items()}, metadata


def write_safetensors(path, tensors, metadata):
    """Writes tensors and metadata to a safetensors file."""
    header, body = {"__metadata__": metadata}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def tensors(path):
    return read_safetensors(path)[0]
