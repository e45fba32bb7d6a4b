"""Random PyTorch networks go to ONNX, through import, infer and export, and to ONNX Runtime: all three give the same
numbers. Files that are damaged or not supported are refused in one line."""

import json
import os
import pathlib
import random
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()
nn = torch.nn
NETS = 30
OPSETS = (9, 11, 13, 14, 16)
# Differences are of the order of the sums: a few hundred fp32 terms of order one. A wrong weight, gate or window is
# 1e-2 or more.
TOLERANCE = 1e-5

# Checks files and runs them: PATH.onnx INPUT.npy OUTPUT.npy for each.
RUNNER = """
import sys, numpy, onnx, onnxruntime
for path, given, result in zip(*[iter(sys.argv[1:])] * 3):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    numpy.save(result, session.run(None, {"input": numpy.load(given)})[0])
"""

# The same with the inputs of an .npz, words among them.
FIELDS_RUNNER = """
import sys, numpy, onnx, onnxruntime
for path, given, result in zip(*[iter(sys.argv[1:])] * 3):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {name: x.astype(object) if x.dtype.kind == "U" else x for name, x in numpy.load(given).items()}
    assert inputs.keys() == {each.name for each in session.get_inputs()}, (path, inputs.keys())
    numpy.save(result, session.run(None, inputs)[0])
"""

# Files that must be refused, each with a word of the reason.
FAULTS = """
import sys, pathlib, numpy as np, onnx
from onnx import helper, numpy_helper, TensorProto
out = pathlib.Path(sys.argv[1])
def write(name, nodes, initializers=(), opset=13, shape=("N", 4)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    (out / name).write_bytes(model.SerializeToString())
relu = helper.make_node("Relu", ["x"], ["y"])
weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
product = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
write("unknown.onnx", [helper.make_node("Det", ["x"], ["h"], name="odd"), helper.make_node("Relu", ["h"], ["y"])])
write("old.onnx", [relu], opset=5)
write("new.onnx", [relu], opset=99)
write("open.onnx", [relu], shape=("N", "T"))
write("circle.onnx", [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                      helper.make_node("Relu", ["b"], ["y"])])
write("missing.onnx", [product])
write("mismatch.onnx", [product], [numpy_helper.from_array(np.ones((5, 3), np.float32), "w")])
short = onnx.TensorProto(); short.CopyFrom(weight); short.raw_data = short.raw_data[:-4]
write("short.onnx", [product], [short])
huge = onnx.TensorProto(); huge.CopyFrom(weight); del huge.dims[:]; huge.dims.extend([2**40, 2**40])
write("huge.onnx", [product], [huge])
for name, place in (("outside.onnx", "../secret.bin"), ("absolute.onnx", "/etc/passwd"), ("linked.onnx", "link.bin"),
                    ("absent.onnx", "none.bin")):
    away = onnx.TensorProto(name="w", data_type=1, dims=[4, 3], data_location=1)
    away.external_data.add(key="location", value=place)
    write(name, [product], [away])
beside = onnx.TensorProto(name="w", data_type=1, dims=[4, 3], data_location=1)
beside.external_data.add(key="location", value="beside.bin"); beside.external_data.add(key="offset", value="8")
(out / "beside.bin").write_bytes(b"12345678" + np.ones((4, 3), np.float32).tobytes())
write("beside.onnx", [product], [beside])
half = numpy_helper.from_array(np.ones((4, 3), np.float16), "w16")
# No activation for its one direction: that is neither tanh nor relu.
cell = helper.make_node("RNN", ["x", "w", "r"], ["", "y"], hidden_size=3)
cell.attribute.add(name="activations", type=onnx.AttributeProto.STRINGS)
write("cell.onnx", [cell], [numpy_helper.from_array(np.ones((1, 3, n), np.float32), k) for k, n in (("w", 2), ("r", 3))],
      shape=(4, "N", 2))
def constant(name, *values): return numpy_helper.from_array(np.array(values, np.float32), name)
write("min.onnx", [helper.make_node("Min", ["x", "c"], ["y"])], [constant("c", 1e30, 1, 1, 1)])
write("clip.onnx", [helper.make_node("Clip", ["x", "c"], ["y"])], [numpy_helper.from_array(np.float32(1e31), "c")])
write("celu.onnx", [helper.make_node("Celu", ["x"], ["y"], alpha=-1.0)])
write("split.onnx", [helper.make_node("Split", ["x", "s"], ["y", ""], axis=1)], [numpy_helper.from_array(np.array([1, 2]), "s")])
write("resize.onnx", [helper.make_node("Resize", ["x", "", "", "s"], ["y"], keep_aspect_ratio_policy="not_larger")],
      [numpy_helper.from_array(np.array([1, 2, 4, 6]), "s")], opset=18, shape=("N", 2, 2, 2))
write("half.onnx", [helper.make_node("Cast", ["w16"], ["w"], to=1), product], [half])
"""

