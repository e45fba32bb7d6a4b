"""The tables of the docs are those that scripts/perf-tables makes from bench/results."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
done = subprocess.run([sys.executable, ROOT / "scripts/perf-tables", "--check"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
