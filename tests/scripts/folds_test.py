"""Cross-validation of one's own data: several ranks find what one process finds, on tables, sequences and series; no window
of a series holds timesteps of two folds; and a fold learns its scaling from its own training samples only."""

import json
import re
import sys
import unittest

sys.dont_write_bytecode = True
import mpi
import tool

tool.need("numpy")
import numpy as np

SAMPLES, FOLDS = 151, 3
CONFIG = """
[data]
train = "{train}"
target = "y"
{data}
[model]
layers = [{layers}]
[train]
batch = 16
epochs = 4
optimizer = {{ type = "adam", lr = 0.01 }}
[run]
device = "cpu"
deterministic = true
"""
LAYERS = '{ type = "linear", out = 8 }, { type = "relu" }, { type = "linear", out = %d }'


class Folds(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=1)
        self.addCleanup(self.folder.close)
        self.draw = np.random.default_rng(2)

    def path(self, name):
        return str(self.folder / name)

    def config(self, name, text, data="", layers=LAYERS % 1):
        (self.folder / name).write_text(text)
        (self.folder / "net.toml").write_text(CONFIG.format(train=self.path(name), data=data, layers=layers))

    def folds(self, ranks=0):
        """The report, and the samples to train and to validate on of each fold."""
        command = ("train", self.path("net.toml"), "--folds", FOLDS, "--json", self.path("folds.json"))
        said = mpi.end(mpi.launch(ranks, *command), 200) if ranks else tool.run(*command)
        if ranks:
            self.assertEqual(said[0], 0, said[3])
        text = said[3] if ranks else said.stderr
        counts = re.findall(r"^fold \d of \d: (\d+) to train on, (\d+) to validate on", text, re.M)
        return json.loads((self.folder / "folds.json").read_text()), [tuple(map(int, pair)) for pair in counts]

    def check_ranks(self):
        alone, counts = self.folds()
        self.assertEqual(len(alone["folds"]), FOLDS)
        self.assertEqual(len(counts), FOLDS)
        if mpi.missing():
            return alone, counts
        shared, same = self.folds(ranks=2)
        self.assertEqual(same, counts)
        for metric, value in alone["mean"].items():
            self.assertAlmostEqual(shared["mean"][metric], value, delta=1e-4 * max(1, abs(value)), msg=metric)
        return alone, counts

    def test_tables(self):
        a, b = self.draw.standard_normal((2, SAMPLES))
        rows = list(zip(a.tolist(), b.tolist()))
        self.config("values.csv", "a,b,y\n" + "".join(f"{u},{v},{u - v}\n" for u, v in rows))
        self.check_ranks()
        self.config("classes.csv", "a,b,y\n" + "".join(f"{u},{v},{'up' if u > v else 'down'}\n" for u, v in rows),
                    layers=LAYERS % 2)
        self.check_ranks()

    def test_sequences(self):
        lines = [{"s": self.draw.standard_normal(1 + i % 7).tolist(), "y": i % 7 / 2} for i in range(SAMPLES)]
        self.config("lines.jsonl", "".join(json.dumps(line) + "\n" for line in lines), 'target_kind = "values"',
                    '{ type = "gru", hidden = 6 }, { type = "select", at = -1 }, { type = "linear", out = 1 }')
        self.check_ranks()

    def test_windows_stay_within_a_fold(self):
        length, horizon, test = 6, 3, 15
        self.config("series.csv", "y\n" + "".join(f"{np.sin(i / 5)}\n" for i in range(SAMPLES)),
                    f"window = {{ length = {length}, horizon = {horizon} }}\nsplit = {{ test = {test / SAMPLES} }}")
        _, counts = self.check_ranks()
        timesteps = SAMPLES - test
        fold_of = [i * FOLDS // timesteps for i in range(timesteps)]
        span = length + horizon
        for fold in range(FOLDS):
            windows = [fold_of[i:i + span] for i in range(timesteps - span + 1)]
            inside = sum(all(f == fold for f in window) for window in windows)
            outside = sum(all(f != fold for f in window) for window in windows)
            self.assertEqual(counts[fold], (outside, inside))

    def test_a_fold_is_not_scaled_by_its_validation_part(self):
        # The last third of the series is a thousand times larger. The loss is in units of the target's deviation in training,
        # the MSE in those of the data, so that their ratio says which samples the scale was learnt from.
        values = np.array([np.sin(i / 5) * (1000 if i * FOLDS // SAMPLES == 2 else 1) for i in range(SAMPLES)])
        self.config("steps.csv", "y\n" + "".join(f"{v}\n" for v in values), "window = { length = 4 }\nsplit = { test = 0 }")
        report, _ = self.folds()
        for fold, each in enumerate(report["folds"]):
            learnt = values[[i * FOLDS // SAMPLES != fold for i in range(SAMPLES)]]
            ratio = each["validation"]["mse"] / each["validation"]["loss"]
            self.assertAlmostEqual(ratio / learnt.var(), 1, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
