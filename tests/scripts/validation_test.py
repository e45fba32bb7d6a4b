"""Validation during training: the split, best weights, early stopping, metrics, sweeps, fine-tuning. Metrics are
compared with their definitions, written out here."""

import itertools
import json
import math
import random
import shutil
import signal
import struct
import sys
import unittest

sys.dont_write_bytecode = True
import tool

SPLIT = ("--set", "data.split={validation=0.25,seed=7,stratify=true}")
BEST = (*SPLIT, "--set", "train.keep=best")


def macro_f1(truth, given):
    scores = []
    for c in sorted(set(truth) | set(given)):
        right = sum(t == c and g == c for t, g in zip(truth, given))
        wrong = sum(t != c and g == c for t, g in zip(truth, given))
        missed = sum(t == c and g != c for t, g in zip(truth, given))
        scores.append(2 * right / (2 * right + wrong + missed))
    return sum(scores) / len(scores)


def auc(positive, scores):
    """By definition: the share of pairs of a positive and a negative sample in the right order."""
    ups = [s for p, s in zip(positive, scores) if p]
    downs = [s for p, s in zip(positive, scores) if not p]
    pairs = sum(1.0 if u > d else 0.5 if u == d else 0.0 for u, d in itertools.product(ups, downs))
    return pairs / (len(ups) * len(downs))


def macro_auc(truth, outputs):
    areas = [auc([t == c for t in truth], [row[c] for row in outputs]) for c in sorted(set(truth))]
    return sum(areas) / len(areas)


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def checkpoint(run):
    return json.loads(tool.read_safetensors(run / "checkpoint.safetensors")[1]["ridgeline.checkpoint"])


