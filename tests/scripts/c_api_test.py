"""The C interface as any language uses it (here by ctypes): it gives the results of `infer`, carries recurrent state,
reports errors instead of ending the process, exports only its functions, and with one thread allocates nothing, takes no
lock and makes no system call after the preparation."""

import csv
import ctypes
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import tool

LIBRARY = tool.BUILD / "ridgeline" / "c_api" / "libridgeline.so"
EXAMPLES = tool.BUILD / "examples"
OWN, FLOAT32, UINT8 = 0, 1, 2
OK, USAGE, DATA, MODEL = 0, 1, 2, 3
NET = '[data]\n{data}\n[model]\nlayers = [{layers}]\n[train]\n{train}\n[run]\ndevice = "cpu"\ntune = false\n'

LAYERS = {
    "mlp": '{ type="linear", out=37 }, { type="relu" }, { type="linear", out=4 }',
    "gelu": '{ type="linear", out=20 }, { type="gelu" }, { type="linear", out=4 }',
    "conv": '{ type="conv2d", out=3, kernel=3 }, { type="relu" }, { type="maxpool2d", kernel=2 }, { type="flatten" },'
            ' { type="linear", out=4 }',
    "rows": '{ type="lstm", hidden=19 }, { type="select" }, { type="linear", out=4 }',
}


def library():
    # A sanitizer's own library would have to be loaded first.
    lib = ctypes.CDLL(str(LIBRARY))
    for name in ("ridgeline_version", "ridgeline_last_error", "ridgeline_class_name"):
        getattr(lib, name).restype = ctypes.c_char_p
    for name in ("ridgeline_batch", "ridgeline_input_size", "ridgeline_output_size", "ridgeline_class_count"):
        getattr(lib, name).restype = ctypes.c_int64
    lib.ridgeline_state_size.restype = ctypes.c_size_t
    return lib


def floats(values):
    return (ctypes.c_float * len(values))(*values)


class Net:
    """A model and one predictor of it."""

    def __init__(self, path, batch=1, steps=False, type_=OWN, threads=1):
        self.lib = library()
        self.model, self.predictor = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.ridgeline_load(str(path).encode(), ctypes.byref(self.model)))
        prepare = self.lib.ridgeline_prepare_steps if steps else self.lib.ridgeline_prepare
        self.check(prepare(self.model, ctypes.c_int64(batch), b"cpu", threads, type_, ctypes.byref(self.predictor)))
        self.outputs = self.lib.ridgeline_output_size(self.predictor)
        self.batch = batch

    def check(self, status):
        if status != OK:
            raise RuntimeError(status, self.lib.ridgeline_last_error().decode())

    def run(self, samples, count=None):
        count = self.batch if count is None else count
        out = (ctypes.c_float * (self.outputs * max(count, 1)))()
        self.check(self.lib.ridgeline_run(self.predictor, samples, ctypes.c_int64(count), out))
        return list(out)

    def step(self, timestep):
        out = (ctypes.c_float * (self.outputs * self.batch))()
        self.check(self.lib.ridgeline_step(self.predictor, timestep, out))
        return list(out)

    def state(self):
        size = self.lib.ridgeline_state_size(self.predictor)
        bytes_ = ctypes.create_string_buffer(size)
        self.check(self.lib.ridgeline_save_state(self.predictor, bytes_, ctypes.c_size_t(size)))
        return bytes_.raw

    def restore(self, state):
        self.check(self.lib.ridgeline_restore_state(self.predictor, state, ctypes.c_size_t(len(state))))

    def close(self):
        self.lib.ridgeline_free_predictor(self.predictor)
        self.lib.ridgeline_free_model(self.model)


def infer(model, path, out):
    tool.run("infer", model, "--input", path, "--output", out, "--device", "cpu", "--no-tune", "--output-kind",
             "probabilities")
    with open(out, newline="") as file:
        rows = list(csv.reader(file))
    return rows


class CApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["XDG_CACHE_HOME"] = str(tool.BUILD / "test-cache")
        cls.folder = tool.Folder()
        cls.nets = {}
        for name, layers in LAYERS.items():
            cls.nets[name] = cls.train(name, f'name = "{cls.folder.data}"', layers, "batch = 16\nepochs = 1")
        wave = [math.sin(t / 5.0) for t in range(300)]
        (cls.folder / "wave.csv").write_text("wave\n" + "".join(f"{v!r}\n" for v in wave))
        cls.wave = wave
        series = f'train = "{cls.folder / "wave.csv"}"\ntarget = "wave"\n' \
                 'window = { length = 16, horizon = 1, stride = 1 }\ntarget_scale = "standard"\nsplit = { test = 0.2 }'
        cls.nets["gru"] = cls.train("gru", series,
                                    '{ type="gru", hidden=21, layers=2 }, { type="select" }, { type="linear", out=1 }',
                                    'batch = 16\nepochs = 1\nloss = "mse"')
        (cls.folder / "table.csv").write_text(
            "a,b,y\n" + "".join(f"{t * 0.1},{'' if t % 7 == 0 else t % 5},{3 * t + 1}\n" for t in range(100)))
        table = f'train = "{cls.folder / "table.csv"}"\ntarget = "y"\ntarget_scale = "standard"\nmissing = "indicator"'
        cls.nets["table"] = cls.train("table", table, '{ type="linear", out=8 }, { type="tanh" }, { type="linear", out=1 }',
                                      'batch = 16\nepochs = 2\nloss = "mse"')
        (cls.folder / "text.txt").write_text("abcacb" * 200)
        cls.nets["text"] = cls.train("text", f'name = "{cls.folder / "text.txt"}"\nsteps = 8',
                                     '{ type="embedding", vocabulary=3, out=5 }, { type="lstm", hidden=17, layers=2 },'
                                     ' { type="linear", out=3, per_step=true }', "batch = 4\nepochs = 1")

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    @classmethod
    def train(cls, name, data, layers, how):
        (cls.folder / f"{name}.toml").write_text(NET.format(data=data, layers=layers, train=how))
        out = cls.folder / name
        tool.run("train", cls.folder / f"{name}.toml", "--out", out)
        return out

    def close_to(self, got, want, tolerance=2e-6):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertLessEqual(abs(a - b), tolerance * (1 + abs(b)))

    def test_answers_what_infer_answers(self):
        count = 5
        pixels = (self.folder.data / "t10k-images-idx3-ubyte").read_bytes()[16:]
        for name in LAYERS:
            rows = infer(self.nets[name], self.folder.data / "t10k-images-idx3-ubyte", str(self.folder / "out.csv"))
            columns = len(rows[-1]) - 4
            want = [float(v) for row in rows[-100:][:count] for v in row[columns:]]
            for batch in (1, 3, 5, 12):
                net = Net(self.nets[name], batch)
                self.assertEqual(net.lib.ridgeline_input_size(net.predictor), 36)
                self.assertEqual(net.lib.ridgeline_input_type(net.predictor), UINT8)
                got = []
                for first in range(0, count, batch):
                    part = min(batch, count - first)
                    got += net.run(pixels[36 * first:36 * (first + part)], part)
                self.close_to(got, want)
                net.close()
            net = Net(self.nets[name], 1, type_=FLOAT32)  # the same bytes as floats
            self.close_to(net.run(floats(list(pixels[:36]))), want[:4])
            net.close()

    def test_prepares_numbers_as_in_training(self):
        rows = infer_values(self.nets["table"], self.folder / "table.csv", self.folder)
        net = Net(self.nets["table"], 2)
        self.assertEqual(net.lib.ridgeline_input_size(net.predictor), 2)
        self.assertEqual(net.lib.ridgeline_class_count(net.model), 0)
        sample = floats([0.0, math.nan, 0.1, 1.0])
        self.close_to(net.run(sample), rows[:2], 1e-5)
        with self.assertRaisesRegex(RuntimeError, "infinite"):
            net.run(floats([math.inf, 0.0, 0.0, 0.0]))
        net.close()

    def test_threads_share_the_preparation_of_many_samples(self):
        count = 40000
        one, many = Net(self.nets["table"], 1), Net(self.nets["table"], count, threads=2)
        numbers = [i % 97 / 97 for i in range(2 * count)]
        for last in (0.5, math.nan):  # the second one is replaced
            numbers[-1] = last
            got = many.run(floats(numbers), count)
            for i in (0, 1, count // 2 - 1, count // 2, count - 1):
                self.close_to(got[i:i + 1], one.run(floats(numbers[2 * i:2 * i + 2])), 1e-5)
        numbers[-2] = math.inf
        with self.assertRaisesRegex(RuntimeError, f"sample {count - 1} is infinite"):
            many.run(floats(numbers), count)
        one.close()
        many.close()

    def test_steps_are_the_sequence(self):
        want = infer_values(self.nets["gru"], self.folder / "wave.csv", self.folder)
        net = Net(self.nets["gru"], 1, steps=True)
        for t in range(16):
            got = net.step(floats([self.wave[t]]))
            if t == 7:
                half = net.state()
        self.close_to(got, want[:1], 1e-5)
        net.restore(half)  # goes on from the middle
        for t in range(8, 16):
            again = net.step(floats([self.wave[t]]))
        self.assertEqual(got, again)
        net.check(net.lib.ridgeline_reset_state(net.predictor))
        for t in range(1, 17):
            got = net.step(floats([self.wave[t]]))
        self.close_to(got, want[1:2], 1e-5)
        other = Net(self.nets["gru"], 3, steps=True)  # streams side by side do not see each other
        for t in range(16):
            three = other.step(floats([self.wave[t], self.wave[t + 1], 0.5]))
        self.close_to(three[:2], want[:2], 1e-5)
        net.close()
        other.close()

    def test_steps_of_rows_and_characters(self):
        pixels = (self.folder.data / "t10k-images-idx3-ubyte").read_bytes()[16:]
        whole, net = Net(self.nets["rows"]), Net(self.nets["rows"], steps=True)
        for row in range(6):
            got = net.step(pixels[6 * row:6 * row + 6])
        self.close_to(got, whole.run(pixels[:36]))
        text = Net(self.nets["text"], steps=True)
        for code in (0, 1, 2):
            p = text.step(bytes([code]))
            self.assertAlmostEqual(sum(p), 1, 5)
        with self.assertRaisesRegex(RuntimeError, "code"):
            text.step(bytes([3]))
        for each in (whole, net, text):
            each.close()

    def test_says_what_is_wrong(self):
        lib = library()
        self.assertEqual(lib.ridgeline_c_api_version(), 2)
        version = re.search(r"VERSION (\d+\.\d+\.\d+)", (tool.SOURCE / "CMakeLists.txt").read_text())
        self.assertEqual(lib.ridgeline_version().decode(), version.group(1))
        model, predictor = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertNotEqual(lib.ridgeline_load(b"/no/such/file", ctypes.byref(model)), OK)
        self.assertIn("/no/such/file", lib.ridgeline_last_error().decode())
        damaged = self.folder / "damaged.safetensors"
        damaged.write_bytes(b"no model")
        self.assertEqual(lib.ridgeline_load(str(damaged).encode(), ctypes.byref(model)), MODEL)
        self.assertEqual(lib.ridgeline_load(None, ctypes.byref(model)), USAGE)
        self.assertEqual(lib.ridgeline_load(b"x", None), USAGE)
        self.assertEqual(lib.ridgeline_prepare(None, ctypes.c_int64(1), None, 1, 0, ctypes.byref(predictor)), USAGE)
        self.assertEqual(lib.ridgeline_run(None, None, ctypes.c_int64(1), None), USAGE)
        net = Net(self.nets["mlp"])
        for device, idle, says in ((b"cpu", 1.0, "GPU"), (b"cuda", -1.0, "idle_seconds"), (b"cuda", math.nan, "idle_seconds")):
            status = lib.ridgeline_prepare_resident(net.model, device, 0, ctypes.c_double(idle), 0, ctypes.byref(predictor))
            self.assertNotEqual(status, OK)
            self.assertIn(says, lib.ridgeline_last_error().decode())
            self.assertIsNone(predictor.value)
        net.close()
        lib.ridgeline_free_model(None)
        lib.ridgeline_free_predictor(None)
        for batch, steps, type_, what in ((0, False, OWN, "batch"), (1, True, OWN, "recurrent"), (1, False, 7, "type"),
                                          (-1, False, OWN, "batch")):
            with self.assertRaisesRegex(RuntimeError, what):
                Net(self.nets["mlp"], batch, steps, type_)
        with self.assertRaisesRegex(RuntimeError, "threads"):
            Net(self.nets["mlp"], threads=-1)
        with self.assertRaisesRegex(RuntimeError, "uint8"):
            Net(self.nets["text"], type_=FLOAT32)
        net = Net(self.nets["mlp"], 2)
        with self.assertRaisesRegex(RuntimeError, "3 samples"):
            net.run(bytes(108), 3)
        with self.assertRaisesRegex(RuntimeError, "prepare_steps"):
            net.step(bytes(36))
        with self.assertRaisesRegex(RuntimeError, "bytes"):
            net.restore(b"1234")
        self.assertEqual(lib.ridgeline_class_name(net.model, ctypes.c_int64(3)), b"3")
        self.assertIsNone(lib.ridgeline_class_name(net.model, ctypes.c_int64(4)))
        extents = (ctypes.c_int64 * 6)()
        self.assertEqual(lib.ridgeline_input_shape(net.predictor, extents, 6), 2)
        self.assertEqual(list(extents[:2]), [6, 6])
        net.close()

    def test_exports_its_functions_only(self):
        header = (tool.SOURCE / "ridgeline" / "c_api.h").read_text()
        declared = set(re.findall(r"RIDGELINE_API [^;(]*?\b(ridgeline_\w+)\(", header))
        listed = tool.command(["nm", "-D", "--defined-only", LIBRARY]).stdout.splitlines()
        exported = {line.split()[-1].split("@")[0] for line in listed if line.split()[1] != "A"}
        self.assertGreater(len(declared), 15)
        self.assertEqual(exported, declared)

    def test_examples_run(self):
        done = subprocess.run([EXAMPLES / "example_c_audio", self.nets["gru"]], capture_output=True, text=True,
                              input="".join(f"{v}\n" for v in self.wave[:100]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worst block", done.stderr)
        got = [float(v) for v in done.stdout.split()]
        self.assertEqual(len(got), 100)
        want = infer_values(self.nets["gru"], self.folder / "wave.csv", self.folder)
        self.close_to(got[15:16], want[:1], 1e-5)

    @unittest.skipIf(tool.sanitized(), "a program of another language does not load a sanitizer first")
    def test_other_languages(self):
        want = infer_values(self.nets["table"], self.folder / "table.csv", self.folder)[1]
        library = LIBRARY.parent
        for compiler, source, flags in (("rustc", "rust/predict.rs", ("-O", "-l", "ridgeline")),
                                        ("gfortran", "fortran/predict.f90", ("-lridgeline", f"-J{self.folder.path}"))):
            if shutil.which(compiler) is None:
                print(compiler, "is not installed: its example was not built")
                continue
            program = self.folder / compiler
            tool.command([compiler, tool.SOURCE / "examples" / source, "-o", program, "-L", library, *flags])
            done = tool.command([program, self.nets["table"], "0.1", "1"],
                                env=tool.environment(LD_LIBRARY_PATH=str(library)))
            self.close_to([float(done.stdout)], [want], 1e-5)

    @unittest.skipIf(tool.sanitized(), "a sanitizer allocates and asks the system itself")
    def test_runs_quietly(self):
        quiet = tool.BUILD / "tests" / "quiet_run"
        def seen(*arguments):
            done = subprocess.run([quiet, *map(str, arguments)], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr
        for control in ("malloc", "lock", "syscall"):
            self.assertEqual(seen(self.nets["mlp"], "run", 1, control)[0], 0, control)
        for name in ("mlp", "gelu", "conv", "rows", "gru", "table"):
            for batch in (1, 3, 32):
                code, said = seen(self.nets[name], "run", batch)
                self.assertEqual(code, 0, (name, batch, said))
        for name in ("rows", "gru", "text"):
            for batch in (1, 8, 20):
                code, said = seen(self.nets[name], "step", batch)
                self.assertEqual(code, 0, (name, batch, said))


def infer_values(model, path, folder):
    out = str(folder / "values.csv")
    tool.run("infer", model, "--input", path, "--output", out, "--device", "cpu", "--no-tune", "--output-kind", "values")
    with open(out, newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    numbers = []
    for row in rows:
        try:
            numbers.append(float(row[-1]))
        except ValueError:
            continue  # the header
    return numbers


if __name__ == "__main__":
    unittest.main()
