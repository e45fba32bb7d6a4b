"""Each kind of data file with each kind of fault: a file that is missing, a folder, a pipe or empty, that is cut, damaged,
of another kind than its place wants or does not fit its neighbour. `train`, `infer` and `data describe` end in time with
exit code 3 and one line that names the file, and write nothing."""

import gzip
import math
import os
import pathlib
import random
import shutil
import struct
import sys
import time
import unittest
import zipfile
import zlib

sys.dont_write_bytecode = True
import tool

SAMPLES = 60
RUN = '\n[train]\nepochs = 1\nbatch = 10\n[run]\ndevice = "cpu"\ntune = false\n'
LINEAR = '[model]\nlayers = [FIRST{ type = "linear", out = OUT }]\n'
SECONDS = 20  # far above what refusing a small file takes, far below a read of a pipe that nobody writes


def npy(values, dtype="<f4", code="f"):
    """A .npy file; `values` are the lines of a matrix, or the elements of a vector."""
    flat = [v for line in values for v in line] if isinstance(values[0], list) else values
    shape = f"({len(values)}, {len(values[0])})" if isinstance(values[0], list) else f"({len(values)},)"
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(flat)}{code}", *flat)


def png(pixels, side):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + pixels[y * side:(y + 1) * side] for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


class Kind:
    """A kind of data: its files, the one that is spoilt, and the config that trains on them."""

    def __init__(self, files, spoilt, data, out=2, packed=False, textual=False, input=None, first=""):
        self.files, self.spoilt, self.data, self.out = files, spoilt, data, out
        self.first, self.packed, self.textual = first, packed, textual  # its bytes are gzip; it has no length of its own
        self.input = input or spoilt

    def write(self, folder):
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / "net.toml").write_text(f"[data]\n{self.data}\n" + LINEAR.replace("OUT", str(self.out)).replace("FIRST", self.first) + RUN)


def kinds():
    noise = random.Random(5)
    lines = [[round(noise.uniform(-1, 1), 4) for _ in range(3)] for _ in range(SAMPLES)]
    labels = [int(sum(line) > 0) for line in lines]
    table = "a,b,c,y\n" + "".join(f"{','.join(map(str, line))},{'xy'[label]}\n" for line, label in zip(lines, labels))
    objects = "".join(f'{{"a": {a}, "b": {b}, "c": {c}, "y": "{"xy"[label]}"}}\n' for (a, b, c), label in zip(lines, labels))
    x, y = npy(lines), npy(labels, "<i8", "q")
    archive = pathlib.Path("set.npz")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x_train.npy", x)
        file.writestr("y_train.npy", y)
    pixels = {f"photos/{'ab'[i % 2]}/{i}.png": png(bytes((60 + 130 * (i % 2) + noise.randrange(40)) for _ in range(64)), 8)
              for i in range(20)}
    images, classes = tool.images(SAMPLES, 1)
    idx = {f"{part}-images-idx3-ubyte": bytes([0, 0, 8, 3]) + struct.pack(">III", SAMPLES, 6, 6) + images
           for part in ("train", "t10k")}
    idx |= {f"{part}-labels-idx1-ubyte": bytes([0, 0, 8, 1]) + struct.pack(">I", SAMPLES) + classes
            for part in ("train", "t10k")}
    texts = {f"{part}.csv": ("label,text\n" + "one,good\ntwo,bad\n" * 20).encode() for part in ("train", "test")}
    columns = 'name = "."\n[data.text]\ncolumns = ["text"]\nlabel = "label"\nlength = 12\nclasses = ["one", "two"]'
    return {
        "table": Kind({"t.csv": table.encode()}, "t.csv", 'train = "t.csv"\ntarget = "y"', textual=True),
        "packed table": Kind({"t.csv.gz": gzip.compress(table.encode(), mtime=0)}, "t.csv.gz",
                             'train = "t.csv.gz"\ntarget = "y"', packed=True),
        "objects": Kind({"t.jsonl": objects.encode()}, "t.jsonl", 'train = "t.jsonl"\ntarget = "y"', textual=True),
        "packed objects": Kind({"t.jsonl.gz": gzip.compress(objects.encode(), mtime=0)}, "t.jsonl.gz",
                               'train = "t.jsonl.gz"\ntarget = "y"', packed=True),
        "array": Kind({"x.npy": x, "y.npy": y}, "x.npy", 'train = "x.npy"\ntarget = "y.npy"'),
        "packed array": Kind({"x.npy.gz": gzip.compress(x, mtime=0), "y.npy": y}, "x.npy.gz",
                             'train = "x.npy.gz"\ntarget = "y.npy"', packed=True),
        "targets": Kind({"x.npy": x, "y.npy": y}, "y.npy", 'train = "x.npy"\ntarget = "y.npy"', input="x.npy"),
        "archive": Kind({"set.npz": archive.read_bytes()}, "set.npz", 'train = "set.npz"'),
        "photo": Kind(pixels, "photos/a/4.png", 'train = "photos"'),
        "idx images": Kind(idx, "train-images-idx3-ubyte", 'name = "."', out=4),
        "idx labels": Kind(idx, "train-labels-idx1-ubyte", 'name = "."', out=4, input="train-images-idx3-ubyte"),
        "packed idx": Kind({name + ".gz" * ("images" in name): gzip.compress(data, mtime=0) if "images" in name else data
                            for name, data in idx.items()}, "train-images-idx3-ubyte.gz", 'name = "."', out=4, packed=True),
    }, Kind(texts, "train.csv", columns, textual=True,
                   first='{ type = "onehot_conv1d", symbols = 70, out = 4, kernel = 3 }, { type = "flatten" }, ')


