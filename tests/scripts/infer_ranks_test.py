"""Inference over several ranks under a real mpirun gives the results of one process with every
transport, and leaves the right files when ranks die."""

import json
import os
import re
import signal
import subprocess
import time

import mpi
import tool
from mpi import end, launch, ours, ranks_of

mpi.need()

ALIKE = ("--no-tune", "--threads", "1")  # else another plan may round differently


class Long:
    """An input that takes a while: the model processes its many images one by one."""

    def __init__(self, folder, samples=60000, name="long.raw"):
        self.path = folder / name
        self.samples = samples
        pixels, _ = tool.images(1000, 5)
        with open(self.path, "wb") as out:
            for _ in range(samples // 1000):
                out.write(pixels)
        self.flags = ["--input", self.path, "--batch", "1", "--labels-only", *ALIKE]

    def lines(self, path):
        text = path.read_text()
        assert text.endswith("\n"), "the last line is torn"
        lines = text.splitlines()
        assert lines[0] == "index,label", lines[0]
        assert all(line.startswith(f"{i},") for i, line in enumerate(lines[1:])), "a gap"
        return lines[1:]


def wait_for_results(path, process, least=2000):
    """Waits until some results are in the unfinished file."""
    for _ in range(400):
        if path.exists() and path.stat().st_size > least:
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"no results came\n{end(process, 1)}")


def test_results(folder, model, source):
    one = folder / "one.csv"
    tool.run("infer", model, "--input", source, "--output", one, "--batch", 3, *ALIKE)
    want = one.read_text()
    labels = folder / "labels.csv"
    tool.run("infer", model, "--input", source, "--output", labels, "--batch", 3, "--labels-only",
             *ALIKE)
    assert labels.read_text().splitlines() == [",".join(line.split(",")[:2])
                                               for line in want.splitlines()]
    for transport in ("credits", "interleaved", "nonblocking", "blocking", "scatter"):
        many, report = folder / "many.csv", folder / "report.json"
        code, _, _, err = end(launch(3, "infer", model, "--input", source, "--output", many,
                                     "--batch", 3, *ALIKE, "--transport", transport, "--json", report,
                                     "--trace", folder / "trace.json"), 60)
        assert code == 0, err
        assert many.read_text() == want, transport
        many.unlink()
        result = json.loads(report.read_text())
        assert result["inputs"] == 100 and result["transport"] == transport
        assert [r["rank"] for r in result["ranks"]] == [0, 1, 2]
        assert sum(d["samples"] for r in result["ranks"] for d in r["devices"]) == 100
        assert "first in" in err and "idle%" in err, err  # the table
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        computed = [e for e in events if e.get("name") == "compute"]
        assert len(computed) == 34
        arrived = [e for e in events if e.get("name") == "chunk in"]
        assert all(e["pid"] > 0 for e in arrived)
        if transport == "scatter":  # it waits for all; else the root may be done before others start
            assert arrived and {e["pid"] for e in computed} == {0, 1, 2}
    code, _, _, err = end(launch(3, "infer", model, "--input", source, "--output",
                                 folder / "parts.csv", "--batch", 3, *ALIKE, "--sharded-input"), 60)
    assert code == 0 and (folder / "parts.csv").read_text() == want, err
    assert not list(folder.path.glob("parts.csv.*"))


def check_times(rank):
    """All times of a rank are there, in a possible order."""
    for device in rank["devices"]:
        steps = [rank["start"], device["memory_ready"], device["engine_ready"],
                 device["compute_start"], device["compute_end"], rank["results_out"]]
        assert steps == sorted(steps), steps
        arrivals = [rank["start"], device["first_in"], device["last_in"], device["compute_end"]]
        assert arrivals == sorted(arrivals) and device["first_in"] <= device["compute_start"], device


