"""Several ranks under a real mpirun compute what one does, and end together."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import mpi
import tool
from mpi import end, launch, ours, ranks_of

mpi.need()


# By default the ranks make the config's step in shared memory, where they do not wait for a rank that
# is gone. With this setting they sum gradients with messages.
APART = ["--kernels", "!cpu.mlp_train_all_reduce"]
LONG = ["--set", "train.epochs=1000000", "--set", "train.checkpoint_seconds=1"]


def steps(folder):
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    except (OSError, ValueError, IndexError):
        return 0


def running(folder, process):
    """Waits until steps are being made and a checkpoint is there."""
    for _ in range(400):
        if steps(folder) > 0 and (folder / "checkpoint.safetensors").exists():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(f"no step was made\n{end(process, 1)}")


def test_results(folder):
    one = tool.run("train", folder.config, "--json", "-", "--quiet", "--out", folder / "one")
    many = launch(3, "train", folder.config, "--json", "-", "--quiet", "--out", folder / "three",
                  "--trace", folder / "trace.json", "--report", folder / "page")
    code, _, out, err = end(many, 120)
    assert code == 0, err
    a, b = json.loads(one.stdout), json.loads(out)
    assert b["kernels"] == ["cpu.mlp_train_all_reduce.shared"], b["kernels"]
    assert b["ranks"] == 3 and len(b["rank_train_seconds"]) == 3
    assert a["steps"] == b["steps"]
    assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"], (a["loss"], b["loss"])
    assert a["accuracy"] == b["accuracy"]
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    for rank in range(3):  # every rank has a lane with all its steps
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"] == "launch"]
        assert sum(e["args"]["steps"] for e in spans) == b["steps"], (rank, spans)
    page = (folder / "page/report.html").read_text()
    assert all(f"rank {rank}" in page for rank in (1, 2)) and "<h2>Plan</h2>" in page, page[:2000]
    evaluated = launch(2, "eval", folder / "three", "--json", "-")
    code, _, out, err = end(evaluated, 60)
    assert code == 0 and json.loads(out)["accuracy"] == b["accuracy"], err


def test_resume_with_other_ranks(folder):
    half = ["--set", "train.max_steps=20"]
    code, _, _, err = end(launch(3, "train", folder.config, *half, "--out", folder / "r"), 120)
    assert code == 0, err
    code, _, out, err = end(
        launch(2, "train", folder.config, "--out", folder / "r", "--resume", "--json", "-",
               "--quiet"), 120)
    assert code == 0, err
    resumed = json.loads(out)
    assert resumed["steps_here"] == resumed["steps"] - 20
    assert "made by 3 ranks, this run has 2" in err, err
    whole = json.loads(tool.run("train", folder.config, "--json", "-", "--quiet").stdout)
    assert abs(whole["loss"] - resumed["loss"]) < 1e-5 * whole["loss"]


def test_killed(folder, rank, name, *options):
    process = launch(3, "train", folder.config, *LONG, *options, "--out", folder / name)
    running(folder / name, process)
    os.kill(ranks_of(process, 3)[rank], signal.SIGKILL)
    code, seconds, _, err = end(process, 20)
    assert code != 0 and seconds < 5, (code, seconds)
    lines = ours(err)
    assert lines and re.search(rf"rank {rank} .*lost", lines[-1]), err
    code, _, _, err = end(
        launch(2, "train", folder.config, *options, "--set", "train.epochs=1000000", "--set",
               f"train.max_steps={steps(folder / name) + 5}", "--out", folder / name, "--resume"),
        60)
    assert code == 0, err


# A separate /dev/shm that is full from the start, or once the ranks have taken the least they need: sums
# and steps use other kernels, and no rank is killed by a missing page.
def test_no_shared_memory(folder):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        print("no shared memory: not tried, it needs root")
        return
    late = ("(for i in $(seq 500); do [ $(df --output=used /dev/shm | tail -1) -gt 4100 ] && break; sleep 0.01; done;"
            " dd if=/dev/zero of=/dev/shm/full bs=64k 2>/dev/null) &")
    for size, filler in (("1m", ""), ("64m", late)):
        under = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm; {filler} exec "$@"', "sh"]
        code, _, out, err = end(launch(2, "train", folder.config, "--json", "-", "--quiet", under=under), 60)
        assert code == 0, (size, code, err)
        kernels = json.loads(out)["kernels"]
        if not filler:
            assert "cpu.mlp_train_all_reduce.shared" not in kernels, kernels


# The root as well, which the launcher wakes when the others have ended. Two runs at a time: each
# takes as long as the watch is patient.
def test_stopped(folder):
    runs = {}
    for rank in (0, 1):
        runs[rank] = launch(3, "train", folder.config, *LONG, "--out", folder / f"stop{rank}")
        running(folder / f"stop{rank}", runs[rank])
    for rank, process in runs.items():
        os.kill(ranks_of(process, 3)[rank], signal.SIGSTOP)
    for rank, process in runs.items():
        code, seconds, _, err = end(process, 30)
        assert code == 7 and seconds < 30, (code, seconds)
        lines = ours(err)
        assert any(re.search(rf"rank {rank} .*(not been heard of|was stopped)", line) for line in lines), err
        assert all(re.search(rf"rank {rank} ", line) for line in lines), err


def no_orphans(process, pids):
    """Kills the launcher: the processes end."""
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        if not left:
            break
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=10)
    assert not left, f"orphans: {left}"


def test_launcher_dies(folder):
    process = launch(3, "train", folder.config, *LONG, "--out", folder / "orphans")
    running(folder / "orphans", process)
    no_orphans(process, list(ranks_of(process, 3).values()))


def test_launcher_dies_at_the_start(folder):
    shim = list(tool.BUILD.glob("tests/mpi_shim.so"))
    if not shim:
        print("launcher dies at the start: not tried, for this build has no shim before MPI")
        return
    held = folder / "held"
    process = launch(3, "train", folder.config, mpirun=("-x", f"LD_PRELOAD={shim[0]}"), RIDGELINE_HOLD_INIT=str(held))
    pids = ranks_of(process, 3)
    deadline = time.monotonic() + 60
    while not all((folder / f"held.{rank}").exists() for rank in pids):
        assert time.monotonic() < deadline, "the ranks did not start"
        time.sleep(0.05)
    no_orphans(process, list(pids.values()))


def test_terminated(folder):
    process = launch(2, "train", folder.config, *LONG, "--out", folder / "term")
    running(folder / "term", process)
    for pid in ranks_of(process, 2).values():
        os.kill(pid, signal.SIGTERM)
    code, _, _, err = end(process, 20)
    assert code == 143, (code, err)
    assert "saved in" in err, err


def start_unlike(folder, ranks, of_rank_1, command):
    """Starts ranks that run `command` in a shell; the second one runs the lines `of_rank_1` before it."""
    script = folder / "unlike.sh"
    script.write_text(f'#!/bin/sh\ntool="{tool.TOOL}"\nif [ $OMPI_COMM_WORLD_RANK = 1 ]; then\n{of_rank_1}\nfi\n'
                      f'exec "$tool" {command}\n')
    script.chmod(0o755)
    return subprocess.Popen(["mpirun", "-n", str(ranks), str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=tool.environment(**mpi.ENVIRONMENT), start_new_session=True, cwd=folder.path)


def test_errors(folder):
    code, _, _, err = end(launch(2, "train", folder / "missing.toml"), 30)
    assert code == 2 and len(ours(err)) == 1, err
    # One rank has another config than the other, other data, or another build.
    other, data = folder / "other-build", folder / "elsewhere" / "data"
    shutil.copy(tool.TOOL, other)
    with open(other, "ab") as file:
        file.write(b"x")
    shutil.copytree(folder.data, data)
    pixels = bytearray((data / "train-images-idx3-ubyte").read_bytes())
    pixels[-1] ^= 1
    (data / "train-images-idx3-ubyte").write_bytes(pixels)
    tool.run("train", folder.config, "--quiet", "--out", folder / "alike", "--set", "train.max_steps=2")
    infer = f'infer "{folder / "alike"}" --input "{folder.data / "t10k-images-idx3-ubyte"}" --output "{folder / "unlike.csv"}"'
    for lines, command, says in (
            ("b=17", f'train "{folder.config}" --set train.batch=${{b:-16}}', "batch = 17"),
            ("cd elsewhere", f'train "{folder.config}" --set data.name=./data', "other data"),
            (f'tool="{other}"', f'train "{folder.config}"', "another build"),
            (f'tool="{other}"', infer, "another build")):
        code, _, _, err = end(start_unlike(folder, 2, lines, command), 60)
        assert code == 7, (code, err)
        assert len(ours(err)) == 1 and "rank 1" in ours(err)[0] and says in ours(err)[0], err
    assert not (folder / "unlike.csv").exists()


def test_a_rank_throws(folder):
    """A rank that cannot go on ends all: its message is the last line, and its exit code that of the launcher."""
    cut = folder / "cut-data"
    shutil.copytree(folder.data, cut)
    images = cut / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-5])
    lines = f'd="{cut}"'
    code, seconds, _, err = end(start_unlike(
        folder, 3, lines, f'train "{folder.config}" --set data.name="${{d:-{folder.data}}}"'), 60)
    assert code == 3 and "train-images-idx3-ubyte" in ours(err)[-1], (code, err)
    # A model file that one rank alone cannot read.
    tool.run("train", folder.config, "--quiet", "--out", folder / "thrown", "--set", "train.max_steps=2")
    damaged = folder / "thrown.safetensors"
    damaged.write_bytes((folder / "thrown" / "model.safetensors").read_bytes()[:-1])
    for command in (f'eval "${{m:-{folder / "thrown"}}}"',
                    f'infer "${{m:-{folder / "thrown"}}}" --input "{folder.data / "t10k-images-idx3-ubyte"}" --output '
                    f'"{folder / "thrown.csv"}"'):
        code, _, _, err = end(start_unlike(folder, 3, f'm="{damaged}"', command), 60)
        assert code == 3 and "thrown.safetensors" in ours(err)[-1], (code, err)
    assert not (folder / "thrown.csv").exists()


def test_unlike_evaluations(folder):
    """One rank evaluates another part, or in another precision."""
    tool.run("train", folder.config, "--quiet", "--out", folder / "eval", "--set", "train.epochs=1")
    for flags, named in (("--train-part", "other data"), ("--precision bf16", "precision = bf16")):
        code, _, out, err = end(start_unlike(folder, 2, f'f="{flags}"', f'eval "{folder / "eval"}" $f'), 60)
        assert code == 7 and out == "", (code, out, err)
        assert re.search(rf"rank 1 .*{named}", ours(err)[-1]), err


def test_missing_at_the_start(folder):
    """One rank ends before MPI has started, and the launcher takes that for its good end."""
    script = folder / "leaves.sh"
    gone = folder / "gone"  # the process that left: the other one starts when the launcher has noted that
    script.write_text(f'#!/bin/sh\nif [ $OMPI_COMM_WORLD_RANK = 1 ]; then echo $$ > "{gone}.new"; '
                      f'mv "{gone}.new" "{gone}"; exit 0; fi\n'
                      f'while [ ! -e "{gone}" ] || kill -0 $(cat "{gone}") 2>/dev/null; do sleep 0.1; done; sleep 1\n'
                      f'exec "{tool.TOOL}" train "{folder.config}"\n')
    script.chmod(0o755)
    process = subprocess.Popen(["mpirun", "-n", "2", str(script)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env=tool.environment(**mpi.ENVIRONMENT, RIDGELINE_WATCH="2"))
    code, _, _, err = end(process, 120)
    assert code == 7, (code, err)
    assert [line for line in ours(err) if "rank 0 has waited 20 s" in line], err


def test_verify(folder):
    done = tool.run("verify", folder.config, "--ranks", "3", "--json", folder / "verify.json",
                    env=tool.environment(**mpi.ENVIRONMENT))
    report = json.loads((folder / "verify.json").read_text())
    kinds = {(c["precision"], c["what"]) for c in report["comparisons"]}
    assert ("fp64", "3 ranks") in kinds and ("fp32", "3 ranks") in kinds, kinds
    assert report["good"] and done.stdout.splitlines()[-1] == "pass"


def test_profile_and_sums(folder):
    out = folder / "profile.json"
    code, _, text, err = end(launch(2, "profile", folder.config, "--seconds", "0.1", "--no-tune", "--json", out), 60)
    assert code == 0 and "ranks       2: " in text, (code, text, err)
    found = json.loads(out.read_text())
    assert found["ranks"]["count"] == 2 and found["ranks"]["bytes"] > 0
    assert any(kernel.get("network_bytes", 0) > 0 for kernel in found["kernels"])
    code, _, text, err = end(launch(2, "bench", "deepbench", "--part", "all-reduce", "--take", "7", "--seconds", "0"), 60)
    assert code == 0 and "count=100000 ranks=2" in text, (code, text, err)
    code, _, _, err = end(launch(2, "bench", "gemm", "--m", "8", "--n", "8", "--k", "8"), 60)
    assert code == 2 and ours(err) == ["ridgeline: bench gemm: start a single process, without mpirun"], (code, err)


def test_mpi(folder):
    """Which MPI it is, and whether it accepts GPU memory: this one does not, or says that it does."""
    shim = list(tool.BUILD.rglob("libmpi_device_shim.so"))

    def asked(*mpirun, **env):
        code, _, out, err = end(launch(2, "info", "--device", "cpu", "--json", "-", mpirun=mpirun, **env), 60)
        assert code == 0, err
        ranks = json.loads(out)["ranks"]
        assert ranks["count"] == 2 and "MPI" in ranks["mpi"]["library"], ranks
        return ranks["mpi"]["cuda_aware"]

    code, _, out, err = end(launch(2, "plan", folder.config, "--no-tune", "--device", "cpu"), 60)
    assert code == 0 and len(re.findall("^ranks: 2 over .*MPI.*, (host-only|CUDA-aware)$", out, re.M)) == 1, (out, err)
    code, _, _, err = end(launch(2, "plan", folder.config, "--ranks", "2", "--network", "1GB/s,1us"), 60)
    assert code == 2 and "start a single process" in err, (code, err)
    if not shim:
        print("mpi: only what MPI says itself, for this build has no shim before it")
        return
    preload = ("-x", f"LD_PRELOAD={shim[0]}")
    assert asked(*preload) is True
    assert asked(*preload, "-x", "RIDGELINE_SHIM_RANKS=1") is False  # one rank's library says so, one's not
    # The host's memory goes through as before.
    one = json.loads(tool.run("train", folder.config, "--json", "-", "--quiet").stdout)
    code, _, out, err = end(launch(2, "train", folder.config, *APART, "--json", "-", "--quiet", "--device", "cpu",
                                   mpirun=preload), 120)
    assert code == 0, err
    two = json.loads(out)
    assert two["network"]["mpi"]["cuda_aware"] is True, two["network"]
    assert abs(one["loss"] - two["loss"]) < 1e-5 * one["loss"], (one["loss"], two["loss"])


# The tool starts the ranks of a rung itself; started as ranks, it climbs the rung and tells of it.
def test_rung(folder):
    out = folder / "ladder.json"
    tool.run("ladder", "mlp", "--rung", "shared", "--ranks", "2", "--no-tune", "--seconds", "0", "--device", "cpu",
             "--json", out, env=tool.environment(**mpi.ENVIRONMENT))
    (rung,) = json.loads(out.read_text())["rungs"]
    assert rung["ranks"] == 2 and rung["batch"] == 1024 and 0 < rung["error"] <= rung["bound"], rung
    code, _, text, err = end(launch(2, "ladder", "mlp", "--rung", "shared", "--no-tune", "--seconds", "0",
                                    "--device", "cpu"), 120)
    assert code == 0, err
    head, row = text.splitlines()
    assert head.split()[0] == "rung" and row.split()[:3] == ["shared", "1024", "2"], text


def main():
    folder = tool.Folder(samples=203)
    tests = [test_results, test_resume_with_other_ranks,
             lambda f: test_killed(f, 1, "killed"), lambda f: test_killed(f, 0, "root"),
             lambda f: test_killed(f, 2, "apart", *APART), test_no_shared_memory, test_stopped,
             test_launcher_dies, test_launcher_dies_at_the_start, test_terminated, test_errors, test_a_rank_throws, test_unlike_evaluations,
             test_missing_at_the_start, test_verify, test_profile_and_sums, test_mpi, test_rung]
    try:
        for number, test in enumerate(tests, 1):
            begin = time.monotonic()
            test(folder)
            print(f"{number} of {len(tests)}: good, {time.monotonic() - begin:.1f} s", flush=True)
    finally:
        folder.close()


main()
