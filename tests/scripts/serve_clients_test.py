"""`ridgeline serve` with common clients: requests that are kept byte for byte with their responses
(tests/serve/golden), tritonclient[http], curl, wrk, and the page in a real browser. A client that is not installed is
skipped and named. With --record the responses are written anew."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import devtools
import tool
from serve_test import TEXTS, Server

GOLDEN = tool.SOURCE / "tests" / "serve" / "golden"


def receive(opened):
    """One response, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = opened.recv(65536)
        if not part:
            return data
        data += part
    head = data.split(b"\r\n\r\n")[0].lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(data) < len(head) + 4 + length:
        part = opened.recv(65536)
        if not part:
            break
        data += part
    return data


class Golden(unittest.TestCase):
    def test_responses_are_those_that_are_kept(self):
        server = Server(f"affine={GOLDEN / 'affine.onnx'}", f"affine:2={GOLDEN / 'affine.onnx'}", "--io-threads", 1)
        self.addCleanup(server.kill)
        requests = sorted(GOLDEN.glob("*.request"))
        self.assertGreater(len(requests), 15)
        for path in requests:
            request, kept = path.read_bytes(), path.with_suffix(".response")
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as opened:
                opened.sendall(request)
                response = receive(opened)
            if "--record" in sys.argv:
                kept.write_bytes(response)
            self.assertEqual(response, kept.read_bytes(), path.name)
        server.end()


