"""Kills runs, or makes their disk or memory fail, at every call that a save makes and at every allocation: there is one
line of error, the right exit code, and nothing is lost. The tests take a sample; this runs all of it by hand:
    tests/scripts/faults_test.py --every 1 --allocations 0 --kills 170
with RIDGELINE, BUILD_DIR and SOURCE_DIR set as ctest does. Prints what was tried."""

import argparse
import collections
import gzip
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import mpi
import tool

STEPS = ("--threads", 1, "--set", "train.checkpoint_steps=2", "--set")
SIZES = ("--threads", 1, "--set", "train.max_steps=3")


def shim(name):
    return str(tool.BUILD / "tests" / f"{name}_shim.so")


def start(arguments, ranks=1, **env):
    under = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run([*under, tool.TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env=tool.environment(**mpi.ENVIRONMENT, **env))


def errors(done):
    """The lines of error: a good failure has one, and it is the last."""
    lines = done.stderr.splitlines()
    found = [line for line in lines if line.startswith("ridgeline: ") and not line.startswith("ridgeline: warning")]
    return found if found and lines[-1] == found[-1] else found + ["(not the last line)"]


class Saves:
    """Faults at each call that changes a file of a run that continues from step 4 to step 8, with saves at 6 and 8."""

    def __init__(self, folder, ranks):
        self.folder, self.out, self.ranks = folder, folder / "run", ranks
        self.base, whole = folder / "base", folder / "whole"
        for out, steps in ((self.base, 4), (whole, 8)):
            done = start(["train", folder.config, "--quiet", "--out", out, *STEPS, f"train.max_steps={steps}"], ranks)
            assert done.returncode == 0, done.stderr
        self.whole = self.files(whole)
        self.again = ["train", folder.config, "--out", self.out, "--resume", *STEPS, "train.max_steps=8"]

    @staticmethod
    def files(out):
        return {name: tool.tensors(out / name) for name in ("checkpoint.safetensors", "model.safetensors")}

    def begin(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.base, self.out)

    def faulty(self, arguments, fault, at, **env):
        return start(arguments, self.ranks, LD_PRELOAD=shim("io"), RIDGELINE_FAULT=f"{fault}:{at}",
                     RIDGELINE_FAULT_UNDER=str(self.out), **env)

    def was_killed(self, done):
        return done.returncode == -9 if self.ranks == 1 else done.returncode != 0

    def calls(self, arguments):
        count = self.folder / "count"
        count.unlink(missing_ok=True)
        done = self.faulty(arguments, "count", 0, RIDGELINE_FAULT_COUNT=str(count))
        assert done.returncode == 0, done.stderr
        return max(map(int, count.read_text().split()))  # of the rank that writes

    def complete(self, what):
        """After any fault, the run continues to the same bits as an undisturbed one."""
        done = start(self.again, self.ranks)
        assert done.returncode == 0, f"{what}: {done.stderr}"
        assert self.files(self.out) == self.whole, f"{what}: other weights than without the fault"
        assert not list(self.out.glob("*.tmp")), f"{what}: temporary files are left"

    def each(self, every):
        tried = collections.Counter()
        self.begin()
        calls = self.calls(self.again)
        for number, fault in enumerate(("kill", "half", "eio", "full", "quota")):
            for at in range(1 + number % every, calls + 1, every):
                what = f"{fault} at call {at} of {calls}"
                self.begin()
                done = self.faulty(self.again, fault, at)
                if fault in ("kill", "half"):
                    assert self.was_killed(done), f"{what}: exit {done.returncode}"
                elif done.returncode == 0:
                    assert self.files(self.out) == self.whole, f"{what}: said to be good, and is not"
                else:
                    one = self.ranks > 1 or len(errors(done)) == 1
                    assert done.returncode == 5 and one, f"{what}: {done.returncode} {done.stderr}"
                self.complete(what)
                tried[fault] += 1
        self.begin()
        done = self.faulty(self.again, "short", 0)
        assert done.returncode == 0, done.stderr
        self.complete("short writes")
        tried["short"] += 1
        return tried

    def replaced(self, every):
        """A kill at each call of a run that replaces another (--force): one of the two is there and can be resumed."""
        other = ["train", self.folder.config, "--out", self.out, "--force", *STEPS, "train.max_steps=8", "--set",
                 "train.seed=4"]
        self.begin()
        calls = self.calls(other)
        new = self.files(self.out)
        tried = collections.Counter()
        for at in range(1, calls + 1, every):
            self.begin()
            done = self.faulty(other, "kill", at)
            assert self.was_killed(done), done.returncode
            done = start(["train", "--resume", self.out, *STEPS, "train.max_steps=8"], self.ranks)
            assert done.returncode == 0, f"--force, kill at call {at} of {calls}: {done.stderr}"
            assert self.files(self.out) in (self.whole, new), f"--force, kill at call {at} of {calls}: other weights"
            tried["kill of --force"] += 1
        return tried


def allocations(folder, most):
    """A failing allocation at each place in the program that makes one; `most` of them at random, 0: all."""
    model, out, rows = folder / "model", folder / "made", folder / "rows.csv"
    images = folder.data / "t10k-images-idx3-ubyte"
    tool.run("infer", model, "--input", images, "--output", rows, "--threads", 1, "--no-tune")
    good = rows.read_bytes()
    commands = {"train": ["train", folder.config, "--out", out, *SIZES],
                "infer": ["infer", model, "--input", images, "--output", rows, "--threads", 1, "--no-tune"]}
    tried = collections.Counter()
    for name, arguments in commands.items():
        sites = folder / "sites"
        done = start(arguments, LD_PRELOAD=shim("alloc"), RIDGELINE_FAIL_ALLOC_SITES=str(sites))
        assert done.returncode == 0, done.stderr
        places = list(map(int, sites.read_text().split()))
        chosen = places if most == 0 else random.Random(7).sample(places, min(most, len(places)))
        for at in chosen:
            shutil.rmtree(out, ignore_errors=True)
            rows.unlink(missing_ok=True)
            done = start(arguments, LD_PRELOAD=shim("alloc"), RIDGELINE_FAIL_ALLOC=str(at))
            what = f"{name}, allocation {at}: exit {done.returncode}: {done.stderr}"
            assert done.returncode in (0, 6), what
            if done.returncode == 6:
                assert len(errors(done)) == 1, what
            elif name == "infer":
                assert rows.read_bytes() == good, what
            assert not rows.exists() or rows.read_bytes() == good, f"{what}: half of a file is left"
            tried[f"allocations of {name}"] += 1
            tried[f"allocations of {name} that ended it"] += done.returncode == 6
        leaks(folder, arguments, chosen[::4] if most else chosen, name, tried)
    return tried


def leaks(folder, arguments, places, name, tried):
    """Leaks after a failed allocation, found by LeakSanitizer. A constructor of nlohmann's JSON (3.11) that throws leaks
    what it has made so far, which we cannot fix."""
    library = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True, text=True).stdout.strip()
    if "/" not in library:
        return
    found = 23  # the exit code of LeakSanitizer
    known = folder / "known-leaks"
    known.write_text("leak:nlohmann\n")
    for at in [0, *places]:  # 0: none fails
        done = start(arguments + (["--force"] if name == "train" else []),
                     LD_PRELOAD=f"{shim('alloc')} {library}", RIDGELINE_FAIL_ALLOC=str(at),
                     LSAN_OPTIONS=f"exitcode={found}:fast_unwind_on_malloc=0:suppressions={known}:print_suppressions=0")
        assert done.returncode in (0, 6), f"{name}, leaks after allocation {at}: exit {done.returncode}: {done.stderr}"
        tried[f"leaks looked for in {name}"] += 1


