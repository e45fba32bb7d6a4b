#!/usr/bin/env python3
"""Times one prediction on the CPU beside ONNX Runtime with IO binding, alternating on the same machine.

usage: compare_latency.py RIDGELINE LIBRIDGELINE.so RESULT.json [--rounds N] [--calls N] [--core N] [--note TEXT]
                          [--limits US,US,...]

Needs a Python with numpy, onnx and onnxruntime. One thread on one core, batch 1, fp32, the same weights on both sides. A
call is one call from Python: ridgeline_run or ridgeline_step by ctypes, run_with_iobinding. Each round times both; of each
the round with the least median counts, with its 99th percentile, so that whatever else the machine does favours nobody.
p99_all_us is the 99th percentile of the calls of all rounds. Our step carries the recurrent state from call to call; ONNX
Runtime begins with zeros at each. RESULT.json keeps a run for each machine; --limits are the times in which that core reads
the nets' weights, where they are known.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time
from datetime import date

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# name, widths of a perceptron or (layers, width) of an LSTM
NETS = [("784-10", [784, 10]), ("784-128-128-128-10", [784, 128, 128, 128, 10]), ("256-384-384-128", [256, 384, 384, 128]),
        ("LSTM 2x128, one step", (2, 128)), ("LSTM 3x256, one step", (3, 256))]
GOAL = 0.5  # of ONNX Runtime's time


def config(shape):
    if isinstance(shape, list):
        layers = ", { type = \"relu\" }, ".join(f'{{ type = "linear", out = {n} }}' for n in shape[1:])
    else:
        layers = f'{{ type = "lstm", layers = {shape[0]}, hidden = {shape[1]} }}, {{ type = "select" }}'
    return f"""[data]
