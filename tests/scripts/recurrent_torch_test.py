"""Recurrent networks against PyTorch: the same weights give the same outputs, and one step of SGD
leads to the same weights. Skipped (77) where PyTorch is not installed."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

PEERS = os.environ.get("RIDGELINE_PEERS_PYTHON", "")

try:
    import numpy as np
    import torch
except ImportError:
    if os.path.exists(PEERS) and "RIDGELINE_PEERS_TRIED" not in os.environ:
        os.environ["RIDGELINE_PEERS_TRIED"] = "1"
        os.execv(PEERS, [PEERS] + sys.argv)
    print("skipped: needs PyTorch; set RIDGELINE_PEERS_PYTHON to a Python that has it")
    sys.exit(77)

RIDGELINE = os.environ["RIDGELINE"]
STEPS, FEATURES, CLASSES, ROWS = 5, 7, 3, 23


def write_idx(path, array, kind):
    with open(path, "wb") as file:
        file.write(struct.pack(">HBB", 0, kind, array.ndim))
        file.write(struct.pack(">" + "I" * array.ndim, *array.shape))
        file.write(array.tobytes())


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    types = {"F64": np.float64, "F32": np.float32}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[8 + size + begin:8 + size + end], types[entry["dtype"]])
        tensors[name] = torch.tensor(flat.reshape(entry["shape"]))
    return tensors


def run(*arguments):
    done = subprocess.run([RIDGELINE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ridgeline {arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(kind, layers, both, folder, images, labels):
    activation = {"rnn_relu": ', activation = "relu"'}.get(kind, "")
    config = folder / f"{kind}.toml"
    config.write_text(f"""
[data]
name = "{folder}"
scale = "unit"
[model]
layers = [
  {{ type = "{kind.split('_')[0]}", hidden = 6, layers = {layers}, bidirectional = {str(both).lower()}{activation} }},
  {{ type = "select", at = 2 }},
  {{ type = "linear", out = {CLASSES} }},
]
[train]
batch = {ROWS}
shuffle = false
optimizer = {{ type = "sgd", lr = 0.5 }}
[run]
precision = "fp64"
device = "cpu"
""")
    start, end = folder / f"{kind}-start", folder / f"{kind}-end"
    run("train", config, "--set", "train.epochs=0", "--out", start)
    run("train", config, "--set", "train.epochs=1", "--out", end)
    before = read_safetensors(start / "model.safetensors")
    after = read_safetensors(end / "model.safetensors")

    options = dict(batch_first=True, num_layers=layers, bidirectional=both, dtype=torch.float64)
    if kind == "rnn_relu":
        layer = torch.nn.RNN(FEATURES, 6, nonlinearity="relu", **options)
    else:
        layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](
            FEATURES, 6, **options)
    linear = torch.nn.Linear(12 if both else 6, CLASSES, dtype=torch.float64)
    layer.load_state_dict({k[2:]: v for k, v in before.items() if k.startswith("0.")})
    linear.load_state_dict({k[2:]: v for k, v in before.items() if k.startswith("2.")})

    x = torch.tensor(images.reshape(ROWS, STEPS, FEATURES), dtype=torch.float64) * np.float32(1 / 255)
    logits = linear(layer(x)[0][:, 2])
    raw = folder / "items.raw"
    raw.write_bytes(images.tobytes())
    text = run("infer", start, "--input", raw)
    got = np.array([[float(p) for p in line.split(",")[2:]] for line in text.splitlines()[1:]])
    off = np.abs(got - torch.softmax(logits, 1).detach().numpy()).max()
    assert off < 1e-8, f"{kind}: probabilities differ by {off}"

    torch.nn.functional.cross_entropy(logits, torch.tensor(labels.astype(np.int64))).backward()
    worst = 0
    for prefix, module in (("0.", layer), ("2.", linear)):
        for name, weight in module.named_parameters():
            want = weight - 0.5 * weight.grad
            worst = max(worst, (want - after[prefix + name]).abs().max().item())
            assert weight.grad.abs().max() > 1e-5, f"{kind}: {name} has no gradient to speak of"
    assert worst < 1e-9, f"{kind}: weights after a step differ by {worst}"
    print(f"{kind}, {layers} layers, both={both}: outputs within {off:.1e}, weights after a step "
          f"within {worst:.1e}")


def main():
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images = random.integers(0, 256, (ROWS, STEPS, FEATURES), dtype=np.uint8)
        labels = random.integers(0, CLASSES, ROWS, dtype=np.uint8)
        labels[:CLASSES] = range(CLASSES)
        for part in ("train", "t10k"):
            write_idx(folder / f"{part}-images-idx3-ubyte", images, 8)
            write_idx(folder / f"{part}-labels-idx1-ubyte", labels, 8)
        check("rnn", 1, False, folder, images, labels)
        check("rnn_relu", 2, True, folder, images, labels)
        check("gru", 2, True, folder, images, labels)
        check("lstm", 2, True, folder, images, labels)


main()
