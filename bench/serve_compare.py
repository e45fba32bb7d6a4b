#!/usr/bin/env python3
"""Measures `ridgeline serve` under load beside servers on ONNX Runtime, one after the other on the same cores.

usage: serve_compare.py RIDGELINE HTTP_LOAD RESULT.json [--server-cores 0] [--load-cores 1] [--seconds 5]
                        [--cpp-peer PROGRAM LIBONNXRUNTIME.so] [--fastapi-python PYTHON]

One row of 784-128-128-128-10 a request over connections that stay open, as floats and as JSON, by bench/micro/http_load and,
where it is installed, by wrk. Also: the time from the start to ready with a kept plan, resident memory, and the 99th percentile at half of the load that was reached (the median of three
runs), with the share of that time in which the server's busiest thread was ready to run and another process had its core. The
peers need an ONNX file, which `ridgeline export` writes.
"""
import argparse
import http.client
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from datetime import date

CONFIG = """[data]
train = "x.npy"
target = "y.npy"
target_kind = "values"
scale = "none"
target_scale = "none"
[model]
layers = [{ type = "linear", out = 128 }, { type = "relu" }, { type = "linear", out = 128 }, { type = "relu" },
          { type = "linear", out = 128 }, { type = "relu" }, { type = "linear", out = 10 }]
[train]
batch = 16
max_steps = 4
loss = "mse"
[run]
device = "cpu"
tune = false
"""
WIDTH = 784


def write_npy(path, rows, columns):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".ljust(117) + "\n"
    chance = random.Random(columns)
    values = struct.pack(f"<{rows * columns}f", *(chance.random() for _ in range(rows * columns)))
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values)


def make_model(tool, folder):
    write_npy(folder / "x.npy", 64, WIDTH)
    write_npy(folder / "y.npy", 64, 10)
    (folder / "net.toml").write_text(CONFIG)
    for arguments in (["train", "net.toml", "--out", "net", "--quiet"], ["export", "net", "--onnx", "net.onnx"]):
        subprocess.run([tool, *arguments], cwd=folder, check=True, capture_output=True)
    return folder / "net"


def pinned(cores, command):
    return ["taskset", "-c", cores, *map(str, command)]


class Ours:
    name = "ridgeline serve"

    def __init__(self, given, model, io_threads):
        begin = time.monotonic()
        command = [given.tool, "serve", f"net={model}", "--port", "0", "--device", "cpu", "--io-threads", io_threads,
                   *given.serve_flags.split()]
        self.process = subprocess.Popen(pinned(given.server_cores, command), stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"on http://\S+:(\d+)$", line):
                self.port = int(found.group(1))
                break
        self.ready_seconds = time.monotonic() - begin

    def requests(self, floats):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/v2/models/net")
        name = json.loads(connection.getresponse().read())["inputs"][0]["name"]
        wide = struct.pack(f"<{WIDTH}f", *floats)
        head = json.dumps({"inputs": [{"name": name, "shape": [1, WIDTH], "datatype": "FP32",
                                       "parameters": {"binary_data_size": len(wide)}}],
                           "parameters": {"binary_data_output": True}}).encode()
        whole = json.dumps({"inputs": [{"name": name, "shape": [1, WIDTH], "datatype": "FP32", "data": floats}]}).encode()
        path = "/v2/models/net/infer"
        return {"binary": (path, head + wide, [f"Inference-Header-Content-Length: {len(head)}"]), "json": (path, whole, [])}


class Peer:
    ready_seconds = None

    def requests(self, floats):
        wide = struct.pack(f"<{WIDTH}f", *floats)
        return {"binary": ("/", wide, []), "json": (self.json_path, json.dumps({"data": floats}).encode(),
                                                    ["Content-Type: application/json"])}

    def start(self, cores, command, port):
        self.port = port
        self.process = subprocess.Popen(pinned(cores, command), stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=1).connect()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} did not start")


class Cpp(Peer):
    name, json_path = "ONNX Runtime, Boost.Beast", "/"

    def __init__(self, given, model):
        program, library = given.cpp_peer
        self.start(given.server_cores, [program, library, model, 8123, WIDTH, 10], 8123)


class FastApi(Peer):
    name, json_path = "ONNX Runtime, FastAPI and uvicorn", "/json"

    def __init__(self, given, model):
        script = pathlib.Path(__file__).parent / "peers" / "serve_fastapi.py"
        self.start(given.server_cores, [given.fastapi_python, script, model, 8124], 8124)


