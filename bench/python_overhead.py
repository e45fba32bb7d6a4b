#!/usr/bin/env python3
"""Measures what the Python package costs over the library and the tool, alternating on the same machine.

usage: python_overhead.py RIDGELINE RESULT.json [--threads N] [--rounds N] [--seconds S] [--wheel FILE] [--peers FILE]

RIDGELINE is the tool; `import ridgeline` must find the package of the same build (PYTHONPATH=build/release/python). It
measures, each in rounds that take turns, of which the median counts:
- a prepared call with `out` given, beside the same call made from C++ in a loop; of 784-10 and 784-128-128-128-10, and,
  where onnxruntime is installed, its session.run() of the same net;
- fit() from a NumPy array beside `ridgeline train` on the same samples, a step of each of the four nets of `make bench`;
- the import of the package, in new processes;
- prepared calls in one thread and in as many as there are processors.
With --peers, the file that bench/peers/run has written on this machine, the steps of PyTorch (eager and compiled) and of JAX
stand beside fit()'s and the tool's.
"""
import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
from compare_cpu import read_peers

import ridgeline as rl
from ridgeline import nn

# The four nets of compare_cpu.py, with the activations of peers/peers_cpu.py.
NETS = [("784-128-128-128-10", 32, "relu"), ("784-512-10", 128, "relu"), ("784-512-10", 3000, "sigmoid"),
        ("784-1024-1024-1024-10", 32, "relu")]
GOALS = {"call_over_cpp_us": 1.0, "fit_over_tool": 1.03, "import_ms": 50.0, "wheel_mb": 10.0}


def model_of(net, activation=nn.ReLU, **keywords):
    widths = [int(width) for width in net.split("-")]
    layers = []
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1]), activation()]
    return rl.Model(nn.Sequential(*layers[:-1]), device="cpu", **keywords)


def micros(call, seconds):
    """Microseconds of a call: the median of batches of calls, each long enough for the clock."""
    for _ in range(200):
        call()
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 5:
        begin = time.perf_counter()
        for _ in range(200):
            call()
        taken.append(1e6 * (time.perf_counter() - begin) / 200)
    return statistics.median(taken)


def onnx_call(model, x):
    """A call of ONNX Runtime's session on one thread, or None."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.to_onnx(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})


def calls(rounds, seconds):
    rows = []
    for net in ("784-10", "784-128-128-128-10"):
        model = model_of(net)
        x, out = np.random.default_rng(1).random((1, 784), np.float32), np.empty((1, 10), np.float32)
        handle = model.compile(batch=1)
        runtime = onnx_call(model, x)
        cpp, python, onnx = [], [], []
        for _ in range(rounds):
            cpp.append(1e6 * handle.seconds_a_call(x, out, int(seconds * 2e5)))
            python.append(micros(lambda: handle(x, out), seconds))
            if runtime is not None:
                onnx.append(micros(runtime, seconds))
        row = {"net": net, "cpp_us": statistics.median(cpp), "python_us": statistics.median(python),
               "over_us": statistics.median(p - c for p, c in zip(python, cpp, strict=True))}
        if onnx:
            row["onnxruntime_us"] = statistics.median(onnx)
        rows.append(row)
    return rows


def tool_step(ridgeline, folder, net, batch, activation, epochs, threads):
    layers = f', {{ type = "{activation}" }}, '.join(f'{{ type = "linear", out = {n} }}' for n in net.split("-")[1:])
    (folder / "net.toml").write_text(f"""[data]