def rank_allocations(folder, ranks, most):
    """An allocation that fails in one of several ranks: all ranks end, and the last line is that rank's."""
    if mpi.missing():
        return {}
    script, images = folder / "one-rank.sh", folder.data / "t10k-images-idx3-ubyte"
    script.write_text('#!/bin/sh\nif [ $OMPI_COMM_WORLD_RANK = "$FAULTY_RANK" ]; then export LD_PRELOAD="$FAULTY_PRELOAD"; fi\n'
                      f'exec "{tool.TOOL}" "$@"\n')
    script.chmod(0o755)
    tried, draw = collections.Counter(), random.Random(7)
    out, rows = folder / "made-by-ranks", folder / "rows-of-ranks.csv"
    commands = {"train": ["train", folder.config, "--out", out, "--force", *SIZES],
                "infer": ["infer", folder / "model", "--input", images, "--output", rows, "--threads", 1, "--no-tune"]}

    def run(rank, arguments, **env):
        process = subprocess.Popen(["mpirun", "-n", str(ranks), str(script), *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True, env=tool.environment(
                                       **mpi.ENVIRONMENT, FAULTY_RANK=str(rank), FAULTY_PRELOAD=shim("alloc"), **env))
        code, _, _, err = mpi.end(process, 60)
        return code, mpi.ours(err), err

    for name, arguments in commands.items():
        for rank in (0, 1):
            sites = folder / "sites"
            code, _, err = run(rank, arguments, RIDGELINE_FAIL_ALLOC_SITES=str(sites))
            assert code == 0, err
            good = rows.read_bytes() if name == "infer" else None
            places = list(map(int, sites.read_text().split()))
            for at in places if most == 0 else draw.sample(places, min(most, len(places))):
                rows.unlink(missing_ok=True)
                code, lines, err = run(rank, arguments, RIDGELINE_FAIL_ALLOC=str(at))
                what = f"{name}, allocation {at} of rank {rank} of {ranks}: exit {code}: {err}"
                assert code in (0, 6), what
                assert code == 0 or (lines and "memory" in lines[-1]), what
                assert not rows.exists() or rows.read_bytes() == good, what
                tried[f"allocations of a rank of {name}"] += 1
                tried[f"allocations of a rank of {name} that ended all"] += code == 6
    return tried


class Served:
    """A server whose requests go over new and kept connections; `fails` is the allocation that fails."""

    def __init__(self, folder, fails=0, sites=None):
        more = {"RIDGELINE_FAIL_ALLOC_SITES": str(sites)} if sites else {}
        self.process = subprocess.Popen(
            [tool.TOOL, "serve", folder / "model", "--port", "0", "--no-tune", "--io-threads", "1", "--access-log",
             folder / "log"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=tool.environment(LD_PRELOAD=shim("alloc"), RIDGELINE_FAIL_ALLOC=str(fails), **more))
        self.port = None  # it did not start
        for line in self.process.stderr:
            if found := re.search(r"on http://\S+:(\d+)$", line):
                self.port = int(found.group(1))
                break
        pixels = list((folder.data / "t10k-images-idx3-ubyte").read_bytes()[16:16 + 36 * 40])
        tensor = {"name": "input", "shape": [40, 6, 6], "datatype": "UINT8", "data": pixels}
        self.body = json.dumps({"inputs": [tensor]})

    def ask(self, connection, method, path, body=None, headers={}):
        """The status, or None if the connection was cut off."""
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request opens another
            return None

    def requests(self):
        kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        zipped = gzip.compress(self.body.encode())
        return [self.ask(kept, "POST", "/v2/models/model/infer", self.body),
                self.ask(kept, "POST", "/v2/models/model/infer", zipped,
                         {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}),
                self.ask(kept, "GET", "/metrics"), self.ask(kept, "GET", "/v2/health/ready"),
                self.ask(kept, "POST", "/v2/models/model/infer", "{")]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def serving(folder, most):
    """A failing allocation at each place where a server makes one to answer: that answer may fail, the next ones do
    not. Descriptions and loads of models are left out: destructors of nlohmann's JSON (3.11) allocate, and end the
    process when they cannot."""
    tried = collections.Counter()
    good, sites = [200] * 4 + [400], folder / "sites"
    with Served(folder, sites=sites) as server:
        before = len(sites.read_text().split())
        assert server.requests() == good
        places = list(map(int, sites.read_text().split()))[before:]
        code, said = server.end()
        assert code == 0, said
    for at in places if most == 0 else random.Random(7).sample(places, min(most, len(places))):
        with Served(folder, at) as server:
            if server.port is None:  # allocations of threads are not always in the same order
                assert server.process.wait() == 6, f"serve, allocation {at}: exit {server.process.returncode}"
                tried["allocations of serve that ended its start"] += 1
                continue
            first = server.requests()
            second = server.requests()
            code, said = server.end()
        tried["allocations of serve"] += 1
        tried["allocations of serve that failed a request"] += first != good
        assert second == good and code == 0, f"serve, allocation {at}: {first}, then {second}, exit {code}: {said}"
    return tried


def processes(session):
    """Those that belong to a session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                state, *_, own = file.read().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(own) == session and state != "Z":
            found.append(int(pid))
    return found


def kills(folder, count, ranks):
    """kill -9 at random moments of train (each continues where the last was killed), sweep and infer. With several ranks,
    one of them or their launcher is killed."""
    chance = random.Random(11)
    tried = collections.Counter()
    out, whole = folder / "killed", folder / "unbroken"
    arguments = ["train", folder.config, "--threads", 1, "--set", "train.epochs=1000000", "--set",
                 "train.eval_every=100000", "--set", "train.checkpoint_steps=5", "--out"]

    def run(*what):
        done = start(what, ranks)
        assert done.returncode == 0, (what, done.stderr)

    begin = time.monotonic()
    run(*arguments, out, "--set", "train.max_steps=5")
    launching = time.monotonic() - begin if ranks > 1 else 0

    def killed(what, least, most):
        under = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        process = subprocess.Popen([*under, tool.TOOL, *map(str, what)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=tool.environment(**mpi.ENVIRONMENT), start_new_session=True)
        time.sleep(chance.uniform(least + 0.3 * launching, most + launching))
        victims = processes(process.pid)
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
        try:
            said = process.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:  # mpirun waits inside of PMIx for a lock of its own
            assert processes(process.pid) == [process.pid], f"ranks are left: {what}"
            process.kill()
            said = process.communicate()[1]
            tried[f"{what[0]}: mpirun alone did not end"] += 1
        deadline = time.monotonic() + 30
        while processes(process.pid):  # the ranks of a launcher that is gone
            assert time.monotonic() < deadline, f"ranks are left: {said}"
            time.sleep(0.02)
        # mpirun says 137 of a rank that was killed; 7 is what the other ranks end with.
        assert process.returncode in ((-9, 0) if ranks == 1 else (-9, 0, 7, 137)), (process.returncode, said)
        tried[what[0]] += process.returncode != 0

    for _ in range(count):
        killed([*arguments, out, "--resume"], 0.02, 0.3)
    state = tool.read_safetensors(out / "checkpoint.safetensors")[1]["ridgeline.checkpoint"]
    steps = ("--set", f"train.max_steps={json.loads(state)['step'] + 7}")
    run(*arguments, out, "--resume", *steps)
    run(*arguments, whole, *steps)
    assert tool.tensors(out / "checkpoint.safetensors") == tool.tensors(whole / "checkpoint.safetensors"), \
        "other weights than without the kills"

    model, rows, study = folder / "model", folder / "killed.csv", folder / "study"
    images = folder.data / "train-images-idx3-ubyte"
    infer = ["infer", model, "--input", images, "--output", rows, "--threads", 1, "--no-tune"]
    run(*infer)
    good = rows.read_bytes()
    for _ in range(count):
        rows.unlink(missing_ok=True)
        killed(infer, 0.0, 0.06)
        assert not rows.exists() or rows.read_bytes() == good, "infer left half of a file"
    run(*infer)
    assert rows.read_bytes() == good, "infer after the kills"

    sweep = ["sweep", folder.config, "--force", "--threads", 1, "--set", "train.max_steps=3", "--set", "train.seed=1,2,3", "--out",
             study]
    for _ in range(count):
        killed(sweep, 0.0, 0.25)
    run(*sweep)
    assert len((study / "sweep.csv").read_text().splitlines()) == 4, "sweep after the kills"
    return tried


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=13)
    parser.add_argument("--allocations", type=int, default=15)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1, help="of the runs whose saves fail, and that are killed")
    parser.add_argument("--only", choices=("saves", "replaced", "allocations", "ranks", "serving", "kills"))
    given = parser.parse_args()
    if tool.sanitized():
        print("skipped: a sanitizer's library would have to be loaded first")
        sys.exit(77)
    folder = tool.Folder()
    try:
        saves = Saves(folder, given.ranks)
        tool.run("train", folder.config, "--quiet", "--out", folder / "model", *SIZES)
        parts = {"saves": lambda: saves.each(given.every), "replaced": lambda: saves.replaced(given.every),
                 "allocations": lambda: allocations(folder, given.allocations),
                 "ranks": lambda: rank_allocations(folder, max(2, given.ranks), given.allocations // 4),
                 "serving": lambda: serving(folder, given.allocations),
                 "kills": lambda: kills(folder, given.kills, given.ranks)}
        for part in [given.only] if given.only else parts:
            for what, times in parts[part]().items():
                print(f"{what}: {times}", flush=True)
    finally:
        folder.close()


main()