REFUSED = {"unknown.onnx": "'odd' (Det) with inputs [N, 4]", "old.onnx": "opset 5", "new.onnx": "opset 99",
           "open.onnx": "--input-shape", "circle.onnx": "circle", "missing.onnx": "'w'",
           "mismatch.onnx": "does not fit", "short.onnx": "44 bytes", "huge.onnx": "initializer 'w'",
           "outside.onnx": "outside the folder", "absolute.onnx": "outside the folder", "linked.onnx": "outside the folder",
           "absent.onnx": "none.bin",
           "cell.onnx": "its activations are not those of this layer", "min.onnx": "lose digits", "clip.onnx": "lose digits",
           "celu.onnx": "alpha", "split.onnx": "its parts do not fit", "resize.onnx": "aspect ratio", "empty.onnx": "no ONNX model",
           "noise.onnx": "no ONNX model", "large.onnx": "protobuf ends at 2 GB"}


class Last(nn.Module):
    def forward(self, x):
        return x[:, -1]


class Sequence(nn.Module):
    """The outputs of a recurrent net, without its last state."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0]


def activation(draw):
    return draw.choice((nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus, nn.Hardswish,
                        lambda: nn.LeakyReLU(0.2)))()


def mlp(draw):
    width = features = draw.choice((3, 7, 12))
    layers = []
    for _ in range(draw.randrange(1, 4)):
        out = draw.choice((5, 8, 11))
        layers += [nn.Linear(width, out, bias=draw.random() < 0.7)]
        if draw.random() < 0.5:
            layers.append(draw.choice((nn.LayerNorm, nn.BatchNorm1d))(out))
        layers += [activation(draw), nn.Dropout(0.3)]
        width = out
    return (features,), layers + [nn.Linear(width, 4)]


def conv(draw, axes):
    channels, size = draw.choice((1, 2, 3)), draw.choice((9, 11, 12))
    shape = (channels,) + (size,) * axes
    one, two = (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d, nn.BatchNorm1d), (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d,
                                                                         nn.BatchNorm2d)
    convolution, max_pool, mean_pool, norm = one if axes == 1 else two
    layers = []
    for _ in range(draw.randrange(1, 3)):
        out = draw.choice((4, 6))
        groups = channels if out % channels == 0 and draw.random() < 0.3 else 1
        layers.append(convolution(channels, out, draw.choice((1, 2, 3)), stride=draw.choice((1, 1, 2)),
                                  padding=draw.choice((0, 1)), dilation=draw.choice((1, 1, 2)), groups=groups,
                                  bias=draw.random() < 0.7))
        kind = draw.choice(("none", "batch", "group"))
        layers += [norm(out)] if kind == "batch" else [nn.GroupNorm(2, out)] if kind == "group" else []
        layers.append(activation(draw))
        channels = out
    layers.append(draw.choice((max_pool(2), mean_pool(2), nn.Identity())))
    with torch.no_grad():
        left = nn.Sequential(*layers).eval()(torch.zeros(1, *shape))
    end = [nn.Flatten(), nn.Linear(left.numel(), 4)]
    if axes == 2 and draw.random() < 0.4:
        end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(left.shape[1], 4)]
    return shape, layers + end


def recurrent(draw):
    steps, features, hidden = draw.choice((1, 4, 6)), draw.choice((3, 5)), draw.choice((4, 7))
    both = draw.random() < 0.4
    kind = draw.choice((nn.LSTM, nn.GRU, nn.RNN))
    net = kind(features, hidden, draw.choice((1, 2)), batch_first=True, bidirectional=both,
               bias=draw.random() < 0.8)
    width = hidden * (2 if both else 1)
    if draw.random() < 0.5:
        return (steps, features), [Sequence(net), Last(), nn.Linear(width, 4)]
    return (steps, features), [Sequence(net), nn.Linear(width, 6), nn.Tanh(), nn.Flatten(), nn.Linear(6 * steps, 4)]


class Residual(nn.Module):
    """x + f(x), or what f(x) and g(x) give one behind the other."""

    def __init__(self, body, other=None):
        super().__init__()
        self.body, self.other = body, other

    def forward(self, x):
        return torch.cat([self.body(x), self.other(x)], 1) if self.other is not None else x + self.body(x)


def residual(draw):
    width, out = draw.choice((3, 4)), draw.choice((4, 6))
    layers = [nn.Conv2d(2, width, 3, padding=1)]
    for _ in range(draw.randrange(1, 3)):
        layers.append(Residual(nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=draw.random() < 0.5),
                                             nn.BatchNorm2d(width), activation(draw),
                                             nn.Conv2d(width, width, 1))))
        layers.append(activation(draw))
    layers.append(Residual(nn.Conv2d(width, out, 1, bias=False), nn.Conv2d(width, 2, 3, padding=1)))
    return (2, 7, 7), layers + [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(out + 2, 4)]


def make_net(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind = draw.choice((mlp, lambda d: conv(d, 1), lambda d: conv(d, 2), residual, residual, recurrent, recurrent))
    shape, layers = kind(draw)
    if draw.random() < 0.3:
        layers.append(nn.Softmax(1))
    net = nn.Sequential(*layers)
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return net.eval(), shape, draw.choice(OPSETS), draw.choice((9, 13, 17, 18, 21))


def near(got, want, what):
    assert got.shape == want.shape, (what, got.shape, want.shape)
    worst = np.max(np.abs(got - want) / (1 + np.abs(want)))
    assert worst <= TOLERANCE, f"{what}: differs by {worst}"


def outputs(path, classes):
    """What infer has written: values, or labels and probabilities."""
    got = np.load(path)
    return got if got.shape[1] == classes else got[:, -classes:]


def round_trips(folder, python, first):
    jobs, wanted = [], []
    for seed in range(first, first + NETS):
        net, shape, opset, ours = make_net(seed)
        print(f"seed {seed}: opset {opset}, then {ours}: {net}".replace("\n", ""))
        x = torch.randn(5, *shape)
        want = net(x).detach().numpy()
        given, file = folder / f"{seed}.npy", folder / f"{seed}.onnx"
        np.save(given, x.numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(net, x, str(file), opset_version=opset, input_names=["x"], output_names=["y"],
                              dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})
        model, back = folder / f"{seed}.safetensors", folder / f"{seed}-back.onnx"
        tool.run("import", file, "--out", model)
        tool.run("infer", model, "--input", given, "--output", folder / f"{seed}-ours.npy", "--no-tune")
        near(outputs(folder / f"{seed}-ours.npy", want.shape[1]), want, f"seed {seed}, imported")
        weights = ["--weights", "fp16"] if seed % 5 == 4 else []
        tool.run("export", model, "--onnx", back, "--opset", ours, *weights)
        tool.run("infer", back, "--input", given, "--output", folder / f"{seed}-back.npy", "--no-tune")
        again = outputs(folder / f"{seed}-back.npy", want.shape[1])
        if not weights:
            near(again, want, f"seed {seed}, exported and read again")
        jobs += [back, given, folder / f"{seed}-ort.npy"]
        wanted.append((seed, again))
    tool.command([python, "-c", RUNNER, *jobs])
    for seed, want in wanted:
        near(np.load(folder / f"{seed}-ort.npy"), want, f"seed {seed}, ONNX Runtime")


def own_models(folder, python):
    """A model trained here runs in ONNX Runtime on the bytes of its images."""
    own = tool.Folder()
    tool.run("train", own.config, "--out", own / "run")
    pixels, _ = tool.images(100, 2)
    x = np.frombuffer(pixels, np.uint8).reshape(100, 6, 6)
    np.save(folder / "own.npy", x)
    tool.run("export", own / "run", "--onnx", folder / "own.onnx")
    tool.run("infer", own / "run", "--input", own.data / "t10k-images-idx3-ubyte", "--output", folder / "own-ours.npy")
    tool.command([python, "-c", RUNNER, folder / "own.onnx", folder / "own.npy", folder / "own-ort.npy"])
    near(np.load(folder / "own-ort.npy"), outputs(folder / "own-ours.npy", 4), "a model of ours")
    tool.run("export", own / "run", "--onnx", own.config, code=2)  # never replaces what it did not write
    tool.run("export", own / "run", "--onnx", folder / "x.onnx", "--opset", "3", code=2)
    own.close()


TABLE = """
[data]
train = "{folder}/table.csv"
target = "y"
{more}
[model]
layers = [{first}{{ type = "linear", out = 6 }}, {{ type = "tanh" }}, {{ type = "linear", out = {out} }}]
[train]
batch = 16
epochs = 2
optimizer = {{ type = "adam", lr = 0.02 }}
[run]
tune = false
device = "cpu"
"""


def prepared_tables(folder, python):
    """The preparation of a table goes into the file: scales, logarithms, clips, missing values, categories."""
    draw = np.random.default_rng(3)
    count = 120
    numbers = np.stack([draw.normal(50, 9, count), np.exp(draw.normal(0, 3, count)), draw.normal(0, 1e-3, count)], 1)
    numbers = numbers.astype("f4")
    numbers[7:20, 0] = numbers[9:11, 1] = np.nan
    words = draw.choice(["red", "green", "blue"], count)
    words[30:40] = ""
    cells = [["" if np.isnan(v) else repr(float(v)) for v in row] for row in numbers]
    y = draw.normal(3, 2, count)
    (folder / "table.csv").write_text("a,wide,small,colour,output,y\n" + "".join(
        ",".join((*cell, word, "yes" if i % 3 else "no", repr(float(v)))) + "\n"
        for i, (cell, word, v) in enumerate(zip(cells, words, y))))
    rules = ('columns = [{ name = "a", missing = "indicator" }, { name = "wide", log = true }, '
             '{ name = "small", clip = { min = -1e-3, max = 2e-3 }, log = true }]')
    cases = {"numbers": ('missing = "mean"\nfeatures = ["a", "wide", "small"]\n' + rules, ""),
             "plain": ('missing = "mean"\nfeatures = ["small", "a"]\nscale = "min-max"', ""),
             "words": ('missing = "mean"\nunseen = "missing"\n' + rules, ""),
             "one_hot": ('missing = "indicator"', ""),
             "embedded": ('missing = "mean"\n' + rules, '{ type = "column_embedding" }, ')}
    flags = (np.arange(count) % 3 > 0).astype("f4")
    fields = {"a": numbers[:, :1], "wide": numbers[:, 1:2], "small": numbers[:, 2:], "colour": words[:, None],
              "output_input": flags[:, None]}  # "output" is the file's own name for what comes out
    jobs = []
    for name, (more, first) in cases.items():
        config, run, file = folder / f"{name}.toml", folder / f"{name}-run", folder / f"{name}.onnx"
        config.write_text(TABLE.format(folder=folder, more=more, first=first, out=1))
        tool.run("train", config, "--out", run)
        tool.run("infer", run, "--input", folder / "table.csv", "--output", folder / f"{name}-ours.npy", "--no-tune")
        tool.run("export", run, "--onnx", file, "--opset", 9 if name == "one_hot" else 17)
        given = {"numbers": {"input": numbers}, "plain": {"input": numbers[:, [0, 2]]}}.get(name, fields)
        np.savez(folder / f"{name}-given.npz", **given)
        jobs += [file, folder / f"{name}-given.npz", folder / f"{name}-ort.npy"]
    assert "--opset 7" in tool.run("export", folder / "numbers-run", "--onnx", folder / "numbers-7.onnx", "--opset", 7,
                                   code=2).stderr
    # A word that was not seen has the row of missing ones where the rules say so, and else none.
    strange = dict(fields, colour=np.full_like(words[:, None], "pink"))
    for name in ("words", "embedded"):
        np.savez(folder / f"{name}-strange.npz", **strange)
        jobs += [folder / f"{name}.onnx", folder / f"{name}-strange.npz", folder / f"{name}-strange.npy"]
    tool.command([python, "-c", FIELDS_RUNNER, *jobs])
    for name in cases:
        near(np.load(folder / f"{name}-ort.npy")[:, 0], np.load(folder / f"{name}-ours.npy"), f"a table, {name}")
    assert np.isfinite(np.load(folder / "words-strange.npy")).all()
    assert np.isnan(np.load(folder / "embedded-strange.npy")).all()


def prepared_sequences(folder, python):
    """Sequences of their own lengths: of tokens and of numbers, whose ends the layers find by `lengths`."""
    draw = np.random.default_rng(4)
    count, longest = 60, 7
    lengths = draw.integers(1, longest + 1, count).astype("i4")
    lengths[0] = longest
    tokens, numbers = draw.integers(0, 9, (count, longest)), draw.normal(5, 2, (count, longest, 3)).astype("f4")
    for i, own in enumerate(lengths):
        tokens[i, own:], numbers[i, own:] = 0, 0
    jobs = []
    for name, x, first in (
            ("tokens", tokens, '{ type = "embedding", vocabulary = 9, out = 4 }, { type = "gru", hidden = 5, layers = 2 }, '
                               '{ type = "select", at = -2 }, '),
            ("steps", numbers, '{ type = "lstm", hidden = 4, bidirectional = true }, { type = "select" }, '),
            ("seen", numbers, '{ type = "transpose", axes = [1, 0] }, { type = "conv1d", out = 3, kernel = 2 }, ')):
        lines = [{"x": x[i, :own].tolist(), "y": float(draw.normal())} for i, own in enumerate(lengths)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        config, run, file = folder / f"{name}.toml", folder / f"{name}-run", folder / f"{name}.onnx"
        text = TABLE.format(folder=folder, more="", first=first, out=1).replace("table.csv", f"{name}.jsonl")
        config.write_text(text)
        tool.run("train", config, "--out", run)
        tool.run("infer", run, "--input", folder / f"{name}.jsonl", "--output", folder / f"{name}-ours.npy", "--no-tune")
        tool.run("export", run, "--onnx", file)
        np.savez(folder / f"{name}-given.npz", input=x, lengths=lengths)
        jobs += [file, folder / f"{name}-given.npz", folder / f"{name}-ort.npy"]
    tool.command([python, "-c", FIELDS_RUNNER, *jobs])
    for name in ("tokens", "steps", "seen"):
        near(np.load(folder / f"{name}-ort.npy")[:, 0], np.load(folder / f"{name}-ours.npy"), f"sequences, {name}")


def faults(folder, python):
    tool.command([python, "-c", FAULTS, folder])
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "noise.onnx").write_bytes(random.Random(1).randbytes(5000))
    with open(folder / "large.onnx", "wb") as file:
        file.truncate(3 << 30)  # without blocks on the disk
    (folder / "link.bin").symlink_to("/etc/passwd")
    np.save(folder / "rows.npy", np.ones((2, 4), np.float32))
    for name, word in REFUSED.items():
        said = tool.run("infer", folder / name, "--input", folder / "rows.npy", code=3).stderr
        assert word in said, (name, said)
    lines = tool.run("import", folder / "unknown.onnx", "--out", folder / "no.safetensors", code=3).stderr
    assert "node 'odd' (Det) with inputs [N, 4]: this operator is not known here" in lines, lines
    assert not (folder / "no.safetensors").exists()
    for name in ("beside.onnx", "half.onnx"):
        tool.run("infer", folder / name, "--input", folder / "rows.npy", "--output", folder / "y.npy")
        assert np.array_equal(np.load(folder / "y.npy"), np.full((2, 3), 4)), name
        (folder / "y.npy").unlink()
    # Every truncation of a good file is refused or read, and nothing else.
    whole = (folder / "half.onnx").read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 12)):
        (folder / "cut.onnx").write_bytes(whole[:length])
        tool.run("infer", folder / "cut.onnx", "--input", folder / "rows.npy", code=3)


def main():
    done = tool.run("import", "--help").stdout
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        probe = folder / "probe.onnx"
        probe.write_bytes(b"")
        said = tool.subprocess.run([tool.TOOL, "import", str(probe), "--out", str(folder / "p.safetensors")],
                                   capture_output=True, text=True).stderr
        if "has no ONNX" in said:
            print("skipped: this build has no ONNX")
            return 77
        python = tool.python_with("onnx")
        if python is None:
            return 77
        assert "--input-shape" in done
        faults(folder, python)
        own_models(folder, python)
        prepared_tables(folder, python)
        prepared_sequences(folder, python)
        round_trips(folder, python, int(os.environ.get("RIDGELINE_ONNX_SEED", "1")))
    print(f"{NETS} nets go round, {len(REFUSED)} bad files are refused")
    return 0


sys.exit(main())
