"""On the real tables that come with scikit-learn (diabetes, breast cancer, wine, digits), a config as a user would write it
is as good as scikit-learn's own network on the same split, and so is the one that `ridgeline data describe` writes."""

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
    net = kind(hidden_layer_sizes=(table["hidden"],), batch_size=table["batch"], learning_rate_init=table["lr"], max_iter=table["epochs"],
               random_state=1)
    if kind is MLPClassifier:
        return make_pipeline(StandardScaler(), net).fit(train_x, train_y).score(test_x, test_y)
    mean, deviation = train_y.mean(), train_y.std()
    model = make_pipeline(StandardScaler(), net).fit(train_x, (train_y - mean) / deviation)
    return model.score(test_x, (test_y - mean) / deviation)


# How much worse than scikit-learn's default network the config of `data describe` may be, on average over the splits: about a
# test sample for classes. (Its validation part takes a tenth of the training samples.)
DESCRIBED_SHORT = {"diabetes": 0.0, "breast_cancer": 0.008, "wine": 0.02, "digits": 0.005}
SPLITS = (11, 12, 13)


def described(folder, name, table, split, seed):
    """What the config of `data describe` reaches, with nothing changed but where the test samples are."""
    train_x, test_x, train_y, test_y = split
    names = [f"f{i}" for i in range(train_x.shape[1])]
    train, test, config, report = (folder / f"{name}-{seed}-{part}" for part in ("train.csv", "test.csv", "net.toml", "json"))
    write_table(train, train_x, train_y, names)
    write_table(test, test_x, test_y, names)
    tool.run("data", "describe", train, "--write-config", config)
    tool.run("train", config, "--quiet", "--no-tune", "--json", report, "--set", f"data.test={test}", "--set",
             "data.split={validation=0.1}", "--set", "run.device=cpu")
    return json.loads(report.read_text())[table["metric"]]


def their_default(table, split):
    train_x, test_x, train_y, test_y = split
    if table["metric"] == "accuracy":
        return make_pipeline(StandardScaler(), MLPClassifier(random_state=1)).fit(train_x, train_y).score(test_x, test_y)
    mean, deviation = train_y.mean(), train_y.std()
    model = make_pipeline(StandardScaler(), MLPRegressor(random_state=1)).fit(train_x, (train_y - mean) / deviation)
    return model.score(test_x, (test_y - mean) / deviation)


def check_described(folder):
    for name, table in SETS.items():
        x, y = table["load"](return_X_y=True)
        stratify = y if table["metric"] == "accuracy" else None
        got = want = 0
        for seed in SPLITS:
            split = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=stratify)
            got += described(folder, name, table, split, seed) / len(SPLITS)
            want += their_default(table, split) / len(SPLITS)
        print(f"{name}: described, {table['metric']} {got:.4f}, scikit-learn's default {want:.4f}")
        assert got >= want - DESCRIBED_SHORT[name], name


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
    check_described(folder)
    folder.close()


if __name__ == "__main__":
    main()