def test_shares(folder, model):
    """Every rank computes a part of an input that takes longer than the other ranks' start. A short input suffices on a
    quiet machine; a longer one is tried if the root was done before the others started."""
    for transport in ("credits", "interleaved", "nonblocking", "blocking"):
        out, report, trace = folder / "shares.csv", folder / "shares.json", folder / "shares-trace.json"
        for count in (3000, 12000, 60000):
            long = Long(folder, count, "shares.raw")
            code, _, _, err = end(launch(3, "infer", model, *long.flags, "--output", out, "--transport",
                                         transport, "--json", report, "--trace", trace), 120)
            assert code == 0, err
            out.unlink()
            ranks = json.loads(report.read_text())["ranks"]
            samples = [sum(d["samples"] for d in r["devices"]) for r in ranks]
            assert len(samples) == 3 and sum(samples) == long.samples, (transport, samples)
            if all(samples):
                break
        assert all(samples), (transport, samples)
        for rank in ranks:
            check_times(rank)
        events = json.loads(trace.read_text())["traceEvents"]
        for name, pids in (("memory", {0, 1, 2}), ("engine", {0, 1, 2}), ("chunk in", {1, 2}),
                           ("compute", {0, 1, 2}), ("results out", {0, 1, 2})):
            assert {e["pid"] for e in events if e.get("name") == name} == pids, (transport, name)


