#!/usr/bin/env python3
"""Times imported networks beside ONNX Runtime on the CPU, or beside compiled PyTorch in a CUDA graph on a GPU.

usage: compare_onnx.py RIDGELINE LIBRIDGELINE.so RESULT.json [--device cpu|cuda] [--threads N] [--rounds N] [--seconds S]
                       [--nets mlp,lenet,...] [--batches 1,256] [--compile MODE] [--note TEXT]

Needs a Python with numpy, torch, onnx (and onnxruntime for the CPU). PyTorch writes each net as ONNX, and both sides load
that file: fp32, the same weights, batch 1 and 256. On the CPU a call is one call from Python (ridgeline_run by ctypes,
run_with_iobinding), with as many threads on both sides, in turns; the least median of the rounds counts for each. The
shortest call of each is kept too: it says more where other programs load the machine, and the load is in the result. On a GPU
the samples lie there: ours is the time of a replay that `ridgeline profile` measures, PyTorch's that of a replay of its graph
(eager, and by torch.compile in the mode --compile; no TF32). On the CPU outputs must agree within 1e-5 of their size. The limit
is what `ridgeline profile` computes from the machine's ceilings. A last line is the time and memory of importing a file of 100 MB.
A result file keeps one run a device and number of threads; a later run replaces the rows that it measured.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from torch import nn

BATCHES = (1, 256)


class Last(nn.Module):
    """The last timestep of a recurrent net's outputs."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0][:, -1]


class Residual(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return x + self.body(x)


def conv(i, o, *more, kernel=3, stride=1, groups=1):
    return [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU(), *more]


def mlp():
    return (784,), [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)]


def lenet():
    return (1, 28, 28), [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(),
                         nn.Linear(84, 10)]


def char_cnn():
    """Zhang et al.'s small net over one-hot characters."""
    layers, channels = [], 70
    for kernel, pool in ((7, 3), (7, 3), (3, 1), (3, 1), (3, 1), (3, 3)):
        layers += [nn.Conv1d(channels, 256, kernel), nn.ReLU()] + ([nn.MaxPool1d(pool)] if pool > 1 else [])
        channels = 256
    return (70, 1014), layers + [nn.Flatten(), nn.Linear(256 * 34, 1024), nn.ReLU(), nn.Linear(1024, 4)]


def gru():
    return (28, 28), [Last(nn.GRU(28, 128, batch_first=True)), nn.Linear(128, 10)]


def lstm():
    return (64, 32), [Last(nn.LSTM(32, 128, 2, batch_first=True)), nn.Linear(128, 10)]


def resnet9():
    layers = conv(3, 64) + conv(64, 128, nn.MaxPool2d(2)) + [Residual(nn.Sequential(*conv(128, 128), *conv(128, 128)))]
    layers += conv(128, 256, nn.MaxPool2d(2)) + conv(256, 512, nn.MaxPool2d(2))
    layers += [Residual(nn.Sequential(*conv(512, 512), *conv(512, 512))), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10)]
    return (3, 32, 32), layers


def mobilenet():
    """Depthwise convolutions and those of one pixel, as in MobileNet."""
    layers, channels = conv(3, 32), 32
    for out, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers += conv(channels, channels, stride=stride, groups=channels) + conv(channels, out, kernel=1)
        channels = out
    return (3, 32, 32), layers + [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]


# On the CPU, the goal as a multiple of ONNX Runtime's speed. On a GPU it is 1 for all.
NETS = {"mlp": (mlp, 1.5), "lenet": (lenet, 1.5), "char-cnn": (char_cnn, 1.5), "gru": (gru, 1.5), "lstm": (lstm, 1.5),
        "resnet9": (resnet9, 1.0), "mobilenet": (mobilenet, 1.0)}


