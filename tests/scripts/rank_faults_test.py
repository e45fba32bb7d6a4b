"""Kills, stops, slows down to a tenth or cuts off ranks from the network (for a while, or for good), or makes their clock
jump, at random moments. A run that can continue must end with the same bits as an undisturbed one; one that cannot must
end on all ranks, name the right rank, and be resumable. The network consists of namespaces, one host per rank, and needs
root. The tests take one moment of some faults; by hand, with RIDGELINE, BUILD_DIR and SOURCE_DIR set:
    tests/scripts/rank_faults_test.py --count 100
Prints what was tried."""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid

sys.dont_write_bytecode = True
import mpi
import tool

RANKS = 3
PATIENCE = "6"  # RIDGELINE_WATCH where a fault is for good, so that a hundred of them end today


class Network:
    """Hosts as network namespaces on a bridge, and what mpirun needs to start ranks there."""

    agent = '#!/bin/sh\nhost=$1; shift\nexec ip netns exec "{net}-${{host##*.}}" unshare -u sh -c "hostname {net}-${{host##*.}}; $*"\n'

    def __init__(self, folder, hosts):
        self.name = f"rl{os.getpid() % 100000}"
        # A subnet of this process's own, from those for private use.
        self.subnet = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.hosts = [f"{self.subnet}.{i + 1}" for i in range(hosts)]
        self.script = folder / "agent"
        self.script.write_text(self.agent.format(net=self.name))
        self.script.chmod(0o755)
        try:
            self.ip("link", "add", self.name, "type", "bridge")
            self.ip("addr", "add", f"{self.subnet}.254/24", "dev", self.name)
            self.ip("link", "set", self.name, "up")
            for i, host in enumerate(self.hosts, 1):
                space, port = f"{self.name}-{i}", f"{self.name}p{i}"
                self.ip("netns", "add", space)
                self.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
                self.ip("link", "set", port, "master", self.name, "up")
                for words in (("addr", "add", f"{host}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                              ("link", "set", "lo", "up")):
                    self.ip("-n", space, *words)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise RuntimeError(f"no network of namespaces here: {error}") from error

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def flags(self):
        net = f"{self.subnet}.0/24"
        return ["--host", ",".join(f"{host}:1" for host in self.hosts), "--mca", "plm_rsh_agent", str(self.script), "--mca",
                "oob_tcp_if_include", net, "--mca", "btl_tcp_if_include", net, "--mca", "btl", "tcp,self"]

    def set(self, rank, state):
        """"down": packets of the rank's host are lost without a word; "up": they pass again."""
        self.ip("link", "set", f"{self.name}p{rank + 1}", state)

    def close(self):
        for i in range(1, len(self.hosts) + 1):
            subprocess.run(["ip", "netns", "del", f"{self.name}-{i}"], capture_output=True)
            subprocess.run(["ip", "link", "del", f"{self.name}p{i}"], capture_output=True)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)


class Run:
    """A run of several ranks, which may be on hosts of a Network."""

    def __init__(self, arguments, network=None, ranks=RANKS, mpirun=(), **env):
        self.mark = uuid.uuid4().hex
        env = tool.environment(**mpi.ENVIRONMENT, **env, RIDGELINE_TEST_RUN=self.mark)
        passed = [word for name in ("RIDGELINE_TEST_RUN", "RIDGELINE_THREADS", "RIDGELINE_WATCH", "XDG_CACHE_HOME",
                                    "RIDGELINE_CLOCK_JUMPS", "LD_PRELOAD") if name in env for word in ("-x", name)]
        self.ranks = ranks
        self.process = subprocess.Popen(
            ["mpirun", "-n", str(ranks), *(network.flags() if network else ()), *passed, *mpirun, tool.TOOL,
             *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
            start_new_session=True)

    def pids(self):
        """The processes of the ranks that are there, by rank."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    if file.read().split("\0")[0] != tool.TOOL:
                        continue
                with open(f"/proc/{pid}/environ") as file:
                    entries = dict(e.split("=", 1) for e in file.read().split("\0") if "=" in e)
            except OSError:
                continue
            if entries.get("RIDGELINE_TEST_RUN") == self.mark and "OMPI_COMM_WORLD_RANK" in entries:
                found[int(entries["OMPI_COMM_WORLD_RANK"])] = int(pid)
        return found

    def started(self):
        """All ranks' processes, once they are there and have begun to work."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            found = self.pids()
            if len(found) == self.ranks:
                return found
            time.sleep(0.02)
        raise AssertionError(f"the ranks did not start\n{self.end(5)}")

    def end(self, seconds):
        return mpi.end(self.process, seconds)

    def gone(self, seconds):
        """Seconds until no rank is left; the launcher itself may wait longer for a host it cannot reach."""
        begin = time.monotonic()
        while self.pids():
            if time.monotonic() - begin > seconds:
                for pid in self.pids().values():
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"ranks are left after {seconds} s\n{self.end(1)}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def said(self):
        """What was said; ends a launcher that still waits."""
        try:
            return self.process.communicate(timeout=3)[1]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.communicate()[1]


class Training:
    """A run of some seconds, and its result without a fault."""

    def __init__(self, folder, name, network=None):
        self.folder, self.network, self.out = folder, network, folder / f"{name}-run"
        self.steps = 400
        while True:  # long enough that a moment within it can be met
            seconds = self.train(folder / name)
            if seconds > 2.5:
                break
            shutil.rmtree(folder / name)
            self.steps *= 2 if seconds > 1.5 else 8
        self.whole = self.tensors(folder / name)

    def words(self, out):
        # Sums between ranks that do not share memory; a checkpoint often.
        return ["train", self.folder.config, "--quiet", "--out", out, "--kernels", "!cpu.mlp_train_all_reduce", "--set",
                "train.epochs=1000000", "--set", f"train.max_steps={self.steps}", "--set", "train.checkpoint_steps=100",
                "--set", "train.log_steps=100"]

    @staticmethod
    def tensors(out):
        return [tool.tensors(out / name) for name in ("model.safetensors", "checkpoint.safetensors")]

    def train(self, out, *more, **env):
        begin = time.monotonic()
        run = Run([*self.words(out), *more], self.network, **env)
        code, _, _, err = run.end(300)
        assert code == 0, (code, err)
        return time.monotonic() - begin

    def begin(self, draw, **env):
        """A run at a random one of its steps, and the processes of its ranks."""
        shutil.rmtree(self.out, ignore_errors=True)
        run = Run(self.words(self.out), self.network, **env)
        pids = run.started()
        wanted = draw.uniform(0, 0.7) * self.steps
        while not (self.out / "checkpoint.safetensors").exists() or self.step() < wanted:
            if run.process.poll() is not None:
                break
            time.sleep(0.005)
        return run, pids

    def step(self):
        try:
            lines = (self.out / "metrics.jsonl").read_text().splitlines()
            return json.loads(lines[-1])["step"]
        except (OSError, ValueError, IndexError):
            return 0

    def strike(self, run, pid, how):
        """False if the run had ended before; its result is then checked."""
        try:
            os.kill(pid, how)
            return True
        except ProcessLookupError:
            self.goes_on(run, "ended before anything happened")
            return False

    def goes_on(self, run, what):
        code, _, _, err = run.end(120)
        assert code == 0, f"{what}: exit {code}\n{err}"
        assert self.tensors(self.out) == self.whole, f"{what}: other weights than without the fault"

    def ended(self, run, rank, seconds, what):
        """All ranks have ended in time, the lost rank is named, and the resumed run gives the same bits."""
        run.gone(seconds)
        said = mpi.ours(run.said())
        # To a rank that is cut off it is the root that is lost. If the root is killed nobody may be left to speak.
        named = {int(found) for line in said for found in re.findall(r"rank (\d+) \(", line)}
        assert named <= {0, rank} and (rank in named or rank == 0), f"{what}: rank {rank} is not named: {said}"
        self.train(self.out, "--resume")
        assert self.tensors(self.out) == self.whole, f"{what}: other weights after it was resumed"


# Each fault returns False where the run had ended before.
def killed(training, draw):
    run, pids = training.begin(draw)
    rank = draw.randrange(RANKS)
    if not training.strike(run, pids[rank], signal.SIGKILL):
        return False
    return training.ended(run, rank, 5, f"rank {rank} killed")


def stopped(training, draw):
    run, pids = training.begin(draw, RIDGELINE_WATCH=PATIENCE)
    rank = draw.randrange(RANKS)
    if not training.strike(run, pids[rank], signal.SIGSTOP):
        return False
    return training.ended(run, rank, 30, f"rank {rank} stopped")


def slowed(training, draw):
    """A tenth of its time for a second and a half: no rank is given up, and nothing is lost."""
    run, pids = training.begin(draw, RIDGELINE_WATCH=PATIENCE)
    pid, deadline = pids[draw.randrange(RANKS)], time.monotonic() + 1.5
    try:
        while time.monotonic() < deadline:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
    except ProcessLookupError:
        pass  # it has ended
    return training.goes_on(run, "a rank slowed to a tenth")


def clock(training, draw):
    run, _ = training.begin(draw, LD_PRELOAD=str(tool.BUILD / "tests" / "clock_shim.so"),
                            RIDGELINE_CLOCK_JUMPS=str(draw.randrange(1 << 30)))
    return training.goes_on(run, "clocks that jump")


def cut_and_healed(training, draw):
    run, _ = training.begin(draw)
    rank = draw.randrange(RANKS)
    training.network.set(rank, "down")
    time.sleep(draw.uniform(0.2, 3))
    training.network.set(rank, "up")
    return training.goes_on(run, f"the network of rank {rank} cut and healed")


def cut(training, draw):
    run, _ = training.begin(draw, RIDGELINE_WATCH=PATIENCE)
    rank = draw.randrange(1, RANKS)  # cut off from the root, everyone else would be the rank that is lost
    training.network.set(rank, "down")
    try:
        run.gone(30)
    finally:
        training.network.set(rank, "up")
    if run.process.poll() == 0:
        training.goes_on(run, "ended before its network was cut")
        return False
    return training.ended(run, rank, 0, f"the network of rank {rank} cut")


class Inference:
    """`infer --survive` of an input that takes some seconds, and its results by one process."""

    def __init__(self, folder):
        self.folder, self.model, self.source = folder, folder / "model", folder / "long.raw"
        tool.run("train", folder.config, "--quiet", "--out", self.model)
        self.source.write_bytes(tool.images(1000, 5)[0] * 40)
        self.flags = ["--input", self.source, "--batch", "1", "--labels-only", "--no-tune", "--threads", "1"]
        one = folder / "one.csv"
        tool.run("infer", self.model, *self.flags, "--output", one)
        self.whole = one.read_bytes()

    def survive(self, draw):
        out, part = self.folder / "survived.csv", self.folder / "survived.csv.part"
        run = Run(["infer", self.model, *self.flags, "--output", out, "--survive"], ranks=4,
                  mpirun=("--enable-recovery",), RIDGELINE_WATCH="2")
        pids = run.started()
        least = draw.uniform(0, 0.6 * len(self.whole))
        while run.process.poll() is None and not (part.exists() and part.stat().st_size > least):
            time.sleep(0.005)
        rank, how = draw.randrange(1, 4), draw.choice((signal.SIGKILL, signal.SIGSTOP))
        try:
            os.kill(pids[rank], how)
        except ProcessLookupError:
            pass  # all is done
        code, _, _, err = run.end(120)
        assert code == 0, f"infer --survive, rank {rank} {how.name}: exit {code}\n{err}"
        assert out.read_bytes() == self.whole, f"infer --survive, rank {rank} {how.name}: other results"
        out.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="moments of each fault; 0: one of those no other test has")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", help="this fault alone")
    given = parser.parse_args()
    mpi.need()
    if tool.sanitized():
        print("skipped: a sanitizer's library would have to be loaded first")
        sys.exit(77)
    print(f"seed {given.seed}")
    draw = random.Random(given.seed)
    folder, network, tried = tool.Folder(), None, collections.Counter()
    try:
        faults = {each.__name__: each for each in (slowed, clock, cut_and_healed, cut)}
        if given.count or given.only:
            faults |= {each.__name__: each for each in (killed, stopped)} | {"survive": None}
        faults = {given.only: faults[given.only]} if given.only else faults
        wired = {"cut", "cut_and_healed"}
        near = Training(folder, "near") if set(faults) - wired - {"survive"} else None
        far, inference = None, Inference(folder) if "survive" in faults else None
        if wired & set(faults):
            try:
                network = Network(folder.path, RANKS)
                far = Training(folder, "far", network)
            except RuntimeError as error:
                print(f"not tried: {error}")
        for name, fault in faults.items():
            if name in wired and far is None:
                continue
            while tried[name] < (given.count or 1):
                if name == "survive":
                    inference.survive(draw)
                    tried[name] += 1
                else:
                    tried[name] += fault(far if name in wired else near, draw) is not False
            print(f"{name}: {tried[name]}", flush=True)
    finally:
        if network:
            network.close()
        folder.close()


main()