class Validation(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder()
        self.addCleanup(self.folder.close)
        self.out = self.folder / "run"
        self.json = self.folder / "result.json"

    def train(self, *more, out=None, code=0):
        done = tool.run("train", self.folder.config, "--out", out or self.out, "--json", self.json, *more, code=code)
        return json.loads(self.json.read_text()) if code == 0 else done

    def test_metrics_agree_with_their_formulas(self):
        result = self.train("--set", "train.max_steps=9")
        outputs = self.folder / "outputs.csv"
        tool.run("infer", self.out, "--input", self.folder.data / "t10k-images-idx3-ubyte", "--output", outputs)
        rows = [line.split(",") for line in outputs.read_text().splitlines()[1:]]
        given = [int(row[1]) for row in rows]
        probabilities = [[float(x) for x in row[2:]] for row in rows]
        truth = list((self.folder.data / "t10k-labels-idx1-ubyte").read_bytes()[8:])
        self.assertAlmostEqual(result["accuracy"], sum(t == g for t, g in zip(truth, given)) / len(truth), places=6)
        self.assertAlmostEqual(result["f1"], macro_f1(truth, given), places=6)
        self.assertAlmostEqual(result["auc"], macro_auc(truth, probabilities), places=4)
        self.assertNotIn("top5", result)  # of four classes every one is among the first five
        self.assertNotIn("mse", result)
        again = self.folder / "eval.json"
        tool.run("eval", self.out, "--json", again)
        kept = json.loads(again.read_text())
        for name in ("accuracy", "f1", "auc"):
            self.assertAlmostEqual(kept[name], result[name], places=6)

    def test_validation_and_test_are_told_apart(self):
        done = tool.run("train", self.folder.config, "--out", self.out, "--json", self.json, *SPLIT)
        result = json.loads(self.json.read_text())
        for name in ("loss", "accuracy", "f1", "auc"):
            self.assertIn(name, result)
            self.assertIn(name, result["validation"])
        lines = metrics(self.out)
        self.assertEqual([x["epoch"] for x in lines if x["event"] == "validation"], [1, 2, 3])
        self.assertEqual([x["epoch"] for x in lines if x["event"] == "eval"], [3])  # once, at the end
        self.assertEqual(lines[-1]["loss"], result["loss"])
        self.assertIn("f1", lines[-1])
        self.assertEqual(result["steps"], 3 * 10)  # 150 of 200 samples, in batches of 16
        self.assertEqual(done.stderr.count("validation loss"), 3)
        self.assertEqual(done.stderr.count("test loss"), 1)

    def test_the_split_is_the_same_and_its_own(self):
        first = self.train(*SPLIT)
        again = self.train(*SPLIT, out=self.folder / "again")
        self.assertEqual(first["validation"], again["validation"])
        other = self.train("--set", "data.split={validation=0.25,seed=8}", out=self.folder / "other")
        self.assertNotEqual(first["validation"]["loss"], other["validation"]["loss"])
        self.train("--resume", "--set", "data.split={validation=0.25,seed=8}", code=2)

    def test_the_best_weights_are_kept(self):
        # A rate that is far too high at first: the best evaluation is not the last.
        more = (*BEST, "--set", "train.epochs=6", "--set", "train.optimizer.lr=0.6", "--set", "train.monitor=accuracy")
        result = self.train(*more)
        lines = [x for x in metrics(self.out) if x["event"] == "validation"]
        best = max(lines, key=lambda x: (x["accuracy"], -x["step"]))
        self.assertEqual(result["best"]["step"], best["step"])
        self.assertAlmostEqual(result["best"]["value"], best["accuracy"], places=5)
        self.assertTrue(result["best"]["kept"])
        whole = self.folder / "short"
        self.train(*SPLIT, "--set", "train.optimizer.lr=0.6", "--set", f"train.max_steps={best['step']}",
                   "--set", "train.epochs=6", out=whole)
        self.assertEqual(tool.tensors(self.out / "model.safetensors"), tool.tensors(whole / "model.safetensors"))
        stands = checkpoint(self.out)
        self.assertEqual(stands["best"]["step"], best["step"])
        if best["step"] != result["steps"]:  # the checkpoint goes on from the last step all the same
            self.assertNotEqual(tool.tensors(self.out / "checkpoint.safetensors")["0.weight"],
                                tool.tensors(self.out / "model.safetensors")["0.weight"])
        tool.run("eval", self.out / "checkpoint.safetensors")

    def test_resume_chooses_as_a_run_in_one_go(self):
        more = (*BEST, "--set", "train.optimizer.lr=0.6", "--set", "train.monitor=f1", "--set", "train.epochs=6",
                "--set", "train.eval_every=2")
        whole = self.folder / "whole"
        want = self.train(*more, out=whole)
        for steps in (7, 10, 33, 60):  # within epochs and at their ends, where eval_every asks for nothing
            resume = ("--resume",) if steps > 7 else ()
            got = self.train(*more, *resume, "--set", f"train.max_steps={steps}")
        self.assertEqual(got["best"], want["best"])
        for name in ("model.safetensors", "checkpoint.safetensors"):
            self.assertEqual(tool.tensors(self.out / name), tool.tensors(whole / name))
        self.assertEqual(checkpoint(self.out)["best"], checkpoint(whole)["best"])
        self.train(*more, "--resume", "--set", "train.monitor=loss", code=2)

    def test_patience_ends_a_run(self):
        more = (*SPLIT, "--set", "train.epochs=200", "--set", "train.patience=2", "--set", "train.monitor=accuracy")
        done = tool.run("train", self.folder.config, "--out", self.out, "--json", self.json, *more)
        result = json.loads(self.json.read_text())
        self.assertTrue(result["stopped_early"])
        self.assertLess(result["steps"], 200 * 10)
        self.assertIn("stopped early after step", done.stderr)
        lines = [x for x in metrics(self.out) if x["event"] == "validation"]
        self.assertEqual(lines[-1]["step"], result["best"]["step"] + 2 * 10)
        self.assertTrue((self.out / "model.safetensors").exists())
        # It has ended; with more patience it goes on.
        again = self.train("--resume", *more)
        self.assertEqual(again["steps"], result["steps"])
        further = self.train("--resume", *more, "--set", "train.patience=4")
        self.assertGreater(further["steps"], result["steps"])

    def test_what_does_not_fit_is_refused(self):
        for setting, says in (("train.keep=best", "validation"), ("train.patience=3", "validation"),
                              ("train.monitor=mae", "accuracy"), ("train.monitor=top5", "top5"),
                              ("train.monitor=acuracy", "accuracy"), ("train.keep=bset", "best"),
                              ("data.split={validation=1.5}", "validation")):
            done = tool.run("train", self.folder.config, "--set", setting, code=2)
            self.assertIn(says, done.stderr)

    def test_sweep_chooses_by_validation_and_reports_the_test_once(self):
        out = self.folder / "sweep.json"
        done = tool.run("sweep", self.folder.config, *SPLIT, "--set", "train.optimizer.lr=0.0001,0.1",
                        "--json", out)
        result = json.loads(out.read_text())
        points = [point["report"] for point in result["points"]]
        best = min(range(2), key=lambda i: points[i]["validation"]["loss"])
        self.assertEqual(result["chosen"], best)
        self.assertIn("accuracy", points[best])
        self.assertNotIn("accuracy", points[1 - best])
        self.assertNotIn("loss", points[1 - best])
        self.assertIn("train.optimizer.lr=0.1; on the test set:", done.stdout)

    def test_report_has_curves_classes_and_calibration(self):
        page = self.folder / "page"
        self.train(*SPLIT, "--report", page)
        html = (page / "report.html").read_text()
        for part in ("validation", "calibration", "precision", "recall", "Test set"):
            self.assertIn(part, html)


class Values(unittest.TestCase):
    def test_metrics_of_values_are_in_the_units_of_the_data(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        draw = random.Random(5)

        def table(name, samples):
            rows = []
            for _ in range(samples):
                a, b = draw.uniform(-5, 5), draw.uniform(0, 100)
                rows.append((a, b, 4000 + 300 * a - 20 * b + draw.gauss(0, 50)))
            (folder / name).write_text("a,b,price\n" + "".join(f"{a!r},{b!r},{y!r}\n" for a, b, y in rows))
            return [y for _, _, y in rows]

        table("train.csv", 200)
        truth = table("test.csv", 60)
        config = folder / "values.toml"
        config.write_text(f"""
[data]
train = "{folder / 'train.csv'}"
test = "{folder / 'test.csv'}"
target = "price"
split = {{ validation = 0.2 }}
[model]
layers = [{{ type = "linear", out = 8 }}, {{ type = "tanh" }}, {{ type = "linear", out = 1 }}]
[train]
batch = 16
epochs = 20
optimizer = {{ type = "adam", lr = 0.01 }}
keep = "best"
monitor = "mae"
patience = 3
[run]
device = "cpu"
tune = false
""")
        out, result, page = folder / "run", folder / "result.json", folder / "page"
        tool.run("train", config, "--out", out, "--json", result, "--report", page)
        report = json.loads(result.read_text())
        values = folder / "values.csv"
        tool.run("infer", out, "--input", folder / "test.csv", "--output", values)
        lines = [line.split(",") for line in values.read_text().splitlines()]
        given = [float(line[-1]) for line in lines[1:]]
        n = len(truth)
        mse = sum((g - t) ** 2 for g, t in zip(given, truth)) / n
        mae = sum(abs(g - t) for g, t in zip(given, truth)) / n
        mean = sum(truth) / n
        r2 = 1 - mse * n / sum((t - mean) ** 2 for t in truth)
        for name, want in (("mse", mse), ("mae", mae), ("r2", r2)):
            self.assertAlmostEqual(report[name] / want, 1, places=3, msg=name)
        self.assertGreater(report["mae"], 5)  # not in the scaled units of the model
        self.assertEqual(report["best"]["monitor"], "mae")
        for name in ("accuracy", "f1", "auc"):
            self.assertNotIn(name, report)
        evaluated = folder / "eval.json"
        tool.run("eval", out, "--json", evaluated)
        self.assertAlmostEqual(json.loads(evaluated.read_text())["mae"] / report["mae"], 1, places=5)
        html = (page / "report.html").read_text()
        for part in ("predicted against true", "residuals"):
            self.assertIn(part, html)
        folds = json.loads(tool.run("train", config, "--folds", "3", "--json", "-", "--set", "data.split={}",
                                    "--set", "train.epochs=1").stdout)
        self.assertEqual(len(folds["folds"]), 3)
        self.assertGreater(folds["deviation"]["mae"], 0)
        tool.run("train", config, "--set", "train.monitor=accuracy", code=2)


class NotFinite(unittest.TestCase):
    """A validation set whose metric is no number, or infinite."""

    def setUp(self):
        self.folder = tool.Folder()
        self.addCleanup(self.folder.close)
        self.out = self.folder / "run"

    def config(self, target, validation, outputs, monitor):
        draw = random.Random(9)

        def table(name, make):
            rows = [make(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(60)]
            (self.folder / name).write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))

        table("train.csv", target)
        table("validation.csv", validation)
        path = self.folder / "table.toml"
        path.write_text(f"""
[data]
train = "{self.folder / 'train.csv'}"
validation = "{self.folder / 'validation.csv'}"
test = "{self.folder / 'train.csv'}"
target = "y"
[model]
layers = [{{ type = "linear", out = {outputs} }}]
[train]
batch = 20
epochs = 20
keep = "best"
patience = 3
monitor = "{monitor}"
checkpoint_steps = 2
[run]
device = "cpu"
tune = false
""")
        return path

    def test_the_last_weights_are_kept_if_none_are_the_best(self):
        def labelled(a, b):
            return a, b, "up" if a + b > 0 else "down"

        config = self.config(labelled, lambda a, b: (a, b, "up"), 2, "auc")  # one class has no curve
        result = self.folder / "result.json"
        done = tool.run("train", config, "--out", self.out, "--json", result)
        self.assertIn("the validation auc was never finite", done.stderr)
        self.assertIn("stopped early after step 9: the validation auc has not been finite for 3", done.stderr)
        self.assertNotIn("-1", done.stderr)
        self.assertNotIn("best", json.loads(result.read_text()))
        self.assertEqual(checkpoint(self.out)["best"]["waited"], 3)
        again = tool.run("train", "--resume", self.out)
        self.assertNotIn("epoch 4", again.stderr)  # it is still out of patience

    def test_a_run_resumes_after_an_infinite_loss(self):
        config = self.config(lambda a, b: (a, b, a + 2 * b), lambda a, b: (a * 1e25, b, b), 1, "loss")
        done = tool.run("train", config, "--out", self.out, "--set", "train.patience=0", "--set", "train.max_steps=7", code=4)
        self.assertIn("the validation loss is infinite at step 7 (epoch 3): the training losses are finite", done.stderr)
        self.assertNotIn("best so far", done.stderr)
        done = tool.run("train", "--resume", self.out, "--set", "train.max_steps=9", code=4)
        self.assertIn("continuing after step 6", done.stderr)


class Labels(unittest.TestCase):
    def test_several_labels_have_f1_and_auc(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        draw = random.Random(6)

        def table(name, samples):
            rows = []
            for _ in range(samples):
                a, b = draw.gauss(0, 1), draw.gauss(0, 1)
                rows.append((a, b, int(a + draw.gauss(0, 0.5) > 0), int(a * b + draw.gauss(0, 0.5) > 0)))
            (folder / name).write_text("a,b,up,same\n" + "".join(f"{a!r},{b!r},{u},{v}\n" for a, b, u, v in rows))
            return [row[2:] for row in rows]

        table("train.csv", 300)
        truth = table("test.csv", 80)
        config = folder / "labels.toml"
        config.write_text(f"""
[data]
train = "{folder / 'train.csv'}"
test = "{folder / 'test.csv'}"
target = ["up", "same"]
[model]
layers = [{{ type = "linear", out = 8 }}, {{ type = "tanh" }}, {{ type = "linear", out = 2 }}]
[train]
batch = 16
epochs = 5
loss = "binary-cross-entropy"
optimizer = {{ type = "adam", lr = 0.02 }}
[run]
device = "cpu"
tune = false
""")
        out, result, values = folder / "run", folder / "result.json", folder / "values.csv"
        tool.run("train", config, "--out", out, "--json", result)
        report = json.loads(result.read_text())
        tool.run("infer", out, "--input", folder / "test.csv", "--output", values)
        given = [[float(x) for x in line.split(",")[-2:]] for line in values.read_text().splitlines()[1:]]
        f1s, areas = [], []
        for column in range(2):
            wanted, got = [row[column] for row in truth], [row[column] for row in given]
            right = sum(w == 1 and g > 0.5 for w, g in zip(wanted, got))
            f1s.append(2 * right / (sum(wanted) + sum(g > 0.5 for g in got)))
            areas.append(auc(wanted, got))
        self.assertAlmostEqual(report["f1"], sum(f1s) / 2, places=6)
        self.assertAlmostEqual(report["auc"], sum(areas) / 2, places=4)
        for name in ("accuracy", "mse", "mae", "r2"):
            self.assertNotIn(name, report)
        # Probabilities are what the logits say, and labels what the probabilities do.
        def lines(kind):
            tool.run("infer", out, "--input", folder / "test.csv", "--output", values, "--output-kind", kind)
            head, *rest = values.read_text().splitlines()
            return head, [[float(x) for x in line.split(",")[1:]] for line in rest]

        self.assertEqual(lines("probabilities"), ("index,p_up,p_same", given))
        head, logits = lines("logits")
        self.assertEqual(head, "index,z_up,z_same")
        for row, want in zip(logits, given):
            for z, p in zip(row, want):
                self.assertAlmostEqual(1 / (1 + math.exp(-z)), p, places=5)
        self.assertEqual(lines("labels"), ("index,label_up,label_same", [[float(p > 0.5) for p in row] for row in given]))
        one = json.loads(tool.run("infer", out, "--input", folder / "test.csv", "--format", "json", "--output-kind",
                                  "labels").stdout.splitlines()[0])
        self.assertEqual(one, {"index": 0, "labels": [int(p > 0.5) for p in given[0]]})
        tool.run("infer", out, "--input", folder / "test.csv", "--output-kind", "values", code=2)
        # Their metrics may choose the best weights.
        parts = folder / "parts.toml"
        parts.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("test =")))
        best = ("--out", out, "--force", "--json", result, "--set", "data.split={validation=0.2,test=0.2}",
                "--set", "train.keep=best")
        for metric in ("f1", "auc"):
            tool.run("train", parts, *best, "--set", f"train.monitor={metric}")
            report = json.loads(result.read_text())
            self.assertEqual(report["best"]["value"], report["validation"][metric])
        line = tool.run("train", parts, *best, "--set", "train.monitor=mae", code=2).stderr
        self.assertIn("targets are labels; its metrics are loss, f1, auc", line)