train = "x.npy"
target = "y.npy"
target_kind = "values"
scale = "none"
target_scale = "none"
[model]
layers = [{layers}]
[train]
batch = 16
max_steps = 1
loss = "mse"
[run]
device = "cpu"
tune = false
"""


def make_model(tool, folder, shape):
    """A model file of ours, after one step of training on noise."""
    sample = [shape[0]] if isinstance(shape, list) else [1, shape[1]]
    outputs = shape[-1] if isinstance(shape, list) else shape[1]
    random = np.random.default_rng(1)
    np.save(folder / "x.npy", random.standard_normal([64, *sample], dtype=np.float32))
    np.save(folder / "y.npy", random.standard_normal([64, outputs], dtype=np.float32))
    (folder / "net.toml").write_text(config(shape))
    subprocess.run([tool, "train", "net.toml", "--out", "run", "--force"], cwd=folder, check=True, capture_output=True)
    return folder / "run" / "model.safetensors"


def read_weights(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + length:][slice(*e["data_offsets"])], np.float32).reshape(e["shape"])
            for name, e in header.items()}


def to_onnx(weights, shape):
    nodes, initializers = [], []

    def keep(name, array):
        initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    if isinstance(shape, list):
        x, dims = "x", [1, shape[0]]
        for i in range(len(shape) - 1):
            last = i == len(shape) - 2
            w, b = keep(f"w{i}", weights[f"{2 * i}.weight"]), keep(f"b{i}", weights[f"{2 * i}.bias"])
            nodes.append(helper.make_node("Gemm", [x, w, b], ["y" if last else f"z{i}"], transB=1))
            if not last:
                nodes.append(helper.make_node("Relu", [f"z{i}"], [f"a{i}"]))
            x = f"a{i}"
        out = [1, shape[-1]]
    else:
        layers, width = shape
        x, dims = "x", [1, 1, width]
        order = [0, 3, 1, 2]  # of gates: i, o, f, c out of i, f, g, o

        def gates(array):
            return np.concatenate([np.split(array, 4)[g] for g in order])[None]

        for i in range(layers):
            w, r = (keep(f"{n}{i}", gates(weights[f"0.weight_{n}_l{i}"])) for n in ("ih", "hh"))
            b = keep(f"b{i}", np.concatenate([gates(weights[f"0.bias_{n}_l{i}"])[0] for n in ("ih", "hh")])[None])
            nodes.append(helper.make_node("LSTM", [x, w, r, b], [f"y{i}"], hidden_size=width))
            last = i == layers - 1
            axes = keep(f"axes{i}", np.array([0, 1] if last else [1], np.int64))
            nodes.append(helper.make_node("Squeeze", [f"y{i}", axes], ["y" if last else f"x{i}"]))
            x = f"x{i}"
        out = [1, width]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString(), dims


class Ours:
    def __init__(self, library, model, steps):
        lib = ctypes.CDLL(str(library))
        lib.ridgeline_last_error.restype = ctypes.c_char_p
        lib.ridgeline_output_size.restype = ctypes.c_int64
        loaded, self.predictor = ctypes.c_void_p(), ctypes.c_void_p()
        prepare = lib.ridgeline_prepare_steps if steps else lib.ridgeline_prepare
        if (lib.ridgeline_load(str(model).encode(), ctypes.byref(loaded)) or
                prepare(loaded, ctypes.c_int64(1), b"cpu", 1, 1, ctypes.byref(self.predictor))):
            raise SystemExit(lib.ridgeline_last_error().decode())
        lib.ridgeline_free_model(loaded)
        self.lib, self.steps = lib, steps
        self.y = np.empty(lib.ridgeline_output_size(self.predictor), np.float32)

    def call(self, x):
        to, at, one = ctypes.c_void_p(self.y.ctypes.data), ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(1)
        predictor, run = self.predictor, self.lib.ridgeline_step if self.steps else self.lib.ridgeline_run
        return (lambda: run(predictor, at, to)) if self.steps else (lambda: run(predictor, at, one, to))


class Theirs:
    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()

    def call(self, x):
        self.x = onnxruntime.OrtValue.ortvalue_from_numpy(x)
        self.binding.bind_ortvalue_input("x", self.x)
        self.y = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(self.session.get_outputs()[0].shape, np.float32))
        self.binding.bind_ortvalue_output("y", self.y)
        run, binding = self.session.run_with_iobinding, self.binding
        return lambda: run(binding)


def times(call, count):
    clock, taken = time.perf_counter_ns, []
    for _ in range(count // 10):
        call()
    for _ in range(count):
        begin = clock()
        call()
        taken.append(clock() - begin)
    return sorted(taken)


def percentile(taken, part):
    return taken[min(int(len(taken) * part), len(taken) - 1)] / 1e3


def figures(rounds):
    best = min(rounds, key=lambda taken: percentile(taken, 0.5))
    return {"median_us": percentile(best, 0.5), "p99_us": percentile(best, 0.99), "min_us": best[0] / 1e3,
            "p99_all_us": percentile(sorted(sum(rounds, [])), 0.99)}


def measure(arguments, name, shape):
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(arguments.tool, pathlib.Path(folder), shape)
        exported, dims = to_onnx(read_weights(model), shape)
        ours, theirs = Ours(arguments.library, model, isinstance(shape, tuple)), Theirs(exported)
    x = np.random.default_rng(2).standard_normal(dims, dtype=np.float32)
    mine, peer = ours.call(x), theirs.call(x)
    mine(), peer()  # the first step of ours begins with zeros, too
    error = float(np.abs(ours.y - theirs.y.numpy().ravel()).max())
    assert error < 1e-5, (name, error)
    rounds = [(times(mine, arguments.calls), times(peer, arguments.calls)) for _ in range(arguments.rounds)]
    a, b = (figures([each[side] for each in rounds]) for side in (0, 1))
    row = {"net": name, "ours": a, "onnxruntime": b, "ratio": round(a["median_us"] / b["median_us"], 3), "goal": GOAL,
           "difference": error}
    print(f"| {name} | {a['median_us']:.2f} ({a['p99_us']:.2f}) | {b['median_us']:.2f} ({b['p99_us']:.2f}) | "
          f"{row['ratio']:.2f} |", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser()
    for path in ("tool", "library", "result"):
        parser.add_argument(path, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--note", default="")
    parser.add_argument("--limits", type=lambda text: [float(each) for each in text.split(",")], default=[])
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    rows = [measure(arguments, *net) for net in NETS]
    for row, limit in zip(rows, arguments.limits):
        row["limit_us"] = limit
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    name, family = (re.search(rf"{key}\s*: (.*)", cpu).group(1) for key in ("model name", "cpu family"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
    run = {"machine": f"{name}, family {family}", "date": date.today().isoformat(), "commit": commit.stdout.strip(),
           "real_time": os.sched_getscheduler(0) != os.SCHED_OTHER, "note": arguments.note,
           "onnxruntime": onnxruntime.__version__, "threads": 1, "batch": 1, "precision": "fp32", "rows": rows}
    runs = json.loads(arguments.result.read_text())["runs"] if arguments.result.exists() else []
    runs = [each for each in runs if each["machine"] != run["machine"]] + [run]
    arguments.result.write_text(json.dumps({"runs": runs}, indent=1) + "\n")


main()
