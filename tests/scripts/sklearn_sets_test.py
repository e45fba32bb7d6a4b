"""On the real tables that come with scikit-learn (diabetes, breast cancer, wine, digits), a config as `ridgeline data
describe` and a user would write it is as good as scikit-learn's own network on the same split."""

import concurrent.futures
import json
import sys
import warnings

sys.dont_write_bytecode = True
import tool

tool.need("sklearn")
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

CONFIG = """
[data]
train = "{train}"
test = "{test}"
target = "target"
{data}
[model]
layers = [{{ type = "linear", out = {hidden} }}, {{ type = "relu" }}, {{ type = "linear", out = {outputs} }}]
[train]
batch = {batch}
epochs = {epochs}
loss = "{loss}"
optimizer = {{ type = "adam", lr = {lr} }}
[run]
device = "cpu"
tune = false
"""

# The sets, the metric of each, and how much worse than scikit-learn ours may be: a test sample or two for classes, and
# for values the effect of another initialisation of the same network.
SETS = {
    "diabetes": dict(load=datasets.load_diabetes, metric="r2", hidden=16, epochs=30, batch=32, lr=0.003, short=0.03),
    "breast_cancer": dict(load=datasets.load_breast_cancer, metric="accuracy", hidden=32, epochs=40, batch=32, lr=0.002,
                          short=0.015),
    "wine": dict(load=datasets.load_wine, metric="accuracy", hidden=32, epochs=60, batch=16, lr=0.003, short=0.025),
    "digits": dict(load=datasets.load_digits, metric="accuracy", hidden=64, epochs=40, batch=32, lr=0.002, short=0.01),
}


def write_table(path, x, y, names):
    """A CSV file; numbers are written so that they are read back as they are."""
    with open(path, "w") as file:
        file.write(",".join([*names, "target"]) + "\n")
        for row, target in zip(x.tolist(), y.tolist()):
            file.write(",".join(map(repr, [*row, target])) + "\n")


def ours(folder, name, table, split):
    train_x, test_x, train_y, test_y = split
    classes = table["metric"] == "accuracy"
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        write_table(folder / f"{name}-{part}.csv", x, y, [f"f{i}" for i in range(x.shape[1])])
    config, report = folder / f"{name}.toml", folder / f"{name}.json"
    config.write_text(CONFIG.format(
        train=folder / f"{name}-train.csv", test=folder / f"{name}-test.csv", outputs=len(set(train_y)) if classes else 1,
        data='target_kind = "classes"' if classes else 'target_kind = "values"',
        loss="cross-entropy" if classes else "mse", **{k: table[k] for k in ("hidden", "epochs", "batch", "lr")}))
    tool.run("train", config, "--quiet", "--json", report)
    return json.loads(report.read_text())[table["metric"]]


def theirs(table, split):
    train_x, test_x, train_y, test_y = split
    kind = MLPClassifier if table["metric"] == "accuracy" else MLPRegressor
    net = kind((table["hidden"],), batch_size=table["batch"], learning_rate_init=table["lr"], max_iter=table["epochs"],
               random_state=1)
    if kind is MLPClassifier:
        return make_pipeline(StandardScaler(), net).fit(train_x, train_y).score(test_x, test_y)
    mean, deviation = train_y.mean(), train_y.std()
    model = make_pipeline(StandardScaler(), net).fit(train_x, (train_y - mean) / deviation)
    return model.score(test_x, (test_y - mean) / deviation)


def main():
    folder = tool.Folder()
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        runs = []
        for name, table in SETS.items():
            x, y = table["load"](return_X_y=True)
            stratify = y if table["metric"] == "accuracy" else None
            split = train_test_split(x, y, test_size=0.3, random_state=1, stratify=stratify)
            runs.append((name, table, split, workers.submit(ours, folder, name, table, split)))
        warnings.simplefilter("ignore")  # scikit-learn would go on for longer than max_iter
        for name, table, split, run in runs:
            got, want = run.result(), theirs(table, split)
            print(f"{name}: {table['metric']} {got:.4f}, scikit-learn's {want:.4f}")
            assert got >= want - table["short"], name
    folder.close()


if __name__ == "__main__":
    main()