class Folds(unittest.TestCase):
    def test_folds(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        out, result = folder / "run", folder / "folds.json"
        done = tool.run("train", folder.config, "--folds", "4", "--out", out, "--json", result,
                        "--set", "train.epochs=1")
        report = json.loads(result.read_text())
        values = [fold["validation"]["accuracy"] for fold in report["folds"]]
        self.assertEqual(len(values), 4)
        mean = sum(values) / 4
        self.assertAlmostEqual(report["mean"]["accuracy"], mean, places=9)
        deviation = (sum((v - mean) ** 2 for v in values) / 3) ** 0.5
        self.assertAlmostEqual(report["deviation"]["accuracy"], deviation, places=9)
        self.assertEqual({p.name for p in out.iterdir() if p.is_dir()}, {f"fold-{i}" for i in range(1, 5)})
        self.assertIn("accuracy", done.stdout)
        tool.run("eval", out / "fold-3")
        for more in (("--folds", "1"), ("--folds", "201"), ("--folds", "3", "--resume"),
                     ("--folds", "3", *SPLIT)):
            tool.run("train", folder.config, *more, code=2)

    def test_folds_resume(self):
        folder = tool.Folder()
        self.addCleanup(folder.close)
        result = folder / "folds.json"
        more = ("--folds", "3", "--no-tune", "--set", "train.keep=best", "--set", "train.epochs=4")

        def metrics():
            return [fold["validation"] for fold in json.loads(result.read_text())["folds"]]

        tool.run("train", folder.config, *more, "--out", folder / "whole", "--json", result)
        want = metrics()
        part = folder / "part"
        tool.run("train", folder.config, *more, "--out", part, "--set", "train.epochs=2")
        shutil.rmtree(part / "fold-3")
        resume = ("train", "--resume", part, "--folds", "3", "--no-tune", "--json", result)
        for _ in range(2):  # the second time, every fold is complete
            tool.run(*resume, "--set", "train.epochs=4")
            self.assertEqual(metrics(), want)
        # Other folds have other samples.
        self.assertIn("training data", tool.run("train", "--resume", part, "--folds", "4", code=2).stderr)
        self.assertIn("holds no run", tool.run("train", "--resume", folder / "none", "--folds", "3", code=2).stderr)
        stopped = tool.start(*resume, "--set", "train.epochs=100000")
        for line in stopped.stderr:
            if "ready in" in line:
                break
        stopped.send_signal(signal.SIGINT)
        self.assertIn(f"ridgeline train --resume {part} --folds 3", stopped.communicate()[1])


class FineTuning(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder()
        self.addCleanup(self.folder.close)
        self.first = self.folder / "first"
        tool.run("train", self.folder.config, "--out", self.first, "--set", "train.epochs=1")

    def train(self, *more, code=0):
        out = self.folder / "second"
        return tool.run("train", self.folder.config, "--out", out, "--force", *more, code=code), out

    def test_frozen_layers_keep_their_weights(self):
        before = tool.tensors(self.first / "model.safetensors")
        for freeze, kept in (("[0]", "0."), ("[2]", "2."), ('["2"]', "2.")):
            for more in ((), ("--set", "train.clip_norm=0.1"), ("--set", 'train.optimizer={type="adam",lr=0.01}')):
                _, out = self.train("--init", self.first, "--set", f"train.freeze={freeze}", *more)
                after = tool.tensors(out / "model.safetensors")
                for name in before:
                    self.assertEqual(after[name] == before[name], name.startswith(kept), (freeze, name))
                state = tool.tensors(out / "checkpoint.safetensors")
                self.assertFalse([n for n in state if n.startswith("optimizer." + kept)])

    def test_training_beside_frozen_layers_is_as_without(self):
        """With the upper layer frozen, the lower one gets the same first update as in a run without."""
        _, out = self.train("--init", self.first, "--set", "train.max_steps=1")
        free = tool.tensors(out / "model.safetensors")
        _, out = self.train("--init", self.first, "--set", "train.max_steps=1", "--set", "train.freeze=[2]")
        frozen = tool.tensors(out / "model.safetensors")
        unpack = lambda t: struct.unpack(f"<{len(t[2]) // 4}f", t[2])
        for a, b in zip(unpack(free["0.weight"]), unpack(frozen["0.weight"])):
            self.assertAlmostEqual(a, b, places=6)

    def test_a_run_with_frozen_layers_resumes_bit_for_bit(self):
        more = ("--init", self.first, "--set", "train.freeze=[0]")
        _, whole = self.train(*more, "--set", "train.max_steps=20")
        want = tool.tensors(whole / "checkpoint.safetensors")
        _, out = self.train(*more, "--set", "train.max_steps=9")
        tool.run("train", "--resume", out, "--set", "train.max_steps=20")
        self.assertEqual(tool.tensors(out / "checkpoint.safetensors"), want)

    def test_without_a_step_the_weights_are_those_of_the_model(self):
        done, out = self.train("--init", self.first, "--set", "train.epochs=0")
        self.assertEqual(tool.tensors(out / "model.safetensors"), tool.tensors(self.first / "model.safetensors"))
        self.assertIn("starting from 4 tensors", done.stderr)

    def test_a_new_last_layer_is_said(self):
        source, metadata = tool.read_safetensors(self.first / "model.safetensors")
        other = self.folder / "other.safetensors"
        source["2.weight"] = ("F32", [9, 16], bytes(9 * 16 * 4))
        source["2.bias"] = ("F32", [9], bytes(9 * 4))
        tool.write_safetensors(other, source, {})
        done, out = self.train("--init", other, "--set", "train.epochs=0")
        self.assertIn("layer 2 (linear) starts anew: 2.weight is [4, 16], in it [9, 16]", done.stderr)
        self.assertEqual(tool.tensors(out / "model.safetensors")["0.weight"][2], source["0.weight"][2])
        source["0.weight"] = ("F32", [8, 36], bytes(8 * 36 * 4))
        tool.write_safetensors(other, source, {})
        done, _ = self.train("--init", other, code=2)
        self.assertIn("0.weight", done.stderr)

    def test_faults(self):
        for more, code, says in ((("--init", self.folder / "none"), 3, "none"),
                                 (("--init", self.first, "--set", "train.freeze=[7]"), 2, "0 to 2"),
                                 (("--set", "train.freeze=[conv2d]"), 2, "freeze"),
                                 (("--set", 'train.freeze=["conv2d"]'), 2, "linear"),
                                 (("--set", 'train.freeze=["linear"]'), 2, "frozen")):
            done, _ = self.train(*more, code=code)
            self.assertIn(says, done.stderr)
        done = tool.run("train", "--resume", self.first, "--init", self.first, code=2)
        self.assertIn("--init", done.stderr)


if __name__ == "__main__":
    unittest.main()
