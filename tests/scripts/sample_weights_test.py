"""`data.weight`: a sample of weight 2 trains like two samples, and one of weight 0 like none, for every loss, from tables and
from arrays, resident and streamed. Weights that make no sense are refused in one line."""

import json
import sys
import unittest

sys.dont_write_bytecode = True
import mpi
import tool

tool.need("numpy")
import numpy as np

# Full batches and no scaling, so that copies of a sample change nothing but how much it counts.
CONFIG = """
[data]
train = "{train}"
test = "{test}"
scale = "none"
target_scale = "none"
{data}
[model]
layers = [{{ type = "linear", out = 7 }}, {{ type = "tanh" }}, {{ type = "linear", out = {outputs} }}]
[train]
batch = {batch}
epochs = 20
shuffle = false
loss = {loss}
optimizer = {{ type = "sgd", lr = 0.05, momentum = 0.9 }}
[run]
device = "cpu"
deterministic = true
"""
SAMPLES, FEATURES = 60, 3
LOSSES = {"mse": 1, "mae": 1, "{ type = 'huber', delta = 0.5 }": 1, "{ type = 'quantile', quantiles = [0.1, 0.9] }": 2,
          "cross-entropy": 3, "{ type = 'cross-entropy', weights = [1, 2, 3], smoothing = 0.1 }": 3, "binary-cross-entropy": 2}


