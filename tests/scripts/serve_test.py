"""`ridgeline serve` with real clients: every path of the protocol, good and bad requests, many at once, models that change
under load, limits, tokens, and an end that loses nothing."""

import gzip
import http.client
import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
import tool


class Server:
    """A server on a free port, ready."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([tool.TOOL, "serve", "--port", "0", "--no-tune", *map(str, arguments)],
                                        stderr=subprocess.PIPE, text=True, env=tool.environment())
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"on http://\S+:(\d+)$", line):
                self.port = int(found.group(1))
                break
        else:
            raise AssertionError("not ready: " + "".join(self.said))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers={}, connection=None):
        """The status, the headers and the body, out of JSON where it is that."""
        opened = connection or self.connect()
        opened.request(method, path, body, headers)
        answer = opened.getresponse()
        data = answer.read()
        if connection is None:
            opened.close()
        if answer.getheader("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        if answer.getheader("Content-Type") == "application/json":
            data = json.loads(data) if data else None
        return answer.status, dict(answer.getheaders()), data

    def raw(self, data, wait=10):
        """What comes back for bytes that need be no HTTP."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as opened:
            try:
                opened.sendall(data)
            except OSError:
                pass  # refused before all was sent
            got = b""
            try:
                while part := opened.recv(65536):
                    got += part
            except OSError:
                pass
            return got

    def end(self, expect=0):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == expect, (code, self.said)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def request(pixels, count, **more):
    return json.dumps({"inputs": [{"name": "input", "shape": [count, 6, 6], "datatype": "UINT8", "data": list(pixels)}],
                       **more})


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()
        cls.run_dir = cls.folder / "quadrant"
        tool.run("train", cls.folder.config, "--out", cls.run_dir, "--quiet")
        cls.pixels = (cls.folder.data / "t10k-images-idx3-ubyte").read_bytes()[16:]
        text = tool.run("infer", cls.run_dir, "--input", cls.folder.data / "t10k-images-idx3-ubyte", "--no-tune").stdout
        cls.want = [[float(x) for x in line.split(",")[2:]] for line in text.splitlines()[1:]]
        cls.server = Server(cls.run_dir, "--max-batch", 16, "--access-log", cls.folder / "log")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.close()

    def ask(self, *arguments, **options):
        return self.server.ask(*arguments, **options)

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def infer(self, first, count, server=None, connection=None, name="quadrant"):
        body = request(self.pixels[36 * first:36 * (first + count)], count)
        return (server or self.server).ask("POST", f"/v2/models/{name}/infer", body, connection=connection)

    # What there is

    def test_health_and_metadata(self):
        self.assertEqual(self.ask("GET", "/v2/health/live")[0], 200)
        self.assertEqual(self.ask("GET", "/v2/health/ready")[0], 200)
        self.assertEqual(self.ask("GET", "/v2")[2]["name"], "ridgeline")
        self.assertIn("binary_tensor_data", self.ask("GET", "/v2")[2]["extensions"])
        for path in ("/v2/models/quadrant", "/v2/models/quadrant/versions/1"):
            model = self.ask("GET", path)[2]
            self.assertEqual(model["inputs"], [{"name": "input", "datatype": "UINT8", "shape": [-1, 6, 6]}])
            self.assertEqual(model["outputs"], [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 4]},
                                                {"name": "label", "datatype": "INT64", "shape": [-1]}])
            self.assertEqual(self.ask("GET", path + "/ready")[0], 200)
        self.assertEqual(self.ask("POST", "/v2/repository/index")[2],
                         [{"name": "quadrant", "version": "1", "state": "READY"}])
        self.assertIn("/v2/models/{model}/infer", self.ask("GET", "/openapi.json")[2]["paths"])
        status, headers, page = self.ask("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn(b"</html>", page)
        self.assertEqual(self.ask("HEAD", "/v2")[0], 200)

    def test_what_is_not_there(self):
        for method, path, status in (("GET", "/v3", 404), ("GET", "/v2/models/other", 404),
                                     ("GET", "/v2/models/quadrant/versions/2", 404),
                                     ("GET", "/v2/models/quadrant/fly", 404), ("GET", "/" + 30 * "x/", 404),
                                     ("GET", "/v2/models/quadrant/infer", 405), ("POST", "/v2", 405),
                                     ("POST", "/v2/models/other/infer", 404),
                                     ("POST", "/v2/repository/models/other/load", 400),
                                     ("POST", "/v2/repository/models/..%2f/load", 400),
                                     ("POST", "/v2/repository/models/other/unload", 400)):
            got = self.ask(method, path)
            self.assertEqual((got[0], list(got[2])), (status, ["error"]), path)

    def test_a_model_that_is_being_loaded(self):
        """It is never called unknown: 503 until it is there."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        models = [f"m{i}={self.run_dir}" for i in range(8)]
        process = subprocess.Popen([tool.TOOL, "serve", "--port", str(port), "--no-tune", *models],
                                   stderr=subprocess.DEVNULL, env=tool.environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        seen = set()
        until = time.monotonic() + 60
        while 200 not in seen and time.monotonic() < until:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/v2/models/m7")
                answer = connection.getresponse()
                text = answer.read()
                seen.add(answer.status)
                if answer.status == 503:
                    self.assertIn(b"is being loaded", text)
                    self.assertTrue(answer.getheader("Retry-After"))
            except OSError:
                self.assertIsNone(process.poll())
                time.sleep(0.001)
        self.assertLessEqual(seen, {200, 503})
        self.assertIn(200, seen)

    # Answers

    def test_json(self):
        for count in (1, 2, 3, 16, 40, 100):  # of one launch, and of several
            status, _, answer = self.infer(0, count)
            self.assertEqual(status, 200, answer)
            numbers, label = answer["outputs"]
            self.assertEqual((numbers["shape"], label["shape"]), ([count, 4], [count]))
            self.near(numbers["data"], sum(self.want[:count], []))
            for i, each in enumerate(label["data"]):
                self.assertEqual(each, max(range(4), key=lambda c: self.want[i][c]))

    def test_nested_data_other_types_and_chosen_outputs(self):
        rows = [list(self.pixels[6 * r:6 * r + 6]) for r in range(6)]
        for datatype, data in (("UINT8", [rows]), ("INT64", [rows]), ("FP32", [[[float(x) for x in r] for r in rows]])):
            body = {"id": "é\n\"", "inputs": [{"name": "input", "shape": [1, 6, 6], "datatype": datatype, "data": data}],
                    "outputs": [{"name": "label"}]}
            status, _, answer = self.ask("POST", "/v2/models/quadrant/infer", json.dumps(body))
            self.assertEqual((status, answer["id"], [o["name"] for o in answer["outputs"]]), (200, "é\n\"", ["label"]))

    def test_binary(self):
        count = 5
        want = sum(self.want[:count], [])
        for datatype, code in (("UINT8", "B"), ("INT32", "i"), ("FP32", "f"), ("FP64", "d")):
            values = struct.pack(f"<{36 * count}{code}", *self.pixels[:36 * count])
            head = json.dumps({"inputs": [{"name": "input", "shape": [count, 36], "datatype": datatype,
                                           "parameters": {"binary_data_size": len(values)}}],
                               "outputs": [{"name": "label"},
                                           {"name": "probabilities", "parameters": {"binary_data": True}}]}).encode()
            status, headers, data = self.ask("POST", "/v2/models/quadrant/infer", head + values,
                                             {"Inference-Header-Content-Length": str(len(head))})
            self.assertEqual(status, 200, data)
            length = int(headers["Inference-Header-Content-Length"])
            answer = json.loads(data[:length])
            self.assertEqual(answer["outputs"][1]["parameters"]["binary_data_size"], len(data) - length)
            self.near(struct.unpack(f"<{4 * count}f", data[length:]), want)
        status, headers, data = self.ask("POST", "/v2/models/quadrant/infer", self.pixels[:36 * count],
                                         {"Inference-Header-Content-Length": "0"})
        length = int(headers["Inference-Header-Content-Length"])
        self.near(struct.unpack(f"<{4 * count}f", data[length:length + 16 * count]), want)

    def test_compressed_chunked_and_pipelined(self):
        body = request(self.pixels[:36], 1)
        packed = gzip.compress(body.encode())
        self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", packed, {"Content-Encoding": "gzip"})[0], 200)
        for damaged in (packed[:-9], packed + b"x", b"x" * 20):
            self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", damaged, {"Content-Encoding": "gzip"})[0], 400)
        bomb = gzip.compress(bytes(40 << 20))
        self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", bomb, {"Content-Encoding": "gzip"})[0], 413)
        parts = (body[i:i + 7].encode() for i in range(0, len(body), 7))
        self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", parts)[0], 200)
        head = f"POST /v2/models/quadrant/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        three = (head + "\r\n" + body) * 2 + head + "Connection: close\r\n\r\n" + body
        self.assertEqual(self.server.raw(three.encode()).count(b"HTTP/1.1 200 OK"), 3)
        waits = head + "Expect: 100-continue\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as opened:
            opened.sendall(waits.encode())
            self.assertIn(b"100 Continue", opened.recv(100))
            opened.sendall(body.encode())
            self.assertIn(b"200 OK", opened.recv(100))

    # Faults of clients

    def test_bad_requests(self):
        good = json.loads(request(self.pixels[:36], 1))

        def changed(**more):
            return json.dumps({"inputs": [{**good["inputs"][0], **more}]})
        data = good["inputs"][0]["data"]
        cases = [("", "JSON"), ("{", "JSON"), ("[1]", "object"), ("{}", "inputs"), ('{"inputs": []}', "inputs"),
                 ('{"inputs": [1]}', "inputs[0]"), ("[" * 100000, "JSON"), (changed(name="x"), "inputs[0].name"),
                 (changed(datatype="FP31"), "datatype"), (changed(datatype="BYTES"), "datatype"),
                 (changed(shape=[1, 5]), "shape"), (changed(shape=[0, 6, 6]), "shape"), (changed(shape=[]), "shape"),
                 (changed(shape=[-1, 6, 6]), "shape"), (changed(shape=[1.5, 36]), "shape"), (changed(shape=[1] * 20), "shape"),
                 (changed(shape=[2, 6, 6]), "data"), (changed(data=data[:-1]), "data"), (changed(data=data + [1]), "data"),
                 (changed(data=data[:-1] + [256]), "value 35"), (changed(data=data[:-1] + [-1]), "value 35"),
                 (changed(data=data[:-1] + [0.5]), "value 35"), (changed(data=data[:-1] + ["1"]), "value 35"),
                 (changed(data=data[:-1] + [None]), "value 35"), (changed(data=[data[:6]] * 6), "data"),
                 (changed(data=data).replace("[", "[NaN, ", 2), "JSON"), (changed(data={}), "data"),
                 (changed(parameters={"binary_data_size": 36}), "binary_data_size"),
                 (json.dumps({"inputs": good["inputs"] * 2}), "given before"),
                 (json.dumps({**good, "outputs": [{"name": "x"}]}), "outputs[0].name"),
                 (json.dumps({**good, "id": 5}), "id")]
        connection = self.server.connect()
        for body, says in cases:
            status, _, answer = self.ask("POST", "/v2/models/quadrant/infer", body, connection=connection)
            self.assertEqual(status, 400, (body[:80], answer))
            self.assertIn(says, answer["error"], body[:80])
            self.assertNotIn("\n", answer["error"])
        for shape in ([1 << 62, 6, 6], [1 << 40, 36]):
            self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", changed(shape=shape))[0], 413)
        for length in ("x", "-1", "99999999", "1e3"):
            status = self.ask("POST", "/v2/models/quadrant/infer", json.dumps(good),
                              {"Inference-Header-Content-Length": length})[0]
            self.assertEqual(status, 400, length)
        nan = struct.pack("<36f", *([float("nan")] * 36))
        head = changed(datatype="FP32", data=None, parameters={"binary_data_size": len(nan)}).encode()
        status, _, answer = self.ask("POST", "/v2/models/quadrant/infer", head + nan,
                                     {"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual(status, 400)
        self.assertIn("nan", answer["error"])
        self.assertEqual(self.infer(0, 1, connection=connection)[0], 200)  # the connection is still good

    def test_outputs_count_as_well_as_inputs(self):
        data, wide = self.folder / "classes", self.folder / "wide"
        shutil.copytree(self.folder.data, data)
        tool.write_idx(data / "train-labels-idx1-ubyte", (200,), bytes(range(56, 256)))
        tool.run("train", self.folder.config, "--out", wide, "--quiet", "--set", "train.epochs=0", "--set",
                 "model.layers.2.out=256", "--set", f"data.name={data}")
        server = Server(wide, "--max-body", 1)
        self.addCleanup(server.kill)
        raw = {"Inference-Header-Content-Length": "0"}
        self.assertEqual(server.ask("POST", "/v2/models/wide/infer", self.pixels[:36] * 4096, raw)[0], 200)
        status, _, answer = server.ask("POST", "/v2/models/wide/infer", self.pixels[:36] * 4097, raw)
        self.assertEqual(status, 413)
        self.assertIn("at most 4096 samples", answer["error"])
        server.end()

    def test_a_large_request_leaves_no_memory_behind(self):
        def resident():
            with open(f"/proc/{self.server.process.pid}/status") as file:
                return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

        self.assertEqual(self.infer(0, 1)[0], 200)
        before = resident()
        for _ in range(4):  # connections go to the threads in turn
            body = request([7] * 5_000_000, 10)
            self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", body)[0], 400)
        if not tool.sanitized():
            self.assertLess(resident() - before, 40_000)

    def test_what_is_no_http(self):
        self.assertIn(b" 400 ", self.server.raw(b"garbage\r\n\r\n"))
        self.assertIn(b" 431 ", self.server.raw(b"GET /v2 HTTP/1.1\r\nA: " + b"x" * 40000 + b"\r\n\r\n"))
        self.assertIn(b" 413 ", self.server.raw(b"POST /v2/models/quadrant/infer HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n"))
        self.assertIn(b" 400 ", self.server.raw(b"POST /v2 HTTP/1.1\r\nContent-Length: -5\r\n\r\n"))
        self.assertIn(b" 400 ", self.server.raw(bytes(range(256)) * 10))
        self.assertIn(b" 400 ", self.server.raw(b"GET /v2 HTTP/1.1\r\n\r\n"))  # for no host
        self.assertEqual(self.infer(0, 1)[0], 200)

    def test_a_body_is_never_taken_for_a_request(self):
        body = b"GET /v2/models/quadrant HTTP/1.1\r\nHost: x\r\n\r\n"
        for coding in ("gzip", "gzip, chunked", "identity", "chunked\r\nTransfer-Encoding: gzip"):
            answer = self.server.raw(f"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n".encode() + body)
            self.assertRegex(answer, rb"^HTTP/1.1 (400|501) ", coding)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, coding)

    def test_details_of_http(self):
        status, headers, _ = self.ask("POST", "/v2")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        self.assertEqual(self.ask("GET", "/v2/models/quadrant/infer")[1]["Allow"], "POST")
        self.assertEqual([self.ask(method, "/v2/repository/index")[0] for method in ("GET", "HEAD", "POST")], [200] * 3)
        for path, described in self.ask("GET", "/openapi.json")[2]["paths"].items():
            status, headers, _ = self.ask("PUT", path.format(model="quadrant", version="1"))
            methods = {each.upper() for each in described} & {"GET", "POST"}
            self.assertEqual((status, set(headers["Allow"].split(", ")) - {"HEAD"}), (405, methods), path)
        host = f"http://127.0.0.1:{self.server.port}"
        self.assertEqual(self.ask("GET", host + "/v2/models/quadrant")[0], 200)
        body = gzip.compress(request(self.pixels[:36], 1).encode())
        for name in ("GZIP", "x-gzip"):
            self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", body, {"Content-Encoding": name})[0], 200, name)

    def test_pages_of_other_sites(self):
        body = request(self.pixels[:36], 1)
        host = f"127.0.0.1:{self.server.port}"
        for origin, status in (("http://evil.example", 403), ("null", 403), ("http://" + host, 200)):
            self.assertEqual(self.ask("POST", "/v2/models/quadrant/infer", body, {"Origin": origin})[0], status)

    # Load

    def test_many_at_once_share_launches(self):
        wrong = []

        def client(number):
            connection = self.server.connect()
            for i in range(30):
                first = (number * 7 + i) % 90
                status, _, answer = self.infer(first, 1 + i % 3, connection=connection)
                got = answer["outputs"][0]["data"] if status == 200 else []
                want = sum(self.want[first:first + 1 + i % 3], [])
                if len(got) != len(want) or max(abs(a - b) for a, b in zip(got, want)) > 1e-5:
                    wrong.append((status, answer))
        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(wrong, [])
        text = self.ask("GET", "/metrics")[2].decode()
        for name in ("requests_total", "samples_total", "queue_requests", "batch_samples_bucket", "request_seconds_bucket",
                     "request_seconds_sum", "compute_seconds_count"):
            self.assertRegex(text, rf'ridgeline_{name}{{model="quadrant",version="1"')
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) \w+ .+|\w+({[^}]*})? [-+.e\w]+)$")
        time.sleep(0.3)  # the log is written now and then
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        self.assertTrue(any(line["status"] == 200 and line.get("model") == "quadrant" and line["samples"] == 3
                            and line["path"] == "/v2/models/quadrant/infer" for line in lines))

    def test_models_change_under_load(self):
        models = self.folder / "models"
        models.mkdir()
        shutil.copytree(self.run_dir, models / "net")
        shutil.copy(self.run_dir / "model.safetensors", models / "flat.safetensors")
        for version in ("9", "10"):
            (models / "many" / version).mkdir(parents=True)
            shutil.copy(self.run_dir / "model.safetensors", models / "many" / version)
        (models / "bad.safetensors").write_bytes(b"no model")
        server = Server("--models", models, "--max-batch", 4)
        self.addCleanup(server.kill)
        states = {(m["name"], m["version"]): m["state"] for m in server.ask("POST", "/v2/repository/index")[2]}
        self.assertEqual(states, {("net", "1"): "READY", ("flat", "1"): "READY", ("many", "9"): "READY",
                                  ("many", "10"): "READY", ("bad", "1"): "UNAVAILABLE"})
        self.assertEqual(self.infer(0, 1, server, name="many")[2]["model_version"], "10")
        self.assertEqual(self.infer(0, 1, server, name="many/versions/9")[2]["model_version"], "9")
        results, stop = [], threading.Event()

        def client():
            connection = server.connect()
            while not stop.is_set():
                results.append(self.infer(len(results) % 90, 2, server, connection, "net")[0])
        threads = [threading.Thread(target=client) for _ in range(3)]
        for each in threads:
            each.start()
        for _ in range(4):
            self.assertEqual(server.ask("POST", "/v2/repository/models/net/load")[0], 200)
        good = (models / "net/model.safetensors").read_bytes()
        (models / "net/model.safetensors").write_bytes(good[:-7])
        status, _, answer = server.ask("POST", "/v2/repository/models/net/load")
        self.assertEqual(status, 400)
        self.assertIn("model.safetensors", answer["error"])
        (models / "net/model.safetensors").write_bytes(good)
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(server.ask("POST", "/v2/repository/models/flat/unload")[0], 200)
        self.assertEqual(server.ask("GET", "/v2/models/flat")[0], 404)
        stop.set()
        for each in threads:
            each.join()
        self.assertEqual(set(results), {200})
        self.assertGreater(len(results), 20)
        self.assertEqual(server.ask("POST", "/v2/repository/models/bad/load")[0], 400)
        self.assertEqual(server.ask("POST", "/v2/repository/models/flat/load")[0], 200)
        server.end()

    def test_a_full_queue(self):
        # Requests wait for others for seconds, so that the queue of two fills.
        server = Server(self.run_dir, "--queue", 2, "--max-delay", 1500)
        self.addCleanup(server.kill)
        connections = [server.connect() for _ in range(8)]
        for each in connections:
            each.request("POST", "/v2/models/quadrant/infer", request(self.pixels[:36], 1))
        answers = [each.getresponse() for each in connections]
        statuses = sorted(each.status for each in answers)
        self.assertEqual(set(statuses), {200, 503})
        self.assertEqual(statuses.count(200), 2)
        self.assertTrue(all(each.getheader("Retry-After") for each in answers if each.status == 503))
        server.end()

    def test_the_end_loses_nothing(self):
        server = Server(self.run_dir, "--max-delay", 700)
        self.addCleanup(server.kill)
        connections = [server.connect() for _ in range(5)]
        idle = server.connect()
        self.assertEqual(server.ask("GET", "/v2", connection=idle)[0], 200)
        for each in connections:
            each.request("POST", "/v2/models/quadrant/infer", request(self.pixels[:36], 1))
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        answers = [each.getresponse() for each in connections]
        self.assertEqual({(each.status, each.getheader("Connection")) for each in answers}, {(200, "close")})
        self.assertEqual(server.process.wait(timeout=30), 0)

    def test_priorities_timeouts_and_clients_that_leave(self):
        server = Server(self.run_dir, "--max-delay", 400, "--max-batch", 64)
        self.addCleanup(server.kill)

        def parameters(**more):
            return request(self.pixels[:36], 1, parameters=more)
        good = [server.connect() for _ in range(3)]
        for each, priority in zip(good, (3, 0, 1)):
            each.request("POST", "/v2/models/quadrant/infer", parameters(priority=priority))
        late = server.connect()
        late.request("POST", "/v2/models/quadrant/infer", parameters(timeout=1000))
        gone = server.connect()
        gone.request("POST", "/v2/models/quadrant/infer", parameters())
        time.sleep(0.1)
        gone.close()
        answer = late.getresponse()
        self.assertEqual((answer.status, answer.getheader("Retry-After")), (503, "1"))
        self.assertIn("timeout", json.loads(answer.read())["error"])
        self.assertEqual([each.getresponse().status for each in good], [200] * 3)
        text = server.ask("GET", "/metrics")[2].decode()
        self.assertRegex(text, r'ridgeline_requests_total\{[^}]*result="expired"\} 1')
        self.assertRegex(text, r'ridgeline_requests_total\{[^}]*result="abandoned"\} 1')
        self.assertRegex(text, r'ridgeline_samples_total\{[^}]*\} 3')
        self.assertRegex(text, r'ridgeline_device_busy_seconds_total\{device="cpu"\} \S+')
        self.assertRegex(text, r'ridgeline_fraction_of_limit\{[^}]*\} \S+')
        for bad in ({"priority": 4}, {"priority": -1}, {"timeout": "x"}, {"priority": 1.5}):
            self.assertEqual(server.ask("POST", "/v2/models/quadrant/infer", parameters(**bad))[0], 400, bad)
        server.end()

    def test_compressed_answers(self):
        body = request(self.pixels[:36 * 100], 100)
        status, headers, packed = self.ask("POST", "/v2/models/quadrant/infer", body, {"Accept-Encoding": "gzip"})
        self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"))
        plain = self.ask("POST", "/v2/models/quadrant/infer", body)[2]
        self.assertEqual(packed, plain)
        self.assertNotIn("Content-Encoding", self.infer(0, 1)[1])

    def test_the_folder_is_watched(self):
        models = self.folder / "watched"
        models.mkdir()
        shutil.copy(self.run_dir / "model.safetensors", models / "a.safetensors")
        server = Server("--models", models, "--poll", 0.1)
        self.addCleanup(server.kill)

        def loaded():
            return [each["name"] for each in server.ask("POST", "/v2/repository/index", '{"ready": true}')[2]]

        def becomes(want):
            end = time.monotonic() + 30
            while loaded() != want and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(loaded(), want)
        becomes(["a"])
        shutil.copy(self.run_dir / "model.safetensors", self.folder / "b.tmp")
        (self.folder / "b.tmp").rename(models / "b.safetensors")
        becomes(["a", "b"])
        (models / "bad.onnx").write_bytes(b"no model")
        (models / "a.safetensors").unlink()
        becomes(["b"])
        self.assertEqual(self.infer(0, 1, server, name="b")[0], 200)
        server.end()
        self.assertEqual(sum("bad" in line for line in server.said), 1, server.said)

    def test_a_start_beside_a_bad_version(self):
        """What a bad new version could not replace is there after a restart, too."""
        models = self.folder / "versions"
        for version in ("1", "2", "3"):
            (models / "net" / version).mkdir(parents=True)
            shutil.copy(self.run_dir / "model.safetensors", models / "net" / version)
        server = Server("--models", models)
        self.addCleanup(server.kill)
        (models / "net/3/model.safetensors").write_bytes(b"no model")
        status, _, answer = server.ask("POST", "/v2/repository/models/net/load")
        self.assertEqual((status, "3/model.safetensors" in answer["error"]), (400, True), answer)
        self.assertEqual(self.infer(0, 1, server, name="net")[2]["model_version"], "3")  # as it was
        server.end()
        server = Server("--models", models)
        self.addCleanup(server.kill)
        self.assertEqual(self.infer(0, 1, server, name="net")[2]["model_version"], "2")
        self.assertEqual(server.ask("GET", "/v2/models/net")[2]["versions"], ["1", "2"])
        states = {m["version"]: (m["state"], m.get("reason", "")) for m in server.ask("POST", "/v2/repository/index")[2]}
        self.assertEqual((states["1"], states["3"][0]), (("READY", ""), "UNAVAILABLE"))
        self.assertIn("model.safetensors", states["3"][1])
        self.assertTrue(any("net, version 3" in line for line in server.said), server.said)
        shutil.copy(self.run_dir / "model.safetensors", models / "net/3")
        self.assertEqual(server.ask("POST", "/v2/repository/models/net/load")[0], 200)
        self.assertEqual(self.infer(0, 1, server, name="net")[2]["model_version"], "3")
        server.end()
        fails = tool.run("serve", f"net:1={models / 'net/1'}", f"net:2={models / 'net/2/none'}", "--port", 0, "--no-tune", code=3)
        self.assertIn("none", fails.stderr)

    def test_slow_clients(self):
        server = Server(self.run_dir, "--request-time", 1, "--idle-time", 1, "--max-connections", 4)
        self.addCleanup(server.kill)
        begin = time.monotonic()
        self.assertEqual(server.raw(b"POST /v2/models/quadrant/infer HTTP/1.1\r\nContent-Length: 50\r\n\r\n{", 20), b"")
        self.assertEqual(server.raw(b"", 20), b"")
        self.assertLess(time.monotonic() - begin, 15)
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        time.sleep(0.3)
        self.assertEqual(server.raw(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 5), b"")  # one too many
        for each in held:
            each.close()
        time.sleep(0.3)
        self.assertEqual(self.infer(0, 1, server)[0], 200)
        server.end()

    def test_a_server_that_was_held_up_waits_for_its_clients(self):
        server = Server(self.run_dir, "--request-time", 2)
        self.addCleanup(server.kill)
        body = request(self.pixels[:36], 1).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(b"POST /v2/models/quadrant/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:9])
            time.sleep(0.3)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(4)
            server.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            client.sendall(body[9:])
            self.assertEqual(client.recv(12), b"HTTP/1.1 200")
        server.end()

    # The start

    def test_tokens(self):
        tokens = self.folder / "tokens"
        tokens.write_text("# ours\nsecret-1\nsecret-2\n")
        server = Server(self.run_dir, "--token-file", tokens, "--host", "0.0.0.0")
        self.addCleanup(server.kill)
        for value, status in (("", 401), ("Bearer secret-", 401), ("Bearer secret-11", 401), ("Basic secret-1", 401),
                              ("Bearer secret-1", 200), ("bearer secret-2", 200)):
            self.assertEqual(server.ask("GET", "/v2", headers={"Authorization": value})[0], status, value)
        self.assertEqual(server.ask("GET", "/v2/health/ready")[0], 200)
        self.assertEqual(server.ask("POST", "/v2/models/quadrant/infer", "{}")[0], 401)

        def becomes(text, said, accepted):
            """The tokens after SIGHUP: those of the file, or the old ones if it is bad."""
            lines = len(server.said)
            tokens.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 30
            while not any(said in line for line in server.said[lines:]) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(any(said in line for line in server.said[lines:]), server.said)
            for token in ("secret-1", "secret-3"):
                status = server.ask("GET", "/v2", headers={"Authorization": "Bearer " + token})[0]
                self.assertEqual(status, 200 if token == accepted else 401, (text, token))
        becomes("secret-3\r\n", "loaded quadrant again", "secret-3")
        for bad in ("", "two words\n"):
            becomes(bad, "the tokens stay as they were", "secret-3")
        server.end()

    def test_starts_that_fail(self):
        def fails(code, says, *arguments):
            self.assertIn(says, tool.run("serve", *arguments, "--port", 0, "--no-tune", code=code).stderr)
        fails(2, "needs a model")
        fails(2, "--insecure", self.run_dir, "--host", "0.0.0.0")
        fails(2, "--host", self.run_dir, "--host", "here")
        fails(2, "two models", self.run_dir, f"quadrant={self.run_dir}")
        fails(2, "NAME=PATH", f"a/b={self.run_dir}")
        fails(3, "nothing", self.folder / "nothing")
        fails(5, "--models", "--models", self.folder / "nothing")
        fails(5, "tokens-none", self.run_dir, "--token-file", self.folder / "tokens-none")
        done = subprocess.run([tool.TOOL, "serve", str(self.run_dir), "--port", str(self.server.port), "--no-tune"],
                              capture_output=True, text=True, env=tool.environment(), timeout=60)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("in use", done.stderr)


class UserData(unittest.TestCase):
    def test_columns_by_name(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        lines = ["age,kind,price"] + [f"{20 + i % 40},{'cat' if i % 2 else 'dog'},{i % 40 * 3 + i % 2 * 10}" for i in range(200)]
        (folder / "pets.csv").write_text("\n".join(lines) + "\n")
        (folder / "pets.toml").write_text(f"""
[data]
train = "{folder / 'pets.csv'}"
target = "price"
[model]
layers = [{{ type = "linear", out = 8 }}, {{ type = "relu" }}, {{ type = "linear", out = 1 }}]
[train]
batch = 16
epochs = 3
[run]
device = "cpu"
tune = false
""")
        tool.run("train", folder / "pets.toml", "--out", folder / "pets", "--quiet")
        tool.run("infer", folder / "pets", "--input", folder / "pets.csv", "--output", folder / "out.csv", "--no-tune")
        want = [float(line.split(",")[1]) for line in (folder / "out.csv").read_text().splitlines()[1:4]]
        server = Server(folder / "pets")
        self.addCleanup(server.kill)
        model = server.ask("GET", "/v2/models/pets")[2]
        self.assertEqual({i["name"]: i["datatype"] for i in model["inputs"]}, {"age": "FP64", "kind": "BYTES"})
        self.assertEqual([o["name"] for o in model["outputs"]], ["values"])
        age = {"name": "age", "shape": [3, 1], "datatype": "FP64", "data": [20, 21, 22]}
        kind = {"name": "kind", "shape": [3, 1], "datatype": "BYTES", "data": ["dog", "cat", "dog"]}
        status, _, answer = server.ask("POST", "/v2/models/pets/infer", json.dumps({"inputs": [kind, age]}))
        self.assertEqual(status, 200, answer)
        for a, b in zip(answer["outputs"][0]["data"], want):
            self.assertAlmostEqual(a, b, delta=1e-3 * max(1, abs(b)))
        for inputs, says in (([age], "kind"), ([age, {**kind, "data": ["dog", "cow", "dog"]}], "cow"),
                             ([{**age, "data": [1, None, 2]}, kind], "age"), ([age, {**kind, "shape": [2, 1], "data": ["dog", "cat"]}], "samples")):
            status, _, answer = server.ask("POST", "/v2/models/pets/infer", json.dumps({"inputs": inputs}))
            self.assertEqual(status, 400, answer)
            self.assertIn(says, answer["error"])
        server.end()


class Sequences(unittest.TestCase):
    def test_samples_are_as_long_as_they_are(self):
        """A request of few timesteps is answered as `infer` answers it, without padding that counts."""
        folder = tool.Folder()
        self.addCleanup(folder.close)
        samples = [[[(i * 7 + t) % 5 - 2, t % 3] for t in range(1 + i % 6)] for i in range(60)]
        with open(folder / "steps.jsonl", "w") as file:
            for steps in samples:
                file.write(json.dumps({"steps": steps, "y": sum(step[0] for step in steps) + 0.5}) + "\n")
        tool.run("data", "describe", folder / "steps.jsonl", "--write-config", folder / "steps.toml")
        tool.run("train", folder / "steps.toml", "--out", folder / "steps", "--quiet", "--no-tune", "--set", "train.epochs=2")
        tool.run("infer", folder / "steps", "--input", folder / "steps.jsonl", "--output", folder / "out.csv", "--no-tune")
        want = [float(line.split(",")[1]) for line in (folder / "out.csv").read_text().splitlines()[1:]]
        server = Server(folder / "steps")
        self.addCleanup(server.kill)
        declared = server.ask("GET", "/v2/models/steps")[2]["inputs"]
        self.assertEqual(declared, [{"name": "steps", "datatype": "FP32", "shape": [-1, -1, 2]}])

        def ask(shape, data):
            body = {"inputs": [{"name": "steps", "shape": shape, "datatype": "FP32", "data": data}]}
            return server.ask("POST", "/v2/models/steps/infer", json.dumps(body))

        for length in range(1, 7):
            alike = [i for i, steps in enumerate(samples) if len(steps) == length]
            status, _, answer = ask([len(alike), length, 2], [samples[i] for i in alike])
            self.assertEqual(status, 200, answer)
            for got, i in zip(answer["outputs"][0]["data"], alike):
                self.assertAlmostEqual(got, want[i], delta=1e-4 * max(1, abs(want[i])))
        for shape in ([1, 7, 2], [1, 0, 2], [1, 6], [1, 4, 3], [1, 12]):
            status, _, answer = ask(shape, [0] * (shape[1] * (shape + [1])[2]))
            self.assertEqual(status, 400, answer)
            self.assertIn("1 to 6 timesteps", answer["error"])
        # The shortest request, without JSON, has samples of the full length.
        full = next(i for i, steps in enumerate(samples) if len(steps) == 6)
        body = struct.pack("<12f", *(x for step in samples[full] for x in step))
        status, _, answer = server.ask("POST", "/v2/models/steps/infer", body,
                                       headers={"Inference-Header-Content-Length": "0"})
        self.assertEqual(status, 200, answer)
        self.assertAlmostEqual(struct.unpack("<f", answer[-4:])[0], want[full], delta=1e-4 * max(1, abs(want[full])))
        server.end()


TEXTS = """
[data]
name = "{data}"
[data.text]
columns = ["2"]
label = "1"
length = 24
classes = ["flower", "air", "wood"]
first_label = 1
[model]
layers = [{{ type = "onehot_conv1d", symbols = 70, out = 8, kernel = 3 }}, {{ type = "relu" }}, {{ type = "flatten" }},
          {{ type = "linear", out = 3 }}]
[train]
batch = 16
epochs = 8
[run]
device = "cpu"
tune = false
"""


class Texts(unittest.TestCase):
    def test_texts_are_encoded_as_infer_does(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        words = ["a Red rose", "Blue sky!", "green tree"]
        for part, count in (("train", 60), ("test", 12)):
            (folder.data / f"{part}.csv").write_text("".join(f'{1 + i % 3},"{words[i % 3]} {i}"\n' for i in range(count)))
        (folder / "text.toml").write_text(TEXTS.format(data=folder.data))
        tool.run("train", folder / "text.toml", "--out", folder / "text", "--quiet")
        asked = words + ["caf\u00e9 \u4e16", "", "x" * 100]
        (folder / "lines").write_text("".join(text + "\n" for text in asked))
        lines = tool.run("infer", folder / "text", "--input", folder / "lines", "--input-format", "lines", "--no-tune").stdout
        want = [float(x) for line in lines.splitlines()[1:] for x in line.split(",")[2:]]
        server = Server(folder / "text")
        self.addCleanup(server.kill)
        body = {"inputs": [{"name": "text", "shape": [len(asked), 1], "datatype": "BYTES", "data": asked}]}
        status, _, answer = server.ask("POST", "/v2/models/text/infer", json.dumps(body))
        self.assertEqual(status, 200, answer)
        numbers, label = answer["outputs"]
        self.assertEqual(len(numbers["data"]), len(want))
        for a, b in zip(numbers["data"], want):
            self.assertAlmostEqual(a, b, delta=1e-5)
        self.assertEqual(label["datatype"], "BYTES")
        self.assertLessEqual(set(label["data"]), {"flower", "air", "wood"})
        server.end()


if __name__ == "__main__":
    if "has no server" in subprocess.run([tool.TOOL, "serve", "/dev/null/none"], capture_output=True, text=True).stderr:
        print("skipped: built without Boost or simdjson")
        sys.exit(77)
    unittest.main()