def make(name, folder):
    torch.manual_seed(1)
    shape, layers = NETS[name][0]()
    net = nn.Sequential(*layers).eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    file = folder / f"{name}.onnx"
    more = {"dynamo": False} if "dynamo" in torch.onnx.export.__code__.co_varnames else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.zeros(2, *shape), str(file), input_names=["x"], output_names=["y"], opset_version=17
                          if torch.__version__ >= "2" else 16, dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, **more)
    return net, shape, file


class Ours:
    """The library, prepared for a batch."""

    def __init__(self, library, model, batch, threads):
        lib = ctypes.CDLL(str(library))
        lib.ridgeline_last_error.restype = ctypes.c_char_p
        lib.ridgeline_output_size.restype = ctypes.c_int64
        loaded, self.predictor = ctypes.c_void_p(), ctypes.c_void_p()
        if (lib.ridgeline_load(str(model).encode(), ctypes.byref(loaded)) or
                lib.ridgeline_prepare(loaded, ctypes.c_int64(batch), b"cpu", threads, 1, ctypes.byref(self.predictor))):
            raise SystemExit(lib.ridgeline_last_error().decode())
        lib.ridgeline_free_model(loaded)
        self.run, self.free, self.batch = lib.ridgeline_run, lib.ridgeline_free_predictor, batch
        self.y = np.empty(batch * lib.ridgeline_output_size(self.predictor), np.float32)

    def call(self, x):
        to, at, count = ctypes.c_void_p(self.y.ctypes.data), ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(self.batch)
        return lambda: self.run(self.predictor, at, count, to)


def runtime(file, x, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    binding, given = session.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy(x)
    result = onnxruntime.OrtValue.ortvalue_from_numpy(session.run(None, {"x": x})[0])
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding), (session, given, result)


def times_us(call, seconds):
    """The median and the shortest of the calls made in this many seconds."""
    call()
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 5:
        begin = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(taken), min(taken)


def on_cpu(arguments, name, net, shape, file, batch):
    x = np.random.default_rng(batch).standard_normal((batch, *shape), dtype=np.float32)
    ours = Ours(arguments.library, file, batch, arguments.threads)
    mine, (theirs, kept) = ours.call(x), runtime(file, x, arguments.threads)
    mine(), theirs()
    want = kept[2].numpy().ravel()
    error = float(np.max(np.abs(ours.y - want) / (1 + np.abs(want))))
    assert error < 1e-5, (name, batch, error)
    rounds = [(times_us(mine, arguments.seconds), times_us(theirs, arguments.seconds)) for _ in range(arguments.rounds)]
    a, b = (min(each[side][0] for each in rounds) for side in (0, 1))
    shortest = [min(each[side][1] for each in rounds) for side in (0, 1)]
    ours.free(ours.predictor)
    done = subprocess.run([arguments.tool, "profile", file, "--batch", str(batch), "--threads", str(arguments.threads), "--seconds",
                           "0.2", "--json", "-"], capture_output=True, text=True)
    limit = json.loads(done.stdout)["limit"]["us"] if done.returncode == 0 else None
    return {"limit_us": limit, "ours_us": a, "onnxruntime_us": b, "ratio": b / a, "goal": NETS[name][1], "difference": error,
            "shortest_us": shortest, "shortest_ratio": shortest[1] / shortest[0], "load": os.getloadavg()[0]}