def load(given, server, request, folder, connections, threads, rate=0):
    path, body, headers = request
    (folder / "body").write_bytes(body)
    command = [given.load, server.port, path, folder / "body", "--connections", connections, "--threads", threads, "--seconds",
               given.seconds, "--rate", rate]
    for header in headers:
        command += ["--header", header]
    done = subprocess.run(pinned(given.load_cores, command), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{server.name}: {done.stdout} {done.stderr}")
    return json.loads(done.stdout)


def wrk(given, server, request, folder, connections, threads):
    """The requests per second that wrk counts; None without wrk."""
    if shutil.which("wrk") is None:
        return None
    path, body, headers = request
    (folder / "body").write_bytes(body)
    script = f'wrk.method = "POST"\nlocal file = io.open("{folder / "body"}", "rb")\nwrk.body = file:read("*a")\n'
    script += "".join('wrk.headers["{}"] = "{}"\n'.format(*header.split(": ")) for header in headers)
    (folder / "post.lua").write_text(script)
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{math.ceil(given.seconds)}s", "-s", folder / "post.lua",
               f"http://127.0.0.1:{server.port}{path}"]
    said = subprocess.run(pinned(given.load_cores, command), capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"{server.name}: {said}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", said).group(1))


def resident_kb(server):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text()).group(1))


def waited_seconds(server):
    """For each thread of the server, how long it was ready to run but had no core."""
    return {task.name: int((task / "schedstat").read_text().split()[1]) / 1e9
            for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()}


def measure(given, server, folder, connections, threads):
    floats = [round(random.Random(2).random(), 4) for _ in range(WIDTH)]
    row = {"server": server.name}
    for kind, request in server.requests(floats).items():
        most = load(given, server, request, folder, connections, threads)
        before = waited_seconds(server)
        halves = [load(given, server, request, folder, connections, threads, rate=most["requests_per_s"] / 2) for _ in range(3)]
        waited = max(after - before.get(task, 0) for task, after in waited_seconds(server).items()) / len(halves)
        half = sorted(halves, key=lambda each: each["p99_us"])[1]
        by_wrk = wrk(given, server, request, folder, connections, threads)
        row[kind] = {"requests_per_s": most["requests_per_s"], "wrk_requests_per_s": by_wrk, "p99_us_at_half_load": half["p99_us"],
                     "median_us_at_half_load": half["median_us"], "share_waiting_for_core": round(waited / given.seconds, 4)}
        print(f"| {server.name} | {kind} | {most['requests_per_s']:,.0f} | {by_wrk or 0:,.0f} by wrk | {half['median_us']:.0f} | "
              f"{half['p99_us']:.0f} |", flush=True)
    row["resident_kb"] = resident_kb(server)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=60)
    return row


def count(cores):
    return sum(int(b) - int(a) + 1 for a, b in ((part.split("-") * 2)[:2] for part in cores.split(",")))


def main():
    parser = argparse.ArgumentParser()
    for path in ("tool", "load", "result"):
        parser.add_argument(path, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--server-cores", default="0")
    parser.add_argument("--load-cores", default="1")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--serve-flags", default="", help="more flags of ridgeline serve, in one word")
    parser.add_argument("--cpp-peer", nargs=2)
    parser.add_argument("--fastapi-python")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        model = make_model(given.tool, folder)
        threads, loaders = count(given.server_cores), count(given.load_cores)
        Ours(given, model, threads).process.kill()  # measures its kernels and stores the plan
        starts = []
        for _ in range(3):
            server = Ours(given, model, threads)
            starts.append(server.ready_seconds)
            idle = resident_kb(server)
            server.process.kill()
            server.process.wait()
        rows.append(measure(given, Ours(given, model, threads), folder, given.connections, loaders))
        rows[0].update(ready_seconds=round(sorted(starts)[1], 3), resident_kb_idle=idle)
        print(f"ready after {sorted(starts)[1]:.3f} s; {idle} kB idle, {rows[0]['resident_kb']} kB after the load")
        if given.cpp_peer:
            rows.append(measure(given, Cpp(given, folder / "net.onnx"), folder, given.connections, loaders))
        if given.fastapi_python:
            rows.append(measure(given, FastApi(given, folder / "net.onnx"), folder, given.connections, loaders))
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    machine = ", family ".join(re.search(rf"{key}\s*: (.*)", cpu).group(1) for key in ("model name", "cpu family"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
    given.result.write_text(json.dumps({"machine": machine, "date": date.today().isoformat(), "commit": commit.stdout.strip(),
                                        "real_time": os.sched_getscheduler(0) != os.SCHED_OTHER, "nice": os.getpriority(os.PRIO_PROCESS, 0),
                                        "server_cores": given.server_cores, "load_cores": given.load_cores,
                                        "connections": given.connections, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
