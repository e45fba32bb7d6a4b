"""Runs tests/python, the tests of the Python package, on the module that the build has made, and mypy --strict.

The tests that need no more than NumPy run a second time as if nothing else were installed.
"""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["BUILD_DIR"])


def main():
    package = BUILD / "python"
    python = SOURCE / "build" / "python-env" / "bin" / "python"
    if not list(package.glob("ridgeline/_core*.so")) or not python.exists():
        print("skipped: needs the Python module: run scripts/python-env, then configure and build again")
        return 77
    environment = dict(os.environ, PYTHONPATH=str(package), XDG_CACHE_HOME=str(BUILD / "test-cache"),
                       PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
                           str(SOURCE / "tests" / "python"), *sys.argv[1:]], env=environment, cwd=BUILD)
    if done.returncode == 0 and len(sys.argv) == 1:
        alone = dict(environment, RIDGELINE_WITHOUT="torch,sklearn,jax,tqdm,IPython,nbconvert")
        done = subprocess.run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                               str(SOURCE / "tests" / "python"), "-k", "not notebook and not example and not flat and not fuzz"],
                              env=alone, cwd=BUILD)
    if done.returncode == 0 and len(sys.argv) == 1:
        done = subprocess.run([str(python), "-m", "mypy", "--cache-dir", str(BUILD / "mypy-cache")], cwd=SOURCE)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
