"""Code that the tests under a real mpirun share."""

import os
import shutil
import signal
import subprocess
import sys
import time

import tool

ENVIRONMENT = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                   RIDGELINE_THREADS="1")


def missing():
    """Why there are no ranks here, or nothing."""
    if shutil.which("mpirun") is None:
        return "no mpirun"
    if not list(tool.BUILD.rglob("libridgeline_mpi.so")):
        return "a build without MPI"
    return None


def need():
    if missing():
        print("skipped:", missing())
        sys.exit(77)


def launch(ranks, *arguments, mpirun=(), under=(), **env):
    """`under` is a command that runs the one given to it."""
    return subprocess.Popen([*under, "mpirun", "-n", str(ranks), *mpirun, tool.TOOL, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=tool.environment(**ENVIRONMENT, **env), start_new_session=True)


def end(process, seconds):
    """Its exit code, the seconds until then, and its output."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"still running after {seconds} s\n{out}\n{err}")
    return process.returncode, time.monotonic() - begin, out, err


def ours(err):
    return [line for line in err.splitlines() if line.startswith("ridgeline: ")]


def ranks_of(process, count):
    """The processes of the ranks, by rank."""
    for _ in range(200):
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    is_tool = file.read().split("\0")[0] == tool.TOOL
                with open(f"/proc/{pid}/environ") as file:
                    entries = dict(e.split("=", 1) for e in file.read().split("\0") if "=" in e)
                with open(f"/proc/{pid}/stat") as file:
                    session = int(file.read().rsplit(")", 1)[1].split()[3])
            except (OSError, ValueError):
                continue
            if is_tool and "OMPI_COMM_WORLD_RANK" in entries and session == process.pid:
                found[int(entries["OMPI_COMM_WORLD_RANK"])] = int(pid)
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"the ranks did not start\n{end(process, 1)}")
