"""Small files take little memory: the peak memory of `infer` and `eval`, with inputs and models made to
take much."""

import gzip
import json
import struct
import sys
import unittest

sys.dont_write_bytecode = True
import tool

TEXTS = """
[data]
name = "{data}"
[data.text]
columns = ["text"]
label = "label"
length = 12
classes = ["a", "b"]
[model]
layers = [{{ type = "onehot_conv1d", symbols = 70, out = 4, kernel = 3 }}, {{ type = "flatten" }},
          {{ type = "linear", out = 2 }}]
[train]
batch = 4
epochs = 1
[run]
device = "cpu"
tune = false
"""
IMAGES = """
[data]
name = "{data}"
resize = [8, 8]
[model]
layers = [{{ type = "maxpool2d", kernel = 2 }}, {{ type = "flatten" }}, {{ type = "linear", out = 4 }}]
[train]
batch = 4
epochs = 1
[run]
device = "cpu"
tune = false
"""
PEAK = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], capture_output=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode, "
        "done.stderr.decode()[-500:].strip())")


def peak(*arguments, code=0):
    """The most memory that a run of the tool takes, in MB."""
    done = tool.command([sys.executable, "-c", PEAK, tool.TOOL, *arguments, "--threads", 1],
                        env=tool.environment())
    kilobytes, returned, said = done.stdout.split(" ", 2)
    assert int(returned) == code, (arguments, said)
    return int(kilobytes) / 1e3


@unittest.skipIf(tool.sanitized(), "sanitizers keep freed memory")
class Memory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder(samples=16)
        texts = cls.folder / "texts"
        texts.mkdir()
        for part in ("train", "test"):
            (texts / f"{part}.csv").write_text("label,text\n" + "a,one\nb,two\n" * 4)
        cls.texts = cls.train("texts", TEXTS.format(data=texts))
        cls.images = cls.train("images", IMAGES.format(data=cls.folder.data))
        source = cls.folder / "few.txt"
        source.write_text("one\ntwo\n")
        cls.base = peak("infer", cls.texts, "--input", source)

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    @classmethod
    def train(cls, name, config):
        path = cls.folder / f"{name}.toml"
        path.write_text(config)
        tool.run("train", path, "--out", cls.folder / name, "--quiet")
        return cls.folder / name / "model.safetensors"

    def takes(self, most, source, samples=None, code=0):
        """`infer` of the texts takes at most that many MB more than of two short lines."""
        out = self.folder / "out.csv"
        took = peak("infer", self.texts, "--input", source, "--output", out, code=code) - self.base
        self.assertLess(took, most)
        if samples is not None:
            self.assertEqual(len(out.read_text().splitlines()), samples + 1)

    def bomb(self, name, record, count):
        """A gzip file of many members, each a record: of a thousandth of what it unpacks to."""
        path = self.folder / name
        path.write_bytes(gzip.compress(record) * count)
        return path

    def test_long_records(self):
        # 300 MB in all; chunks of 256 records would have 256 MB each, and a dozen are in memory.
        self.takes(200, self.bomb("long.txt.gz", b"x" * 1_000_000 + b"\n", 300), samples=300)
        self.takes(200, self.bomb("long.csv.gz", b"text\n", 1), samples=0)
        self.takes(400, self.bomb("longer.txt.gz", b"x" * 15_000_000 + b"\n", 20), samples=20)
        self.takes(100, self.bomb("endless.txt.gz", b"x" * 1_000_000, 300), code=3)

    def test_json(self):
        wide = b'{"x":[' + b"1," * 7_000_000 + b'1],"text":"a"}\n'
        self.takes(200, self.bomb("wide.jsonl.gz", wide, 2), samples=2)
        keys = b'{"text":"a",' + b",".join(b'"%d":1' % i for i in range(1_000_000)) + b"}\n"
        self.takes(200, self.bomb("keys.jsonl.gz", keys, 1), code=3)
        deep = b'{"text":"a","x":' + b"[" * 7_000_000 + b"]" * 7_000_000 + b"}\n"
        self.takes(200, self.bomb("deep.jsonl.gz", deep, 1), code=3)

    def test_models_that_ask_for_large_images(self):
        good = self.images.read_bytes()
        (length,) = struct.unpack("<Q", good[:8])
        header = json.loads(good[8:8 + length])
        metadata = header["__metadata__"]
        for key, pairs in (("ridgeline.config", (("[8, 8]", "[4096, 4096]"), ("[2, 2]", "[1024, 1024]"))),
                           ("ridgeline.input", (("8x8", "4096x4096"),))):
            for old, new in pairs:
                metadata[key] = metadata[key].replace(old, new)
        packed = json.dumps(header).encode()
        path = self.folder / "asks.safetensors"
        path.write_bytes(struct.pack("<Q", len(packed)) + packed + good[8 + length:])
        self.assertLess(path.stat().st_size, 3000)
        count = 40  # 0.7 GB in that size, and four times as much in floats
        pixels, labels = tool.images(count, 3)
        images = self.folder.data / "t10k-images-idx3-ubyte"
        tool.write_idx(images, (count, 6, 6), pixels)
        tool.write_idx(self.folder.data / "t10k-labels-idx1-ubyte", (count,), labels)
        self.assertLess(peak("infer", path, "--input", images) - self.base, 600)
        self.assertLess(peak("eval", path) - self.base, 600)

    def test_images_that_become_small(self):
        # 60 MB of gzip would be a hundred images of 64 MiB; they are read one by one.
        shape = (3, 7000, 8000)
        head = bytes([0, 0, 8, 3]) + b"".join(struct.pack(">I", n) for n in shape)
        path = self.folder / "large.idx.gz"
        path.write_bytes(gzip.compress(head) + gzip.compress(bytes(7000 * 8000)) * 3)
        self.assertLess(peak("infer", self.images, "--input", path) - self.base, 700)
        head = bytes([0, 0, 8, 3]) + b"".join(struct.pack(">I", n) for n in (1, 30000, 30000))
        path.write_bytes(gzip.compress(head) + gzip.compress(bytes(1_000_000)) * 900)
        self.assertLess(peak("infer", self.images, "--input", path, code=3) - self.base, 100)


if __name__ == "__main__":
    unittest.main(verbosity=2)
