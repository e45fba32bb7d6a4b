"""A server under load at 80 % of its capacity, while its model is loaded again and again, one client stalls, one reads
slowly, one leaves before its answer and one sends garbage: no good request fails, and memory stays flat. The tests take
about ten seconds; by hand, with RIDGELINE, BUILD_DIR and SOURCE_DIR set:
    tests/scripts/serve_load_test.py --seconds 600 --reload-every 5
Needs the program http_load of a build with RIDGELINE_BENCH=ON."""

import argparse
import json
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import tool
from serve_test import Server

LOAD = tool.BUILD / "bench" / "http_load"
MOST_GROWTH = 8 << 10  # kB: what allocators keep


def load(server, body, seconds, rate=0):
    more = ["--rate", str(rate)] if rate else []
    return subprocess.Popen([LOAD, str(server.port), "/v2/models/net/infer", body, "--header",
                             "Inference-Header-Content-Length: 0", "--connections", "8", "--seconds", str(seconds), *more],
                            stdout=subprocess.PIPE, text=True)


def report(process):
    result = json.loads(process.communicate(timeout=1200)[0])
    assert process.returncode == 0, result
    return result


def resident(server):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text()).group(1))


class Nuisance:
    """Disturbances at the same time as the good requests, until they are told to stop."""

    def __init__(self, server, models, reload_every):
        self.server, self.models, self.every = server, models, reload_every
        self.over, self.faults, self.counts = threading.Event(), [], {}
        self.threads = [threading.Thread(target=self.guard, args=(each,), daemon=True)
                        for each in (self.reload, self.stall, self.read_slowly, self.leave, self.garbage)]
        for each in self.threads:
            each.start()

    def guard(self, what):
        while not self.over.is_set():
            try:
                what()
                self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1
            except OSError:
                pass  # cut off, as it should be
            except AssertionError as fault:
                self.faults.append(fault)
                return

    def end(self):
        self.over.set()
        for each in self.threads:
            each.join(timeout=60)
        assert not self.faults, self.faults

    def opened(self):
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=10)

    def reload(self):
        good = (self.models / "good").read_bytes()
        number = self.counts.get("reload", 0)
        bad = number % 3 == 2
        (self.models / "next").write_bytes(good[:len(good) // 2] if bad else good)
        (self.models / "next").rename(self.models / "net.safetensors")
        status, _, answer = self.server.ask("POST", "/v2/repository/models/net/load")
        assert (status == 200) != bad, (status, answer)
        self.over.wait(self.every)

    def stall(self):
        with self.opened() as connection:
            connection.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nContent-Length: 36\r\n\r\nabc")
            connection.recv(1)  # until the server has had enough

    def read_slowly(self):
        with self.opened() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
            for _ in range(20):
                connection.recv(1024)
                self.over.wait(0.02)

    def leave(self):
        with self.opened() as connection:
            connection.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nInference-Header-Content-Length: 0\r\n"
                               b"Content-Length: 3600\r\n\r\n" + bytes(3600))
        self.over.wait(0.005)

    def garbage(self):
        chance = random.Random(self.counts.get("garbage", 0))
        with self.opened() as connection:
            connection.sendall(chance.choice([b"", b"POST /v2/models/net/infer HTTP/1.1\r\n", b"GET / HTTP/9\r\n\r\n"]) +
                               chance.randbytes(chance.randrange(1, 2000)) + b"\r\n\r\n")
            connection.settimeout(1)
            connection.recv(4096)
        self.over.wait(0.005)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--reload-every", type=float, default=0.5)
    given = parser.parse_args()
    if not LOAD.exists():
        print("skipped: built without RIDGELINE_BENCH")
        return 77
    folder = tool.Folder()
    models = folder / "models"
    tool.run("train", folder.config, "--out", folder / "run", "--quiet")
    models.mkdir()
    for name in ("good", "net.safetensors"):
        shutil.copy(folder / "run" / "model.safetensors", models / name)
    body = folder / "body"
    body.write_bytes((folder.data / "t10k-images-idx3-ubyte").read_bytes()[16:52])
    server = Server("--models", models, "--request-time", 1, "--io-threads", 2)
    try:
        most = report(load(server, body, 1.5))["requests_per_s"]
        nuisance = Nuisance(server, models, given.reload_every)
        memory, parts, due, seen = [], [], 0, most
        end = time.monotonic() + given.seconds
        settled = time.monotonic() + min(3.0, given.seconds / 2)  # all that is made once has been made
        while time.monotonic() < end:
            # In parts, each at a rate that was possible just before: what else runs on the machine comes and goes.
            seconds = min(2.0, given.seconds)
            due += 0.8 * seen * seconds
            parts.append(report(load(server, body, seconds, rate=0.8 * seen)))
            seen = report(load(server, body, 0.3))["requests_per_s"]
            if time.monotonic() > settled:
                memory.append(resident(server))
        nuisance.end()
        half = report(load(server, body, 2, rate=0.5 * seen))
        made, failed = (sum(part[what] for part in parts) for what in ("requests", "failures"))
        print(f"at most {most:.0f} requests/s; at 80 % {made} good requests of {due:.0f}, {failed} failed, median "
              f"{max(part['median_us'] for part in parts):.0f} us, p99 {max(part['p99_us'] for part in parts):.0f} us; at half "
              f"load p99 {half['p99_us']:.0f} us; beside them {nuisance.counts}; {memory[0]} kB at first, {memory[-1]} kB at the "
              "end")
        assert failed == 0 and half["failures"] == 0
        assert made > 0.125 * due, "most requests were not made"
        assert nuisance.counts.get("reload", 0) >= 3, nuisance.counts
        if not tool.sanitized():
            assert memory[-1] - memory[0] < MOST_GROWTH, "memory grows"
        server.end()
    finally:
        server.kill()
        folder.close()
    return 0


if __name__ == "__main__":
    if "has no server" in subprocess.run([tool.TOOL, "serve", "/dev/null/none"], capture_output=True, text=True).stderr:
        print("skipped: built without Boost or simdjson")
        sys.exit(77)
    sys.exit(main())
