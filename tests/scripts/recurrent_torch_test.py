"""Recurrent networks against PyTorch in double: the same weights give the same outputs and gradients, which
one step of SGD shows, on the CPU and, where there is one, on a GPU. Skipped (77) where PyTorch is not
installed."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()
RIDGELINE = tool.TOOL
STEPS, FEATURES, CLASSES, ROWS = 5, 7, 3, 23
RATE = 1000  # so large that a step is not lost in the rounding of the weight it is taken from

# The allowed error of a probability and, relative to its norm, of a weight's gradient: roundings of the type,
# which add up over timesteps and layers and matter most if a gradient is a difference of large terms.
BOUNDS = {"fp64": (1e-8, 1e-12), "fp32": (1e-6, 1e-5), "bf16": (2e-2, 1e-1)}


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
    done = subprocess.run([RIDGELINE, *map(str, arguments)], capture_output=True, text=True, env=tool.environment())
    if done.returncode != 0:
        sys.exit(f"ridgeline {arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def network(kind, hidden, layers, both, folder, device, precision):
    activation = {"rnn_relu": ', activation = "relu"'}.get(kind, "")
    return f"""
[data]
name = "{folder}"
scale = "unit"
[model]
layers = [
  {{ type = "{kind.split('_')[0]}", hidden = {hidden}, layers = {layers}, bidirectional = {str(both).lower()}{activation} }},
  {{ type = "select", at = 2 }},
  {{ type = "linear", out = {CLASSES} }},
]
[train]
batch = {ROWS}
shuffle = false
optimizer = {{ type = "sgd", lr = {RATE} }}
[run]
precision = "{precision}"
device = "{device}"
"""


def in_torch(kind, hidden, layers, both, weights):
    options = dict(batch_first=True, num_layers=layers, bidirectional=both, dtype=torch.float64)
    if kind == "rnn_relu":
        layer = torch.nn.RNN(FEATURES, hidden, nonlinearity="relu", **options)
    else:
        layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](
            FEATURES, hidden, **options)
    linear = torch.nn.Linear(2 * hidden if both else hidden, CLASSES, dtype=torch.float64)
    layer.load_state_dict({k[2:]: v for k, v in weights.items() if k.startswith("0.")})
    linear.load_state_dict({k[2:]: v for k, v in weights.items() if k.startswith("2.")})
    return layer, linear


def check(kind, hidden, layers, both, place, folder, images, labels):
    device, precision = place
    name = f"{kind}-{hidden}-{device}-{precision}"
    config = folder / f"{name}.toml"
    config.write_text(network(kind, hidden, layers, both, folder, device, precision))
    start, end = folder / f"{name}-start", folder / f"{name}-end"
    run("train", config, "--set", "train.epochs=0", "--out", start)
    run("train", config, "--set", "train.epochs=1", "--out", end)
    before = read_safetensors(start / "model.safetensors")
    after = read_safetensors(end / "model.safetensors")
    layer, linear = in_torch(kind, hidden, layers, both, before)

    x = torch.tensor(images.reshape(ROWS, STEPS, FEATURES), dtype=torch.float64) * np.float32(1 / 255)
    logits = linear(layer(x)[0][:, 2])
    raw = folder / "samples.raw"
    raw.write_bytes(images.tobytes())
    text = run("infer", start, "--input", raw)
    got = np.array([[float(p) for p in line.split(",")[2:]] for line in text.splitlines()[1:]])
    off = np.abs(got - torch.softmax(logits, 1).detach().numpy()).max()
    output_bound, gradient_bound = BOUNDS[precision]
    assert off < output_bound, f"{name}: probabilities differ by {off}"

    torch.nn.functional.cross_entropy(logits, torch.tensor(labels.astype(np.int64))).backward()
    worst = 0
    for prefix, module in (("0.", layer), ("2.", linear)):
        for weight_name, weight in module.named_parameters():
            assert weight.grad.abs().max() > 1e-5, f"{name}: {weight_name} has no gradient to speak of"
            step = (before[prefix + weight_name].double() - after[prefix + weight_name].double()) / RATE
            share = ((step - weight.grad).norm() / weight.grad.norm()).item()
            assert share < gradient_bound, f"{name}: the gradient of {weight_name} is off by {share} of it"
            worst = max(worst, share)
    print(f"{kind} of {hidden}, {layers} layers, both={both}, {precision} on {device}: outputs within {off:.1e}, "
          f"gradients within {worst:.1e} of their length")


SMALL = [("rnn", 6, 1, False), ("rnn_relu", 6, 2, True), ("gru", 6, 2, True), ("lstm", 6, 2, True)]
LARGE = [("gru", 136, 1, False), ("lstm", 136, 2, False)]  # of a size for the persistent passes of a GPU


def cases():
    yield from (((device, "fp64"), case) for device in ("cpu", "cuda") for case in SMALL)
    yield from ((place, case) for place in (("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "bf16")) for case in LARGE)


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
        gpu = subprocess.run([RIDGELINE, "info", "--device", "cuda"], capture_output=True).returncode == 0
        for place, case in cases():
            if place[0] == "cpu" or gpu:
                check(*case, place, folder, images, labels)


main()
