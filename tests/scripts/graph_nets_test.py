"""Networks that branch train from configs: two heads over an LSTM with a loss each, inputs from several fields, weights that
layers share, and a stack of dilated convolutions with skips. A model of two heads is evaluated, inferred with, resumed
and written as ONNX, as is one with shared weights."""

import json
import os
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

tool.need("numpy")
import numpy as np

CPU = ("--device", "cpu", "--no-tune")


def train(config, out, *sets, code=0):
    flags = [flag for each in sets for flag in ("--set", each)]
    done = tool.run("train", config, "--out", out, "--force", "--json", f"{out}.json", *flags, *CPU, code=code)
    return json.loads(pathlib.Path(f"{out}.json").read_text()) if code == 0 else done.stderr


def evaluate(model):
    tool.run("eval", model, "--json", "eval.json", *CPU)
    return json.loads(pathlib.Path("eval.json").read_text())


def losses(run):
    """The loss of each line of a run's metrics, first to last."""
    lines = [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def policy():
    """The action is where the last observation is largest, the value is its mean over time."""
    noise = np.random.default_rng(1)
    x = noise.normal(size=(600, 6, 4)).astype(np.float32)
    action, value = x[:, -1].argmax(1), 100 * x.mean((1, 2))
    np.savez("policy.npz", observations=x, action=action, value=value)
    config = tool.SOURCE / "configs" / "policy-lstm.toml"
    train(config, "policy", "train.epochs=12", "train.optimizer.lr=0.005")
    result = evaluate("policy")
    heads = result["heads"]
    assert heads["logits"]["accuracy"] > 0.8, result  # a guess is right for a quarter
    assert heads["value"]["r2"] > 0.7, result
    assert abs(heads["logits"]["accuracy"] - result["accuracy"]) < 1e-9, result
    # A head whose loss weighs nothing learns nothing, and the other one does.
    train(config, "one", "train.epochs=12", "train.optimizer.lr=0.005", "model.heads.1.weight=0")
    alone = evaluate("one")["heads"]
    assert alone["logits"]["accuracy"] > 0.8 and alone["value"]["r2"] < 0.3, alone
    np.save("x.npy", x[:7])
    tool.run("infer", "policy", "--input", "x.npy", "--output", "y.npy", *CPU)
    y = np.load("y.npy")
    assert y.shape == (7, 5), y.shape
    assert (y[:, :4].argmax(1) == action[:7]).mean() > 0.5, y
    assert np.abs(y[:, 4] - value[:7]).mean() < np.abs(value[:7]).mean(), y  # in the units of the data
    # The same run in two parts is the same run.
    train(config, "whole", "train.epochs=2")
    train(config, "parts", "train.epochs=1")
    tool.run("train", "--resume", "parts", "--set", "train.epochs=2", *CPU)
    assert evaluate("whole")["loss"] == evaluate("parts")["loss"]
    said = train(config, "no", "model.heads.1.target=action", code=2)
    assert "named twice" in said, said
    said = train(config, "no", "model.layers.2.out=7", code=2)
    assert "heads compare with 8 numbers" in said, said
    said = train(config, "no", "model.heads.1.layer=worth", code=2)
    assert "'worth'; known: logits, state, value" in said, said


def several_inputs():
    """A picture and three numbers in, joined behind layers of their own."""
    noise = np.random.default_rng(2)
    picture = noise.normal(size=(400, 1, 6, 6)).astype(np.float32)
    a, b = noise.normal(size=(400, 2)).astype(np.float32), noise.normal(size=400).astype(np.float32)
    y = picture[:, 0, 2:4, 2:4].sum((1, 2)) + 3 * b - a[:, 1]
    np.savez("two.npz", picture=picture, a=a, b=b, y=y)
    pathlib.Path("two.toml").write_text("""
[data]
train = "two.npz"
target = "y"
[model]
layers = [
  { type = "fields", names = ["picture"] },
  { type = "conv2d", out = 4, kernel = 3 },
  { type = "relu" },
  { type = "flatten", name = "seen" },
  { type = "fields", names = ["b", "a"], name = "numbers" },
  { type = "concat", inputs = ["seen", "numbers"] },
  { type = "linear", out = 32 },
  { type = "relu" },
  { type = "linear", out = 1 },
]
[train]
batch = 32
epochs = 40
optimizer = { type = "adam", lr = 0.01 }
""")
    train("two.toml", "two")
    assert evaluate("two")["r2"] > 0.9
    stored = tool.run("eval", "two", "--on", "two.npz", *CPU).stdout  # the model finds its fields again
    assert "r2" in stored, stored
    said = train("two.toml", "no", 'model.layers.4.names=["bb"]', code=2)
    assert "'bb'" in said and "did you mean 'b'?" in said, said


def shared_weights():
    """Two halves of the input go through the same layer, which has one weight in the file."""
    noise = np.random.default_rng(3)
    x = noise.normal(size=(300, 8)).astype(np.float32)
    w = noise.normal(size=4)
    np.savez("twins.npz", x=x, y=np.tanh(x[:, :4] @ w) - np.tanh(x[:, 4:] @ w))
    pathlib.Path("twins.toml").write_text("""
[data]
train = "twins.npz"
target = "y"
[model]
layers = [
  { type = "slice", end = 4 },
  { type = "linear", out = 16, name = "left" },
  { type = "tanh", name = "l" },
  { type = "slice", start = 4, inputs = ["input"] },
  { type = "linear", out = 16, weights_of = "left" },
  { type = "tanh", name = "r" },
  { type = "concat", inputs = ["l", "r"] },
  { type = "linear", out = 1 },
]
[train]
batch = 32
epochs = 60
optimizer = { type = "adam", lr = 0.01 }
""")
    train("twins.toml", "twins")
    assert evaluate("twins")["r2"] > 0.9
    head = (pathlib.Path("twins") / "model.safetensors").read_bytes()[:20000]
    assert b'"1.weight"' in head and b'"4.weight"' not in head


def residual():
    """A block whose layers change the shape needs a shortcut, as the message says."""
    noise = np.random.default_rng(4)
    np.savez("images.npz", x=noise.normal(size=(40, 3, 6, 6)).astype(np.float32), y=noise.integers(0, 4, 40))
    pathlib.Path("residual.toml").write_text("""
[data]
train = "images.npz"
target = "y"
[model]
layers = [
  { type = "residual", layers = [{ type = "conv2d", out = 5, kernel = 3, padding = 1 }] },
  { type = "flatten" },
  { type = "linear", out = 4 },
]
""")
    said = train("residual.toml", "residual", code=2)
    assert "[5, 6, 6] and the input [3, 6, 6]" in said and "give the residual a shortcut" in said, said
    train("residual.toml", "residual", 'model.layers.0.shortcut=[{ type = "conv2d", out = 5, kernel = 1 }]', "train.epochs=1")


def wavenet():
    text = "the quick brown fox jumps over the lazy dog. " * 60
    pathlib.Path("fox.txt").write_text(text)
    symbols = len(set(text))
    layers = json.dumps("fox.txt")
    config = tool.SOURCE / "configs" / "shakespeare-wavenet.toml"
    count = sum("type =" in line for line in config.read_text().split("[train]")[0].splitlines()) - 1
    train(config, "wave", f"data.name={layers}", "data.steps=32", "train.batch=8", "train.epochs=25",
          f"model.layers.0.vocabulary={symbols}", f"model.layers.{count}.out={symbols}")
    assert evaluate("wave")["loss"] < 0.5, losses("wave")  # a guess by frequency has about 2.9


def onnx():
    if "RIDGELINE_ONNX:BOOL=OFF" in (tool.BUILD / "CMakeCache.txt").read_text():
        return
    for model in ("policy", "twins"):
        tool.run("export", model, "--onnx", f"{model}.onnx")
        assert pathlib.Path(f"{model}.onnx").stat().st_size > 1000


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        policy()
        several_inputs()
        shared_weights()
        residual()
        wavenet()
        onnx()
        os.chdir("/")


main()
