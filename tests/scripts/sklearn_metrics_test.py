"""The metrics of an evaluation are those that scikit-learn computes from the inferred outputs: of classes, with ties and
with classes that do not occur; of several labels; of values in several units; of a million samples."""

import json
import sys

sys.dont_write_bytecode = True
import tool

tool.need("sklearn")
import numpy as np
from sklearn import metrics

CONFIG = """
[data]
train = "{x}"
target = "{y}"
test = "{test_x}"
test_target = "{test_y}"
{data}
[model]
layers = [{{ type = "linear", out = 6 }}, {{ type = "tanh" }}, {{ type = "linear", out = {outputs} }}]
[train]
batch = 64
epochs = 1
max_steps = 40
loss = "{loss}"
optimizer = {{ type = "adam", lr = 0.01 }}
[run]
device = "cpu"
tune = false
"""


class Runs:
    def __init__(self, folder):
        self.folder = folder

    def outputs(self, x, y, test_x, test_y, outputs, loss, data=""):
        """Trains a little; returns the metrics of the test part, and what the model says about it."""
        files = {}
        for name, array in (("x", x), ("y", y), ("test_x", test_x), ("test_y", test_y)):
            files[name] = self.folder / f"{name}.npy"
            np.save(files[name], array)
        config, report, given = (self.folder / name for name in ("net.toml", "report.json", "given.npy"))
        config.write_text(CONFIG.format(**files, outputs=outputs, loss=loss, data=data))
        tool.run("train", config, "--quiet", "--force", "--out", self.folder / "run", "--json", report)
        tool.run("infer", self.folder / "run", "--input", files["test_x"], "--output", given, "--device", "cpu", "--no-tune")
        return json.loads(report.read_text()), np.load(given)


def same(got, **wanted):
    for name, want in wanted.items():
        assert np.isclose(got[name], want, rtol=2e-5, atol=2e-6), (name, got[name], want)


def check_classes(runs, draw, x, test_x, classes, there):
    y = (np.abs(x @ draw.standard_normal((3, classes))).argmax(1) + draw.integers(0, 2, len(x))) % classes
    y[:classes] = range(classes)
    test_y = draw.choice(there, len(test_x))
    got, p = runs.outputs(x, y, test_x, test_y, classes, "cross-entropy", 'target_kind = "classes"')
    label = p.argmax(1)
    areas = [metrics.roc_auc_score(test_y == c, p[:, c]) for c in there]
    same(got, accuracy=metrics.accuracy_score(test_y, label), f1=metrics.f1_score(test_y, label, average="macro"),
         auc=np.mean(areas), loss=metrics.log_loss(test_y, p.astype("f8"), labels=range(classes)))
    assert ("top5" in got) == (classes > 5)
    if classes > 5 and len(np.unique(p, axis=1).T) == classes:
        same(got, top5=metrics.top_k_accuracy_score(test_y, p, k=5, labels=range(classes)))


def main():
    folder = tool.Folder(samples=1)
    runs, draw = Runs(folder), np.random.default_rng(4)
    x, test_x = draw.standard_normal((600, 3)), draw.standard_normal((500, 3))
    ties = draw.integers(0, 2, (500, 3)).astype("f8")  # eight different samples
    check_classes(runs, draw, x, test_x, 12, list(range(12)))
    check_classes(runs, draw, x, test_x, 12, [0, 3, 4, 11])
    check_classes(runs, draw, x, ties, 4, [0, 1, 2, 3])
    check_classes(runs, draw, x, draw.standard_normal((1_000_000, 3)), 2, [0, 1])

    labels, test_labels = (x @ draw.standard_normal((3, 5)) > 0).astype("i8"), draw.integers(0, 2, (500, 5))
    got, p = runs.outputs(x, labels, ties, test_labels, 5, "binary-cross-entropy")
    same(got, f1=metrics.f1_score(test_labels, p > 0.5, average="macro"),
         auc=metrics.roc_auc_score(test_labels, p, average="macro"),
         loss=np.mean([metrics.log_loss(test_labels[:, c], p[:, c].astype("f8"), labels=[0, 1]) for c in range(5)]))

    units = np.array([1e-3, 1, 5e4])
    values, test_values = (x * units + [7, -3, 1e6]), (test_x + 0.3 * draw.standard_normal((500, 3))) * units + [7, -3, 1e6]
    got, y = runs.outputs(x, values, test_x, test_values, 3, "mse")
    same(got, mse=metrics.mean_squared_error(test_values, y), mae=metrics.mean_absolute_error(test_values, y),
         r2=metrics.r2_score(test_values, y))
    folder.close()


if __name__ == "__main__":
    main()
