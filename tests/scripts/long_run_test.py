"""A server answers while runs are trained, killed and resumed and files are inferred, in rotation: its memory and its
open files do not grow, and neither do those of a long training run. The tests take twelve seconds; by hand, with
RIDGELINE, BUILD_DIR and SOURCE_DIR set:
    tests/scripts/long_run_test.py --seconds 28800
Prints the rounds, and memory and files at the beginning and at the end."""

import argparse
import http.client
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tool

ENDLESS = ("--threads", 1, "--set", "train.epochs=1000000", "--set", "train.checkpoint_steps=20", "--set",
           "train.eval_every=5", "--set", "train.log_steps=1000")
MOST_GROWTH = 8 << 10  # kB: what allocators keep


class Watched:
    """A process whose memory and open files are looked at."""

    def __init__(self, name, process):
        self.name, self.process, self.first = name, process, None

    def look(self):
        folder = pathlib.Path(f"/proc/{self.process.pid}")
        assert self.process.poll() is None, f"{self.name} ended: {self.process.poll()}"
        resident = int(re.search(r"VmRSS:\s+(\d+)", (folder / "status").read_text()).group(1))
        return resident, len(list((folder / "fd").iterdir()))

    def begin(self):
        self.first = self.look()

    def check(self):
        """Descriptors come and go while a file is saved: the least of several counts is the permanent number."""
        memory, files = self.look()
        for _ in range(5):
            time.sleep(0.02)
            files = min(files, self.look()[1])
        print(f"{self.name}: {self.first[0]} kB and {self.first[1]} files at the beginning, {memory} kB and {files} files "
              "at the end")
        assert memory - self.first[0] < MOST_GROWTH, f"{self.name}: memory grows"
        assert files <= self.first[1] + 2, f"{self.name}: open files grow"


def serve(model):
    process = subprocess.Popen([tool.TOOL, "serve", "--port", "0", "--no-tune", "--threads", "1", str(model)],
                               stderr=subprocess.PIPE, text=True, env=tool.environment())
    for line in process.stderr:
        if found := re.search(r"on http://\S+:(\d+)$", line):
            return process, int(found.group(1))
    raise AssertionError("the server did not start")


def ask(port, pixels):
    """A good request, a bad one, and one that is left half sent."""
    body = json.dumps({"inputs": [{"name": "input", "shape": [1, 6, 6], "datatype": "UINT8", "data": list(pixels)}]})
    for text, status in ((body, 200), (body[:-3], 400)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v2/models/model/infer", text)
        assert connection.getresponse().status == status
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("POST", "/v2/models/model/infer")
    connection.putheader("Content-Length", "1000")
    connection.endheaders()
    connection.close()


def train_kill_resume(folder, chance):
    out = folder / "killed"
    arguments = ["train", folder.config, "--out", out, *ENDLESS]
    for more in (["--force"], ["--resume"]):
        process = tool.start(*arguments, *more)
        end = time.time() + 60
        while not (out / "checkpoint.safetensors").exists() and process.poll() is None and time.time() < end:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.communicate()
    step = json.loads(tool.read_safetensors(out / "checkpoint.safetensors")[1]["ridgeline.checkpoint"])["step"]
    tool.run(*arguments, "--resume", "--set", f"train.max_steps={step + 5}")
    assert not list(out.glob("*.tmp"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=12)
    given = parser.parse_args()
    if tool.sanitized():
        print("skipped: a sanitizer keeps freed memory")
        sys.exit(77)
    chance = random.Random(5)
    folder = tool.Folder()
    model, images, rows = folder / "model", folder.data / "t10k-images-idx3-ubyte", folder / "rows.csv"
    tool.run("train", folder.config, "--out", model, "--quiet", "--threads", 1)
    infer = ["infer", model, "--input", images, "--output", rows, "--threads", 1, "--no-tune"]
    tool.run(*infer)
    good, pixels = rows.read_bytes(), images.read_bytes()[16:]
    server, port = serve(model)
    trainer = tool.start("train", folder.config, "--out", folder / "endless", "--quiet", *ENDLESS)
    watched = [Watched("serve", server), Watched("train", trainer)]
    rounds = requests = 0
    begun = time.time()
    try:
        while rounds < 3 or time.time() - begun < given.seconds:
            for i in range(50):
                ask(port, pixels[36 * i:36 * (i + 1)])
            requests += 150
            train_kill_resume(folder, chance)
            tool.run(*infer)
            assert rows.read_bytes() == good, "infer wrote something else"
            rounds += 1
            if rounds == 2:  # all that is made once has been made
                for each in watched:
                    each.begin()
        print(f"{rounds} rounds, {requests} requests, {time.time() - begun:.0f} s")
        for each in watched:
            each.check()
        for process, code in ((server, 0), (trainer, 143)):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == code, process.returncode
    finally:
        for process in (server, trainer):
            process.kill()
            process.wait()
            process.stderr.close()
        folder.close()


main()