train = "{folder}/x.npy"
target = "{folder}/y.npy"
target_kind = "classes"
scale = "raw"
split = {{ test = 0.001 }}
[model]
layers = [{layers}]
[train]
batch = {batch}
epochs = {epochs}
optimizer = {{ type = "sgd", lr = 0.01 }}
""")
    done = subprocess.run([ridgeline, "train", str(folder / "net.toml"), "--device", "cpu", "--threads", str(threads),
                           "--json", "-", "--quiet"], capture_output=True, text=True, check=True, cwd=folder)
    report = json.loads(done.stdout)
    return 1e6 * batch / report["inputs_per_second"]


def fits(ridgeline, rounds, threads, seconds):
    rows = []
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        x, y = rng.random((12000, 784), np.float32), rng.integers(0, 10, 12000)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        for net, batch, activation in NETS:
            make = functools.partial(model_of, net, {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}[activation], optimizer="sgd",
                                     lr=0.01, threads=threads)
            rate = make().fit(x, y, epochs=1, batch_size=batch).samples_per_second
            epochs = max(1, int(seconds * rate / len(x)))
            ours, tool = [], []
            for _ in range(rounds):
                ours.append(1e6 * batch / make().fit(x, y, epochs=epochs, batch_size=batch).samples_per_second)
                tool.append(tool_step(ridgeline, folder, net, batch, activation, epochs, threads))
            rows.append({"net": net, "batch": batch, "fit_us": statistics.median(ours),
                         "tool_us": statistics.median(tool),
                         "ratio": statistics.median(o / t for o, t in zip(ours, tool, strict=True))})
    return rows


def import_milliseconds(rounds):
    """The median of new processes that read compiled bytecode, which pip makes when it installs a package."""
    script = "import time; t = time.perf_counter(); import ridgeline; print(1000 * (time.perf_counter() - t))"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        taken = [float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                                      env=environment).stdout) for _ in range(2 * rounds + 2)]
    return statistics.median(taken[1:])


def scaling(seconds):
    """Calls per second of handles with one thread each, by their number; the weights fit in a core's cache."""
    model = model_of("784-256-256-10")
    x = np.random.default_rng(1).random((32, 784), np.float32)
    rows = []
    for count in sorted({1, 2, os.cpu_count() or 1}):
        handles = [model.compile(batch=32) for _ in range(count)]
        made = [0] * count
        end = time.perf_counter() + seconds

        def work(i, handles=handles, made=made, end=end):
            out = np.empty((32, 10), np.float32)
            while time.perf_counter() < end:
                handles[i](x, out)
                made[i] += 1

        threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        rows.append({"threads": count, "calls_per_second": sum(made) / seconds})
    for row in rows:
        row["times"] = row["calls_per_second"] / rows[0]["calls_per_second"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ridgeline", type=os.path.abspath)
    parser.add_argument("result")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--wheel")
    parser.add_argument("--peers")
    given = parser.parse_args()
    result = {"version": rl.__version__, "python": platform.python_version(), "numpy": np.__version__,
              "threads": given.threads, "import_ms": import_milliseconds(given.rounds),
              "calls": calls(given.rounds, given.seconds), "scaling": scaling(given.seconds),
              "fit": fits(given.ridgeline, given.rounds, given.threads, given.seconds), "goals": GOALS}
    peers = read_peers(given.peers) if given.peers else {}
    for row in result["fit"]:
        times = peers.get((row["net"], row["batch"]), {})
        if times:
            best = min(times, key=times.get)
            row.update(peers_us=times, best_peer=best, ratio_of_fit=times[best] / row["fit_us"],
                       ratio_of_tool=times[best] / row["tool_us"])
    if given.wheel:
        result["wheel_mb"] = os.path.getsize(given.wheel) / 1e6
    with open(given.result, "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    print(f"import {result['import_ms']:.1f} ms (goal {GOALS['import_ms']:.0f})")
    for row in result["calls"]:
        onnx = f", ONNX Runtime {row['onnxruntime_us']:.2f} us" if "onnxruntime_us" in row else ""
        print(f"call of {row['net']}: {row['python_us']:.2f} us, {row['over_us']:.2f} us over C++ "
              f"(goal {GOALS['call_over_cpp_us']:.0f}){onnx}")
    for row in result["fit"]:
        print(f"fit of {row['net']} batch {row['batch']}: {row['fit_us']:.1f} us a step, the tool {row['tool_us']:.1f}: "
              f"{row['ratio']:.3f} of its time (goal {GOALS['fit_over_tool']})" +
              (f"; {row['best_peer']} takes {row['ratio_of_fit']:.2f} times as long as fit, {row['ratio_of_tool']:.2f} "
               "times as long as the tool" if "best_peer" in row else ""))
    for row in result["scaling"]:
        print(f"{row['threads']} threads: {row['calls_per_second']:.0f} calls/s, {row['times']:.2f} times one")
    if "wheel_mb" in result:
        print(f"wheel {result['wheel_mb']:.1f} MB (goal {GOALS['wheel_mb']:.0f})")


if __name__ == "__main__":
    main()