def faults(kind, path):
    """Name and deed of each fault that makes a file of this kind useless."""
    good = path.read_bytes()

    def with_bytes(content):
        return lambda: path.write_bytes(content)

    def gone(make):
        def deed():
            path.unlink()
            make(path)
        return deed

    yield "missing", path.unlink
    yield "a folder", gone(lambda p: p.mkdir())
    yield "a pipe", gone(os.mkfifo)
    yield "empty", with_bytes(b"")
    yield "a zero", with_bytes(b"\0")
    if not kind.textual:
        yield "cut", with_bytes(good[:len(good) // 2])
        yield "its last byte cut off", with_bytes(good[:-1])
    if not kind.textual and not path.name.endswith(".png"):  # viewers of images ignore what follows one
        yield "a byte too many", with_bytes(good + b"\x01")
    if kind.packed:
        yield "a wrong sum at its end", with_bytes(good[:-6] + bytes([good[-6] ^ 1]) + good[-5:])
        yield "a bit flipped inside", with_bytes(good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 4]) +
                                                 good[len(good) // 2 + 1:])
    yield "a program", with_bytes(pathlib.Path(tool.TOOL).read_bytes()[:5000])
    yield "a pickle", with_bytes(b"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94(K\x01K\x02e.")
    yield "a PDF", with_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n" * 20)
    yield "zeros", with_bytes(bytes(len(good)))
    if kind.textual:
        half = len(good) // 2
        yield "a NUL inside", with_bytes(good[:half] + b"\0" + good[half:])


class DataFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder(samples=16)
        os.chdir(cls.folder.path)
        cls.kinds, cls.texts = kinds()

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.folder.close()

    def refused(self, what, folder, names, *command):
        before = sorted(str(p) for p in folder.rglob("*"))
        begin = time.monotonic()
        try:
            done = tool.run(*command, code=3, cwd=folder)
        except AssertionError as error:
            self.fail(f"{what}: {error}")
        self.assertLess(time.monotonic() - begin, SECONDS, what)
        line = done.stderr.splitlines()[-1]
        self.assertTrue(any(name in line for name in names), f"{what}: {line}")
        self.assertEqual(done.stdout, "", what)
        left = sorted(str(p) for p in folder.rglob("*"))
        self.assertEqual(left, before, f"{what}: it left something behind")
        return line

    def test_missing_and_infinite_numbers(self):
        folder = self.folder / "numbers"
        folder.mkdir()
        noise = random.Random(6)
        x = [[noise.random() for _ in range(3)] for _ in range(SAMPLES)]
        y = [noise.random() for _ in range(SAMPLES)]
        Kind({}, "", 'train = "x.npy"\ntarget = "y.npy"', out=1).write(folder)
        for value, says in ((math.nan, "missing"), (math.inf, "infinite"), (-math.inf, "infinite")):
            for spoilt in ("x.npy", "y.npy"):
                lines, targets = [list(line) for line in x], list(y)
                if spoilt == "x.npy":
                    lines[17][1] = value
                else:
                    targets[17] = value
                (folder / "x.npy").write_bytes(npy(lines))
                (folder / "y.npy").write_bytes(npy(targets))
                line = self.refused(f"{spoilt} with {value}", folder, [spoilt], "train", "net.toml", "--out", "run")
                self.assertIn("sample 17", line)
                self.assertIn(says, line)

    def test_no_command_leaves_outputs(self):
        """Files and folders of every flag, when the data turn out to be bad after the flags were checked."""
        folder = self.folder / "outputs"
        folder.mkdir()
        self.kinds["table"].write(folder)
        with open(folder / "t.csv", "a") as file:
            file.write("1,2\n")
        names, outputs = ["t.csv"], ["--json", "r.json", "--report", "page/of/it"]
        for command in (["train", "net.toml", "--out", "runs/of/one", *outputs, "--trace", "t.json"],
                        ["train", "net.toml", "--folds", "3", *outputs[:2]],
                        ["sweep", "net.toml", "--set", "train.seed=1,2", "--out", "study", *outputs, "--csv", "s.csv", "--svg",
                         "s.svg"],
                        ["profile", "net.toml", *outputs, "--trace", "t.json"], ["plan", "net.toml", *outputs[:2]],
                        ["verify", "net.toml", *outputs[:2]]):
            self.refused(" ".join(command), folder, names, *command)

    def each_fault(self, name, kind):
        good, bad, kept = (self.folder / f"{name} {state}" for state in ("good", "bad", "kept"))
        good.mkdir()
        kind.write(good)
        tool.run("train", "net.toml", "--out", "run", "--quiet", cwd=good)
        shutil.move(good / "run", kept)
        tried = 0
        for fault, _ in list(faults(kind, good / kind.spoilt)):
            shutil.copytree(good, bad)
            dict(faults(kind, bad / kind.spoilt))[fault]()
            what = f"{name}: {fault}"
            # A folder of images or a data folder may be what is named if its file is not there.
            path = pathlib.Path(kind.spoilt)
            names = [path.name] + [str(p) for p in path.parents if str(p) != "."] if fault != "missing" else \
                    [path.name, path.name.removesuffix(".gz"), path.parent.name or "data"]
            if not (path.name.endswith(".png") and fault in ("missing", "a folder")):  # it is only one image fewer
                self.refused(what + ", train", bad, names, "train", "net.toml", "--out", "run")
            if kind.input == kind.spoilt:
                self.refused(what + ", infer", bad, names, "infer", kept, "--input", kind.spoilt, "--output",
                             "out.csv")
                if not kind.data.startswith("name"):
                    self.refused(what + ", describe", bad, names, "data", "describe", kind.spoilt, "--write-config",
                                 "described.toml")
            shutil.rmtree(bad)
            tried += 1
        self.assertGreater(tried, 8)


def add(name, kind):
    setattr(DataFaults, f"test_{name.replace(' ', '_')}", lambda self: self.each_fault(name, kind(self)))


for each in ("table", "packed table", "objects", "packed objects", "array", "packed array", "targets", "archive", "photo",
             "idx images", "idx labels", "packed idx"):
    add(each, lambda self, each=each: self.kinds[each])
add("texts", lambda self: self.texts)

if __name__ == "__main__":
    unittest.main(verbosity=2)