TRITON = r"""
import sys
import numpy as np
import tritonclient.http as http
client = http.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("affine")
assert client.is_model_ready("affine", "1")
assert client.get_server_metadata()["name"] == "ridgeline"
described = client.get_model_metadata("affine")
assert described["inputs"][0]["name"] == "x" and described["inputs"][0]["shape"] == [-1, 3], described
assert {each["name"] for each in client.get_model_repository_index()} == {"affine", "text"}
x = np.arange(12, dtype=np.float32).reshape(4, 3)
want = x @ np.array([[1, 2, 3], [-1, 0.5, 0]], np.float32).T + np.array([0.25, -8], np.float32)
for binary_in in (True, False):
    for binary_out in (True, False):
        for packed in (None, "gzip", "deflate"):
            given = http.InferInput("x", [4, 3], "FP32")
            given.set_data_from_numpy(x, binary_data=binary_in)
            asked = http.InferRequestedOutput("values", binary_data=binary_out)
            got = client.infer("affine", [given], outputs=[asked], request_id="7", priority=1, timeout=1000000,
                               request_compression_algorithm=packed, response_compression_algorithm=packed)
            assert np.array_equal(got.as_numpy("values"), want), got.as_numpy("values")
            assert got.get_response()["id"] == "7"
large = http.InferInput("x", [4096, 3], "FP32")
many = np.tile(x, (1024, 1))
large.set_data_from_numpy(many)
got = client.infer("affine", [large], response_compression_algorithm="gzip").as_numpy("values")
assert np.array_equal(got, np.tile(want, (1024, 1)))
handles = [client.async_infer("affine", [given]) for _ in range(20)]
assert all(np.array_equal(each.get_result().as_numpy("values"), want) for each in handles)
texts = np.array([["a Red rose"], ["caf\u00e9 \u4e16"]], dtype=object)
for binary in (True, False):
    given = http.InferInput("text", [2, 1], "BYTES")
    given.set_data_from_numpy(texts, binary_data=binary)
    labels = client.infer("text", [given], outputs=[http.InferRequestedOutput("label", binary_data=binary)])
    labels = labels.as_numpy("label")
    assert {bytes(v) if isinstance(v, bytes) else str(v).encode() for v in labels} <= {b"flower", b"air", b"wood"}, labels
client.unload_model("text")
assert not client.is_model_ready("text")
client.load_model("text")
assert client.is_model_ready("text")
try:
    given = http.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(np.zeros((1, 4), np.float32))
    client.infer("affine", [given])
    raise SystemExit("a wrong shape was taken")
except http.InferenceServerException as error:
    assert "shape" in str(error), error
print("tritonclient: all good")
"""


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()
        words = ["a Red rose", "Blue sky!", "green tree"]
        for part, count in (("train", 60), ("test", 12)):
            (cls.folder.data / f"{part}.csv").write_text(
                "".join(f'{1 + i % 3},"{words[i % 3]} {i}"\n' for i in range(count)))
        (cls.folder / "text.toml").write_text(TEXTS.format(data=cls.folder.data))
        tool.run("train", cls.folder / "text.toml", "--out", cls.folder / "models" / "text", "--quiet")
        shutil.copy(GOLDEN / "affine.onnx", cls.folder / "models" / "affine.onnx")
        cls.server = Server("--models", cls.folder / "models")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.folder.close()

    def test_tritonclient(self):
        python = tool.SOURCE / "build" / "python-env" / "bin" / "python"
        if not python.exists() or subprocess.run([python, "-c", "import tritonclient.http"],
                                                 capture_output=True).returncode != 0:
            self.skipTest("tritonclient is not in build/python-env: run scripts/python-env")
        done = subprocess.run([python, "-c", TRITON, f"127.0.0.1:{self.server.port}"], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
    def test_curl(self):
        base = f"http://127.0.0.1:{self.server.port}"

        def curl(*arguments):
            done = subprocess.run(["curl", "-sS", "--fail-with-body", "--compressed", *arguments], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout

        self.assertEqual(json.loads(curl(base + "/v2/models/affine"))["name"], "affine")
        body = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}'
        self.assertEqual(json.loads(curl(base + "/v2/models/affine/infer", "-d", body))["outputs"][0]["data"],
                         [14.25, -8])
        with tempfile.NamedTemporaryFile("w") as large:  # curl waits for 100 Continue before it sends this
            data = ",".join(["1,2,3"] * 100000)
            large.write(f'{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [100000, 3], "data": [{data}]}}]}}')
            large.flush()
            answer = json.loads(curl(base + "/v2/models/affine/infer", "-H", "Expect: 100-continue", "--data-binary",
                                     "@" + large.name))
        self.assertEqual(answer["outputs"][0]["shape"], [100000, 2])
        self.assertIn("ridgeline_requests_total", curl(base + "/metrics"))
        self.assertIn("openapi", json.loads(curl(base + "/openapi.json")))

    @unittest.skipIf(shutil.which("wrk") is None, "wrk is not installed")
    def test_wrk(self):
        script = self.folder / "post.lua"
        script.write_text('wrk.method = "POST"\nwrk.body = \'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3],'
                          ' "data": [1, 2, 3]}]}\'\n')
        done = subprocess.run(["wrk", "-t1", "-c8", "-d2", "-s", script,
                               f"http://127.0.0.1:{self.server.port}/v2/models/affine/infer"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Requests/sec", done.stdout)
        self.assertNotIn("Non-2xx", done.stdout)
        self.assertNotIn("Socket errors", done.stdout)

    @unittest.skipIf(devtools.browser() is None, "no Chromium is installed")
    def test_the_page_in_a_browser(self):
        """Types a text and pastes a row, as a person does, and reads what the page shows."""
        with devtools.Page(f"http://127.0.0.1:{self.server.port}/", self.folder / "browser") as page:
            page.wait("document.querySelectorAll('#model option').length == 2")
            page.run("$('model').value = 'affine'; $('model').onchange()")
            page.wait("document.getElementsByName('x').length == 1")
            page.type("textarea[name=x]", "1, 2, 3")
            page.click("#ask")
            page.wait("$('answer').textContent.includes('14.25')")
            page.type("textarea[name=x]", "1 2 fish")
            page.click("#ask")
            page.wait("$('error').textContent.includes('fish')")
            page.run("$('model').value = 'text'; $('model').onchange()")
            page.wait("document.getElementsByName('text').length == 1")
            page.type("textarea[name=text]", "a red rose")
            page.click("#ask")
            page.wait("/label: (flower|air|wood)/.test($('answer').textContent)")
            self.assertEqual(page.console(), [])

    @unittest.skipIf(devtools.browser() is None, "no Chromium is installed")
    def test_a_row_of_a_table_in_a_browser(self):
        """Cells in quotes hold commas, and booleans are words, as in the file."""
        rows = [f'{30 + i},{city},{"yes" if i % 3 else "no"},{i * 20}' for i in range(60)
                for city in ('"Cork, Ireland"', "Bonn")]
        (self.folder / "houses.csv").write_text("\n".join(["area,city,garden,price", *rows]) + "\n")
        tool.run("data", "describe", self.folder / "houses.csv", "--target", "price", "--write-config", self.folder / "houses.toml")
        tool.run("train", self.folder / "houses.toml", "--out", self.folder / "houses", "--quiet", "--no-tune", "--set", "train.epochs=1",
                 "--set", "run.device=cpu")
        server = Server(self.folder / "houses")
        self.addCleanup(server.kill)
        with devtools.Page(f"http://127.0.0.1:{server.port}/", self.folder / "browser") as page:
            page.wait("document.getElementById('row') != null")
            for row in ('40,"Cork, Ireland",yes', '40;"Cork, Ireland";No', "40\tBonn\tyes"):
                page.type("#row", row)
                page.click("#ask")
                page.wait("$('answer').textContent != '' && $('error').textContent == ''")
            self.assertEqual(page.console(), [])
            page.type("#row", "40,Atlantis,yes")
            page.click("#ask")
            page.wait("$('error').textContent.includes('Atlantis') && $('answer').textContent == ''")
        server.end()

    @unittest.skipIf(devtools.browser() is None, "no Chromium is installed")
    def test_a_drawing_in_a_browser(self):
        run_dir = self.folder / "quadrant"
        tool.run("train", self.folder.config, "--out", run_dir, "--quiet")
        server = Server(run_dir)
        self.addCleanup(server.kill)
        with devtools.Page(f"http://127.0.0.1:{server.port}/", self.folder / "browser") as page:
            page.wait("document.querySelector('canvas') != null")
            page.drag("canvas", (0.2, 0.2), (0.4, 0.4))
            page.wait("$('answer').textContent.includes('label:')")
            self.assertEqual(page.console(), [])
        server.end()


if __name__ == "__main__":
    if "has no server" in subprocess.run([tool.TOOL, "serve", "/dev/null/none"], capture_output=True, text=True).stderr:
        print("skipped: built without Boost or simdjson")
        sys.exit(77)
    asked = subprocess.run([tool.TOOL, "infer", str(GOLDEN / "affine.onnx"), "--input", "/dev/null"], capture_output=True,
                           text=True)
    if "protobuf" in asked.stderr:
        print("skipped: built without ONNX, which the models here are in")
        sys.exit(77)
    unittest.main(argv=[each for each in sys.argv if each != "--record"])
