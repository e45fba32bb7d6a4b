"""Tables of the docs are what scripts/perf-tables makes of bench/results."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
done = subprocess.run([sys.executable, ROOT / "scripts/perf-tables", "--check"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
