"""The command-line tool: usage errors, bad files, output, help."""

import gzip
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
import tool


class Tool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()
        cls.run_dir = cls.folder / "run"
        cls.result = cls.folder / "result.json"
        tool.run("train", cls.folder.config, "--out", cls.run_dir, "--json", cls.result)

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def fails(self, code, *arguments, says=(), **options):
        message = tool.run(*arguments, code=code, **options).stderr
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(str(part), message)

    # Help and usage

    def test_help_is_complete_and_quick(self):
        text = tool.run("--help").stdout
        commands = ("train", "eval", "infer", "sweep", "verify", "plan", "bench", "data", "info")
        for command in commands:
            self.assertIn(command, text)
            self.assertIn("--help", tool.run(command, "--help").stdout)
        for command in (("train",), ("eval",), ("infer",), ("sweep",), ("plan",), ("bench", "mlp"),
                        ("data",), ("info",)):
            self.assertIn("Examples", tool.run(*command, "--help").stdout)
        times = []
        for _ in range(10):
            begin = time.perf_counter()
            subprocess.run([tool.TOOL, "--help"], stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - begin)
        # 50 ms on an idle machine; sanitizers and busy neighbours get some room.
        self.assertLess(min(times), 0.5 if "asan" in str(tool.BUILD) else 0.1)

    def test_version(self):
        self.assertRegex(tool.run("--version").stdout, r"^ridgeline \d+\.\d+\.\d+$")

    def test_unknown_words_get_the_nearest(self):
        self.fails(2, "train", self.folder.config, "--treads", "2", says=("--treads", "--threads"))
        self.fails(2, "trian", says=("trian", "train"))
        self.fails(2, "data", "lsit", says=("lsit", "list"))
        self.fails(2, "train", self.folder.config, "--set", "train.batchs=3", says="train.batch")
        self.fails(2, "train", self.folder.config, "--set", "data.name=fasion-mnist",
                   says=("fasion-mnist", "fashion-mnist"))
        self.fails(2, "train", self.folder.config, "--kernels", "cpu.mpl_train.simd",
                   says=("cpu.mpl_train.simd", "cpu.mlp_train.simd"))
        self.fails(2, "train", self.folder.config, "--kernels", "!cpu.*", says="leaves out")
        self.fails(2, "train", self.folder.config, "another", says="another")
        self.fails(2, says="")
        self.fails(2, "train", says="config")
        self.fails(2, "train", self.folder.config, "--resume", "--force")
        self.fails(2, "train", self.folder.config, "--resume", says="--out")
        self.fails(2, "train", self.folder.config, "--threads", "-1")
        for seconds in ("nan", "-1", "3601", "two"):
            self.fails(2, "profile", self.folder.config, "--seconds", seconds,
                       says=("--seconds", f"{seconds} is not a number from 0 to 3600"))
        self.fails(2, "train", self.folder / "none.toml", says="none.toml")
        self.fails(2, "sweep", self.folder.config, says="key=a,b,c")
        self.fails(2, "infer", "none", "--input", "none", "--format", "xml",
                   says=("--format 'xml'", "csv, json or npy"))
        self.fails(2, "bench", "mlp", "--only", "1-2:3", says="1-2:3")
        self.fails(2, "bench", "rnn", "--cell", "lstmm", says=("lstmm", "{gru,lstm,rnn-relu,rnn-tanh}"))
        self.fails(2, "bench", "gemm", "--op", "nnx", says=("nnx", "{nn,nt,tn}"))

    def test_devices(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has a GPU")
        self.fails(6, "train", self.folder.config, "--device", "cuda", says="cuda")
        self.fails(2, "train", self.folder.config, "--device", "tpu", says="tpu")
        tool.run("train", self.folder.config, "--device", "auto", "--quiet",
                 "--set", "train.max_steps=1")

    def test_print_config_reads_back(self):
        text = tool.run("train", self.folder.config, "--set", "train.optimizer.lr=0.25",
                        "--print-config").stdout
        again = self.folder / "again.toml"
        again.write_text(text)
        self.assertIn("0.25", text)
        self.assertEqual(tool.run("train", again, "--print-config").stdout, text)

    # A run's output

    def test_train_output(self):
        files = {p.name for p in self.run_dir.iterdir()}
        self.assertLessEqual({"model.safetensors", "checkpoint.safetensors", "metrics.jsonl",
                              "config.toml"}, files)
        self.assertFalse([name for name in files if name.endswith(".tmp")])
        lines = [json.loads(line) for line in
                 (self.run_dir / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([x["epoch"] for x in lines if x["event"] == "eval"], [1, 2, 3])
        result = json.loads(self.result.read_text())
        for key in ("accuracy", "loss", "steps", "steps_per_second", "us_per_step",
                    "flops_per_second", "limit_fraction", "threads", "device", "kernels",
                    "startup_seconds", "tuning_seconds"):
            self.assertIn(key, result)
        self.assertEqual(result["steps"], 3 * 13)
        self.assertGreater(result["accuracy"], 0.9)
        self.assertEqual(result["device"], "cpu")
        self.assertTrue(all(kernel.startswith("cpu.") for kernel in result["kernels"]))
        shapes = {name: shape for name, (_, shape, _) in
                  tool.tensors(self.run_dir / "model.safetensors").items()}
        self.assertEqual(shapes, {"0.weight": [16, 36], "0.bias": [16],
                                  "2.weight": [4, 16], "2.bias": [4]})

    def test_folder_of_another_run(self):
        self.fails(2, "train", self.folder.config, "--out", self.run_dir, says="--force")
        other = self.folder / "forced"
        tool.run("train", self.folder.config, "--out", other, "--set", "train.max_steps=3")
        tool.run("train", self.folder.config, "--out", other, "--force",
                 "--set", "train.max_steps=5")

    def test_eval_agrees_with_train(self):
        out = self.folder / "eval.json"
        tool.run("eval", self.run_dir, "--json", out)
        want, got = json.loads(self.result.read_text()), json.loads(out.read_text())
        self.assertEqual(got["accuracy"], want["accuracy"])
        self.assertAlmostEqual(got["loss"], want["loss"], places=6)
        tool.run("eval", self.run_dir / "checkpoint.safetensors", "--on", self.folder.data,
                 "--train-part")

    def test_infer(self):
        source = self.folder.data / "t10k-images-idx3-ubyte"
        packed = self.folder / "images.gz"
        packed.write_bytes(gzip.compress(source.read_bytes()))
        text = tool.run("infer", self.run_dir, "--input", source).stdout
        lines = text.splitlines()
        self.assertEqual(lines[0], "index,label,p0,p1,p2,p3")
        self.assertEqual(len(lines), 101)
        out = self.folder / "labels.csv"
        tool.run("infer", self.run_dir, "--input", packed, "--output", out, "--batch", "7")
        labels = [line.split(",")[:2] for line in lines]
        self.assertEqual([line.split(",")[:2] for line in out.read_text().splitlines()], labels)
        objects = tool.run("infer", self.run_dir, "--input", source, "--format", "json").stdout
        self.assertEqual([json.loads(line)["label"] for line in objects.splitlines()],
                         [int(pair[1]) for pair in labels[1:]])
        self.fails(2, "infer", self.run_dir, "--input", source, "--columns", "text",
                   says=("--columns", "is read as images, which have none"))
        truth = (self.folder.data / "t10k-labels-idx1-ubyte").read_bytes()[8:]
        right = sum(int(pair[1]) == label for pair, label in zip(labels[1:], truth))
        self.assertEqual(right / 100, json.loads(self.result.read_text())["accuracy"])

    def test_infer_spares_what_it_reads(self):
        model = self.folder / "spared.safetensors"
        source = self.folder / "spared.idx"
        shutil.copy(self.run_dir / "model.safetensors", model)
        shutil.copy(self.folder.data / "t10k-images-idx3-ubyte", source)
        kept = model.read_bytes(), source.read_bytes()
        for output in (model, source):
            self.fails(2, "infer", model, "--input", source, "--output", output, says="choose another")
        self.assertEqual((model.read_bytes(), source.read_bytes()), kept)

    def test_infer_to_a_closed_pipe(self):
        source = self.folder.data / "train-images-idx3-ubyte"
        tool_process = subprocess.Popen(
            [tool.TOOL, "infer", str(self.run_dir), "--input", str(source), "--batch", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=tool.environment())
        tool_process.stdout.close()
        message = tool_process.stderr.read().decode()
        tool_process.stderr.close()
        self.assertEqual(tool_process.wait(), 0, message)  # a reader that has enough is no fault
        self.assertRegex(message, r"(?m)^\d+ inputs? in")  # start-up may have said what took long

    def test_sweep(self):
        out = self.folder / "study"
        text = tool.run("sweep", self.folder.config, "--set", "model.layers.0.out=4,8,16",
                        "--set", "train.optimizer.lr=0.1,0.01", "--set", "train.epochs=1",
                        "--out", out).stdout
        self.assertEqual(len(text.splitlines()), 7)
        rows = (out / "sweep.csv").read_text().splitlines()
        self.assertEqual(len(rows), 7)
        self.assertTrue(rows[0].startswith("model.layers.0.out,train.optimizer.lr,accuracy,loss"))
        points = json.loads((out / "sweep.json").read_text())["points"]
        self.assertEqual(len(points), 6)
        self.assertEqual(points[1]["set"], {"model.layers.0.out": "4", "train.optimizer.lr": "0.01"})
        lines = xml.parse(out / "sweep.svg").getroot().findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 2)

    def test_sweep_chooses_its_device_once(self):
        done = tool.run("sweep", self.folder.config, "--device", "auto",
                        "--set", "train.batch = 8, 16", "--set", "train.max_steps=2")
        self.assertIn("[2/2] train.batch=", done.stderr)
        self.assertLessEqual(done.stderr.count("using the CPU"), 1)

    def test_sweep_is_checked_before_its_first_run(self):
        for sets, code, says in ((("model.layers.2.out=4,5",), 2, "5 outputs"),
                                 (("train.batch=8,16", "train.batch=4,32"), 2, "swept twice"),
                                 (("train.batch=8,0",), 2, "train.batch=0")):
            flags = [word for key in sets for word in ("--set", key)]
            done = tool.run("sweep", self.folder.config, *flags, code=code)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(says, done.stderr)

    def test_sweep_json_to_stdout_is_json(self):
        text = tool.run("sweep", self.folder.config, "--set", "train.batch=8,16",
                        "--set", "train.max_steps=2", "--json", "-").stdout
        self.assertEqual(len(json.loads(text)["points"]), 2)

    def test_sweep_goes_on_after_a_divergence(self):
        text = tool.run("sweep", self.folder.config, "--set", "train.optimizer.lr=0.1,1e30",
                        "--set", "train.epochs=1").stdout
        self.assertIn("diverged", text)

    def test_plan(self):
        out = self.folder / "plan.json"
        text = tool.run("plan", self.folder.config, "--all", "--json", out).stdout
        self.assertNotIn("another device", text)
        for part in ("program:", "chosen kernels", "candidates", "refused:", "memory:", "limit:"):
            self.assertIn(part, text)
        plan = json.loads(out.read_text())
        self.assertEqual(plan["kernels"][0]["begin"], 0)
        self.assertEqual(plan["kernels"][-1]["end"], len(plan["ops"]))
        self.assertLessEqual(plan["memory"]["peak_live"], plan["memory"]["arena"])

    def test_source_of_a_generated_kernel(self):
        if "kernels generated with" not in tool.run("info").stdout:
            self.fails(2, "plan", self.folder.config, "--source", says="no GPU support")
            return
        source = tool.run("plan", self.folder.config, "--source").stdout
        for part in ("ridgeline_generated", "// layer 0: ", "// layer 1: ", "using optimizer"):
            self.assertIn(part, source.lower())

    def test_info(self):
        text = tool.run("info").stdout
        for part in ("kernels", "caches", "data", "threads"):
            self.assertIn(part, text)

    def test_data_commands(self):
        text = tool.run("data", "list").stdout
        self.assertIn("mnist", text)
        self.assertIn("fashion-mnist", text)
        self.fails(2, "data", "check", "mnits", says="mnits")
        self.fails(3, "data", "check", "mnist", "--data", self.folder.data, says="mnist")

    # Bad files

    def broken(self, part, change):
        """A folder whose data differs in one file."""
        bad = tool.Folder()
        self.addCleanup(bad.close)
        path = bad.data / part
        path.write_bytes(change(path.read_bytes()))
        return bad.config, path.name

    def test_bad_data_files(self):
        images, labels = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
        for part, change, says in (
                (images, lambda b: b[:-5], images),
                (images, lambda b: b + b"x", images),
                (images, lambda b: b"\0\0\7\3" + b[4:], images),
                (images, lambda b: b"", images),
                (images, lambda b: b[:4] + b"\xff" * 12 + b[16:], images),
                (images, lambda b: gzip.compress(b)[:-20], images),
                (labels, lambda b: b[:4] + b"\0\0\0\7" + b[8:15], "7"),
        ):
            config, name = self.broken(part, change)
            self.fails(3, "train", config, says=says)
        odd, _ = self.broken(labels, lambda b: b[:25] + b"\x09" + b[26:])
        self.fails(2, "train", odd, says=("10 classes", "sample 17 is of class 9"))
        missing, name = self.broken(images, lambda b: b)
        (pathlib.Path(missing).parent / "data" / name).unlink()
        self.fails(3, "train", missing, says=images)
        self.fails(3, "train", missing, "--set", "data.name=nowhere/data",
                   says="nowhere/data: no such data folder or file")
        self.fails(2, "train", missing, "--set", 'data.name="a\\u0000b"', says=("NUL", r"a\x00b"))

    def test_bad_model_files(self):
        good = (self.run_dir / "model.safetensors").read_bytes()
        bad = self.folder / "bad.safetensors"
        source = self.folder.data / "t10k-images-idx3-ubyte"
        for content in (b"", b"x", good[:40], good[:-1], good + b"x", b"\xff" * 8 + good[8:],
                        b"\x80\x02}q\0.", good.replace(b"0.weight", b"9.weight"),
                        good.replace(b'"F32"', b'"F31"'),
                        good.replace(b"ridgeline.version", b"ridgeline.versiom")):
            bad.write_bytes(content)
            self.fails(3, "eval", bad, says="bad.safetensors")
            self.fails(3, "infer", bad, "--input", source, says="bad.safetensors")
        self.fails(3, "eval", self.folder / "none.safetensors", says="none.safetensors")

    def test_a_model_file_gets_no_memory_for_what_it_does_not_hold(self):
        good = (self.run_dir / "model.safetensors").read_bytes()
        bad = self.folder / "claims.safetensors"
        (length,) = struct.unpack("<Q", good[:8])
        for key, old, new, says in (
                ("ridgeline.config", "out = 16", "out = 2000000000", "'0.weight' is [16, 36]"),
                ("ridgeline.input", "6x6", "3000000000x3000000000x3000000000", "3000000000"),
                ("ridgeline.scale", None, "nan", "ridgeline.scale")):
            header = json.loads(good[8:8 + length])
            text = header["__metadata__"][key]
            header["__metadata__"][key] = text.replace(old, new) if old else new
            packed = json.dumps(header).encode()
            bad.write_bytes(struct.pack("<Q", len(packed)) + packed + good[8 + length:])
            self.fails(3, "eval", bad, says=("claims.safetensors", says))

    def test_every_cut_of_a_model_file_is_refused(self):
        good = (self.run_dir / "model.safetensors").read_bytes()
        bad = self.folder / "cut.safetensors"
        for length in range(0, len(good), max(1, len(good) // 25)):
            bad.write_bytes(good[:length])
            self.fails(3, "eval", bad, says="cut.safetensors")

    def test_a_model_that_is_not_finite_is_not_written(self):
        bad, out, onnx = self.folder / "nan.safetensors", self.folder / "out.safetensors", self.folder / "nan.onnx"
        tensors, metadata = tool.read_safetensors(self.run_dir / "model.safetensors")
        dtype, shape, weights = tensors["2.weight"]
        metadata = {key: text for key, text in metadata.items() if "crc32" not in key}

        def write(value):
            changed = struct.pack("<f", value) + weights[4:]
            tool.write_safetensors(bad, {**tensors, "2.weight": (dtype, shape, changed)}, metadata)
            return changed

        tool.run("export", self.run_dir, "--onnx", onnx)
        exported = onnx.read_bytes()
        self.assertEqual(exported.count(weights), 1)
        for value in (float("nan"), float("-inf")):
            changed = write(value)
            self.fails(3, "export", bad, "--onnx", out, says="'2.weight' has 1 weight that is not finite")
            onnx.write_bytes(exported.replace(weights, changed))
            self.fails(3, "import", onnx, "--out", out, says=("nan.onnx", "has 1 weight that is not finite"))
            self.fails(3, "eval", bad, "--strict", says=("nan.safetensors", "'2.weight' has 1 weight that is not finite"))
        write(70000)
        self.fails(2, "export", bad, "--onnx", out, "--weights", "fp16", says=("2.weight", "70000", "65504"))
        self.assertFalse(out.exists())
        tool.run("export", bad, "--onnx", out)

    def test_output_that_cannot_be_written(self):
        source = self.folder.data / "t10k-images-idx3-ubyte"
        self.fails(5, "infer", self.run_dir, "--input", source, "--output",
                   self.folder / "none" / "x.csv", says="x.csv")
        for flags in (("train", self.folder.config, "--json"),
                      ("sweep", self.folder.config, "--set", "train.batch=8,16", "--csv"),
                      ("eval", self.run_dir, "--json"), ("plan", self.folder.config, "--json")):
            done = tool.run(*flags, self.folder / "none" / "x", code=5)
            self.assertEqual(len(done.stderr.splitlines()), 1, "known before the work")
        self.fails(5, "sweep", self.folder.config, "--set", "train.batch=8,16",
                   "--out", self.folder.config, says="--out")
        for command in (("infer", self.run_dir, "--input", source), ("eval", self.run_dir),
                        ("train", self.folder.config), ("data", "list"), ("--help",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([tool.TOOL, *map(str, command)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, env=tool.environment())
            self.assertEqual(done.returncode, 5, (command, done.stderr))

    def test_a_full_or_closed_stderr_ends_nothing(self):
        for redirect in ("2>/dev/full", "2>&-"):
            for command, code in ((f"train {self.folder.config}", 0), ("trian", 2)):
                done = subprocess.run(f"{tool.TOOL} {command} {redirect}", shell=True,
                                      stdout=subprocess.PIPE, text=True, env=tool.environment())
                self.assertEqual(done.returncode, code)
                self.assertEqual("accuracy" in done.stdout, code == 0)

    def test_a_closed_stdout_does_not_spill_into_files(self):
        out = self.folder / "spill"
        done = subprocess.run(f"{tool.TOOL} train {self.folder.config} --out {out} >&-",
                              shell=True, stderr=subprocess.PIPE, env=tool.environment())
        self.assertEqual(done.returncode, 5)
        for name in (".lock", "metrics.jsonl", "config.toml"):
            self.assertNotIn("accuracy  ", (out / name).read_text())

    def test_too_many_threads(self):
        if "asan" in str(tool.BUILD) or "tsan" in str(tool.BUILD):
            self.skipTest("sanitizers need more address space than the limit leaves")
        limit = (3 << 30, 3 << 30)
        done = tool.run("train", self.folder.config, "--threads", "4096",
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
        self.assertRegex(done.stderr, r"warning: .*computing with \d+ instead of 4096")

    def test_a_folder_without_a_model(self):
        self.fails(3, "eval", self.folder.data, says="holds no model.safetensors")
        unfinished = self.folder / "unfinished"
        unfinished.mkdir()
        shutil.copy(self.run_dir / "checkpoint.safetensors", unfinished)
        self.fails(3, "eval", unfinished, says=("has not ended", "checkpoint.safetensors"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