def unlike(folder, model, of_rank_1, *flags_of_rank_1):
    """The output of ranks of which the second was started with other arguments."""
    script = folder / "differs.sh"
    script.write_text(f'#!/bin/sh\nm="{model}"; f=\n'
                      f'[ $OMPI_COMM_WORLD_RANK = 1 ] && m="{of_rank_1}" && f="{" ".join(flags_of_rank_1)}"\n'
                      f'exec "{tool.TOOL}" infer "$m" --input "{folder / "unlike.idx"}" --output '
                      f'"{folder / "mixed.csv"}" $f\n')
    script.chmod(0o755)
    process = subprocess.Popen(["mpirun", "-n", "2", str(script)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=tool.environment(**mpi.ENVIRONMENT),
                               start_new_session=True)
    code, _, _, err = end(process, 120)
    assert code == 7 and not (folder / "mixed.csv").exists(), (code, err)
    return ours(err)[-1]


def test_unlike_ranks(folder, model, source):
    """One rank has another model or other flags."""
    (folder / "unlike.idx").symlink_to(source)
    other = folder / "other"
    tool.run("train", folder.config, "--quiet", "--out", other, "--set", "train.seed=4")
    said = unlike(folder, model, other)
    assert re.search(r"rank 1 .*another model", said), said
    for flags, named in ((("--labels-only",), "labels-only = true"), (("--format", "json"), "format = json"),
                         (("--sharded-input",), "sharded-input = true"), (("--transport", "scatter"), "transport = scatter")):
        said = unlike(folder, model, model, *flags)
        assert re.search(rf"rank 1 .*other flags.*{named}", said), said


def test_killed(folder, model, long, rank):
    """Without --survive: exit code 7, the rank named, a prefix kept."""
    out = folder / f"killed{rank}.csv"
    part = folder / f"killed{rank}.csv.part"
    process = launch(3, "infer", model, *long.flags, "--output", out)
    wait_for_results(part, process)
    os.kill(ranks_of(process, 3)[rank], signal.SIGKILL)
    code, seconds, _, err = end(process, 20)
    assert code != 0 and seconds < 5, (code, seconds)
    assert not out.exists()
    if rank == 0:
        return  # it had no chance to finish its line; and mpirun may end the others before they speak
    said = [line for line in ours(err) if re.search(rf"rank {rank} .*lost", line)]
    assert said, err
    found = re.search(r"the first (\d+) results are in (\S+)", said[-1])
    assert found and found.group(2) == str(part), said
    lines = long.lines(part)
    assert len(lines) == int(found.group(1)) and 0 < len(lines) < long.samples


def test_stopped(folder, model, long):
    """SIGTERM to one process alone, and to the root of several: what is written is a prefix."""
    for ranks in (1, 3):
        out, part = folder / "stopped.csv", folder / "stopped.csv.part"
        if ranks == 1:
            process = subprocess.Popen(
                [tool.TOOL, "infer", str(model), *map(str, long.flags), "--output", str(out)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=tool.environment())
        else:
            process = launch(ranks, "infer", model, *long.flags, "--output", out)
        wait_for_results(part, process)
        os.kill(process.pid if ranks == 1 else ranks_of(process, ranks)[0], signal.SIGTERM)
        code, _, _, err = end(process, 20)
        assert code == 143, (code, err)
        found = re.search(r"stopped by a signal; the first (\d+) results are in", err)
        lines = long.lines(part)
        assert found and 0 < int(found.group(1)) <= len(lines) < long.samples, err
        assert not out.exists()
        part.unlink()


def test_survives(folder, model, long, how, extra=()):
    """With --survive and a launcher that allows it: all results, whichever rank dies."""
    out = folder / "survived.csv"
    process = launch(4, "infer", model, *long.flags, "--output", out, "--survive",
                     mpirun=("--enable-recovery", *extra), RIDGELINE_WATCH="2")
    wait_for_results(folder / "survived.csv.part", process)
    os.kill(ranks_of(process, 4)[2], how)
    code, _, _, err = end(process, 300)
    assert code == 0, (code, err)
    assert re.search(r"rank 2 .*; its chunks go to others", err), err
    assert len(long.lines(out)) == long.samples
    one = (folder / "long-one.csv").read_text()
    assert out.read_text() == one, "a result is not its own"
    out.unlink()


def test_survives_at_calls(folder, model, long):
    """With --survive, a rank that dies at a call of MPI at which others may wait for it: the last broadcast, which goes
    from rank to rank and out of which the root is at once; the barriers at the end; and MPI's own end."""
    shim = tool.BUILD / "tests" / "mpi_shim.so"
    if not shim.exists():
        print("not tried: no library that kills a rank at a call (a sanitizer's would have to come first)")
        return
    out, counts = folder / "calls.csv", folder / "calls"

    def run(**env):
        names = [word for name in ("LD_PRELOAD", *env) for word in ("-x", name)]
        code, _, _, err = end(launch(4, "infer", model, *long.flags, "--output", out, "--survive", RIDGELINE_WATCH="2",
                                     mpirun=("--enable-recovery", *names), LD_PRELOAD=str(shim), **env), 120)
        assert code == 0, (env, code, err)
        assert out.read_text() == (folder / "long-one.csv").read_text(), "a result is not its own"
        out.unlink()
        return err

    run(RIDGELINE_COUNT_CALLS=str(counts))
    calls = dict(line.split() for line in (folder / "calls.1").read_text().splitlines())
    for call, later, rank in (("Bcast", 0, 1), ("Bcast", 0, 2), ("Barrier", 1, 1), ("Barrier", 0, 3), ("Finalize", 0, 2)):
        err = run(RIDGELINE_KILL_CALL=f"{call} {int(calls[call]) - later}", RIDGELINE_KILL_RANK=str(rank),
                  RIDGELINE_KILL_AFTER=str(out))
        seen = call == "Bcast" or later  # all agree that the work is done before the last barrier
        assert not seen or re.search(rf"rank {rank} .*lost", err), (call, later, rank, err)


def main():
    folder = tool.Folder(samples=203)
    try:
        model = folder / "run"
        tool.run("train", folder.config, "--quiet", "--out", model)
        source = folder.data / "t10k-images-idx3-ubyte"
        long = Long(folder)
        tool.run("infer", model, *long.flags, "--output", folder / "long-one.csv")
        tests = [lambda: test_results(folder, model, source),
                 lambda: test_shares(folder, model),
                 lambda: test_unlike_ranks(folder, model, source),
                 lambda: test_killed(folder, model, long, 1),
                 lambda: test_killed(folder, model, long, 0),
                 lambda: test_stopped(folder, model, long),
                 lambda: test_survives(folder, model, long, signal.SIGKILL),
                 lambda: test_survives(folder, model, long, signal.SIGKILL,
                                       ("--mca", "btl", "tcp,self")),
                 lambda: test_survives(folder, model, long, signal.SIGSTOP),
                 lambda: test_survives_at_calls(folder, model, long)]
        for number, test in enumerate(tests, 1):
            begin = time.monotonic()
            test()
            print(f"{number} of {len(tests)}: good, {time.monotonic() - begin:.1f} s", flush=True)
    finally:
        folder.close()


main()