class SampleWeights(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=1)
        self.addCleanup(self.folder.close)
        draw = np.random.default_rng(3)
        self.x = draw.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
        self.counts = draw.integers(0, 4, SAMPLES)
        self.noise = draw.standard_normal(SAMPLES)

    def path(self, name):
        return str(self.folder / name)

    def columns(self, loss, kept):
        """The columns of the targets of the samples `kept`."""
        x = self.x[kept]
        if "entropy" not in loss:
            return {"y": x[:, 0] - x[:, 1] + 0.1 * self.noise[kept]}
        if loss.startswith("binary"):
            return {"y": (x[:, 0] > 0).astype(int), "z": (x[:, 1] > x[:, 2]).astype(int)}
        return {"y": np.digitize(x[:, 0], [-0.5, 0.5])}

    def table(self, name, loss, kept, **more):
        columns = {f"f{i}": self.x[kept, i] for i in range(FEATURES)}
        columns.update(more, **self.columns(loss, kept))
        with open(self.path(name), "w") as file:
            file.write(",".join(columns) + "\n")
            for row in zip(*(values.tolist() for values in columns.values())):
                file.write(",".join(map(repr, row)) + "\n")
        return self.path(name)

    def train(self, train, loss, batch, out, data="", code=0, ranks=0, test=None, flags=()):
        config = self.folder / f"{out}.toml"
        if loss == "binary-cross-entropy":
            data += '\ntarget = ["y", "z"]'
        text = CONFIG.format(train=train, test=test or self.path("test.csv"), data=data, outputs=LOSSES[loss], batch=batch,
                             loss=loss.replace("'", '"') if loss.startswith("{") else f'"{loss}"')
        config.write_text(text)
        command = ("train", config, "--out", self.path(out), "--force", "--quiet", *flags)
        if ranks:
            done = mpi.end(mpi.launch(ranks, *command), 100)
            self.assertEqual(done[0], 0, done[3])
            return self.outputs(out)
        done = tool.run(*command, code=code)
        return done.stderr if code else self.outputs(out)

    def outputs(self, out):
        tool.run("infer", self.path(out), "--input", self.path("test.csv"), "--output", self.path("out.npy"), "--no-tune")
        return np.load(self.path("out.npy"))

    def test_a_weight_counts_as_copies(self):
        self.assertIn(0, self.counts)
        for loss in LOSSES:
            everything, copies = np.arange(SAMPLES), np.repeat(np.arange(SAMPLES), self.counts)
            self.table("test.csv", loss, everything)
            # Any multiple of the weights is the same.
            weighted = self.table("weighted.csv", loss, everything, share=2.5 * self.counts)
            got = self.train(weighted, loss, SAMPLES, "weighted", 'weight = "share"')
            want = self.train(self.table("copies.csv", loss, copies), loss, len(copies), "copies")
            plain = self.train(self.table("plain.csv", loss, everything), loss, SAMPLES, "plain")
            if "weights" in loss:
                # Class weights divide by the sum over the batch, which copies change.
                self.assertGreater(np.abs(plain - got).max(), 1e-3, loss)
                continue
            # 20 steps of rounding in fp32.
            np.testing.assert_allclose(got, want, atol=2e-5, err_msg=loss)
            self.assertGreater(np.abs(plain - want).max(), 1e-3, loss)

    def test_arrays_streams_and_ranks(self):
        np.save(self.path("x.npy"), self.x)
        np.save(self.path("y.npy"), self.columns("mse", np.arange(SAMPLES))["y"])
        np.save(self.path("w.npy"), self.counts.astype(np.uint8))
        self.table("test.csv", "mse", np.arange(SAMPLES))
        tail = dict(batch=16, test=self.path("x.npy"))  # the last batch is smaller
        data = f'target = "{self.path("y.npy")}"\ntest_target = "{self.path("y.npy")}"\n'
        rule = f'weight = "{self.path("w.npy")}"\n'
        want = self.train(self.path("x.npy"), "mse", out="resident", data=data + rule, **tail)
        got = self.train(self.path("x.npy"), "mse", out="streamed", data=data + rule + "resident = false", **tail)
        np.testing.assert_array_equal(got, want)
        plain = self.train(self.path("x.npy"), "mse", out="plain", data=data, **tail)
        self.assertGreater(np.abs(plain - want).max(), 1e-3)
        if not mpi.missing():
            got = self.train(self.path("x.npy"), "mse", out="ranks", data=data + rule, ranks=2, **tail)
            np.testing.assert_allclose(got, want, atol=2e-5)
        # A run is not continued with other weights.
        np.save(self.path("w.npy"), np.ones(SAMPLES))
        line = tool.run("train", "--resume", self.path("resident"), "--set", "train.epochs=30", code=2).stderr
        self.assertIn("training data", line)

    def test_folds_and_windows(self):
        series = np.sin(np.arange(300) / 5)
        with open(self.path("series.csv"), "w") as file:
            file.write("v,w\n" + "".join(f"{v},{0 if i % 50 < 5 else 1}\n" for i, v in enumerate(series)))
        layers = '{ type = "linear", out = 8 }, { type = "tanh" }, { type = "linear", out = 1 }'
        (self.folder / "series.toml").write_text(
            f'[data]\ntrain = "{self.path("series.csv")}"\ntarget = "v"\nweight = "w"\nwindow = {{ length = 8 }}\n'
            f'[model]\nlayers = [{layers}]\n[train]\nbatch = 16\nepochs = 20\noptimizer = {{ type = "adam", lr = 0.01 }}\n'
            '[run]\ndevice = "cpu"\ntune = false\n')
        tool.run("train", self.path("series.toml"), "--folds", "3", "--json", self.path("folds.json"))
        self.assertGreater(json.loads((self.folder / "folds.json").read_text())["mean"]["r2"], 0.9)

    def test_faults(self):
        everything = np.arange(SAMPLES)
        self.table("test.csv", "mse", everything)

        def refused(weights, code, *parts, rule='weight = "w"', loss="mse"):
            table = self.table("w.csv", loss, everything, w=np.array(weights))
            line = self.train(table, loss, SAMPLES, "refused", rule, code=code, test=table)
            for part in parts:
                self.assertIn(part, line)

        ones = [1.0] * SAMPLES
        refused([-1.0] + ones[1:], 3, "weight 'w' of sample 0 is -1")
        refused(ones[1:] + [np.nan], 3, f"weight 'w' of sample {SAMPLES - 1} is missing")
        refused([0.0] * SAMPLES, 3, "sum to 0")
        refused(["big"] * SAMPLES, 2, "'w' holds no single number")
        refused(ones, 3, "no field", rule='weight = "v"')
        refused(ones, 2, "target and the weight", rule='weight = "y"')
        refused(ones, 2, "feature and the weight", rule='weight = "w"\nfeatures = ["f0", "w"]')


if __name__ == "__main__":
    unittest.main()