def on_gpu(arguments, name, net, shape, file, batch):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    done = subprocess.run([arguments.tool, "profile", file, "--device", "cuda", "--batch", str(batch), "--seconds", "1",
                           "--json", "-"], capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip()[-300:]}
    ours = json.loads(done.stdout)["us"]["median"]
    model, x = net.cuda(), torch.randn(batch, *shape, device="cuda")
    if len(shape) == 3:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    best = {}
    with torch.inference_mode():
        for how in ("graph", "compiled in a graph"):
            call = torch.compile(model, mode=arguments.compile) if how != "graph" else model
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(4):
                    call(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call(x)
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                graph.replay()
            torch.cuda.synchronize()
            best[how] = (time.perf_counter() - begin) / 200 * 1e6
    peer = min(best, key=best.get)
    return {"ours_us": ours, "torch_us": best[peer], "how": peer, "ratio": best[peer] / ours, "goal": 1.0}


# Prints the seconds and the peak of memory, in kilobytes, of a command that must succeed.
MEASURED = """
import os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, use = os.wait4(process.pid, 0)
print(time.perf_counter() - begin, use.ru_maxrss)
sys.exit(status != 0)
"""


def import_large(arguments, folder):
    """Seconds and memory to import a perceptron of 100 MB, the least of three."""
    width = 5120
    net = nn.Sequential(nn.Linear(width, width)).eval()
    file = folder / "large.onnx"
    more = {"dynamo": False} if "dynamo" in torch.onnx.export.__code__.co_varnames else {}
    torch.onnx.export(net, torch.zeros(1, width), str(file), input_names=["x"], output_names=["y"], **more)
    size, taken, most = file.stat().st_size, [], 0
    for i in range(3):
        # A process begins with its parent's peak of memory, and this one holds PyTorch: a small one starts the tool.
        done = subprocess.run([sys.executable, "-S", "-c", MEASURED, arguments.tool, "import", file, "--out",
                               folder / f"large{i}.safetensors"], check=True, capture_output=True, text=True)
        seconds, kilobytes = map(float, done.stdout.split())
        taken.append(seconds)
        most = max(most, kilobytes * 1024)
    return {"bytes": size, "seconds": min(taken), "memory_bytes": most, "memory_over_size": most / size,
            "goal": {"seconds": 1.0, "memory_over_size": 2.5}}


def main():
    parser = argparse.ArgumentParser()
    for path in ("tool", "library", "result"):
        parser.add_argument(path, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--compile", default="max-autotune-no-cudagraphs", help="mode of torch.compile")
    parser.add_argument("--note", default="", help="what a reader must know of the machine's state")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for net_name in arguments.nets.split(","):
            net, shape, file = make(net_name, folder)
            for batch in map(int, arguments.batches.split(",")):
                measure = on_cpu if arguments.device == "cpu" else on_gpu
                row = {"net": net_name, "batch": batch, **measure(arguments, net_name, net, shape, file, batch)}
                rows.append(row)
                peer = row.get("onnxruntime_us", row.get("torch_us", 0))
                print(f"| {net_name} | {batch} | {row.get('ours_us', 0):.1f} | {peer:.1f} | {row.get('ratio', 0):.2f} | "
                      f"{row.get('shortest_ratio', 0):.2f} | "
                      f"{row.get('error', '')}", flush=True)
        large = import_large(arguments, folder)
        print(f"import of {large['bytes'] / 1e6:.0f} MB: {large['seconds']:.2f} s, {large['memory_over_size']:.2f} times its size",
              flush=True)
    keep(arguments, rows, large)


def keep(arguments, rows, large):
    """Writes the run among the others of the result file."""
    runs = json.loads(arguments.result.read_text())["runs"] if arguments.result.exists() else []
    same = [run for run in runs if (run["device"], run["threads"]) == (arguments.device, arguments.threads)]
    measured = {(row["net"], row["batch"]) for row in rows}
    rows = [row for run in same for row in run["rows"] if (row["net"], row["batch"]) not in measured] + rows
    order = [*NETS]
    rows.sort(key=lambda row: (order.index(row["net"]), row["batch"]))
    machine = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
    run = {"machine": machine, "date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
           "torch": torch.__version__, "device": arguments.device, "threads": arguments.threads, "precision": "fp32",
           "note": arguments.note, "rows": rows, "import": large}
    if arguments.device == "cpu":
        import onnxruntime
        run["onnxruntime"] = onnxruntime.__version__
    runs = [each for each in runs if each not in same] + [run]
    arguments.result.write_text(json.dumps({"runs": sorted(runs, key=lambda each: each["threads"])}, indent=2) + "\n")


main()
