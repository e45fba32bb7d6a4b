"""Small models of libonnx-testdata, changed at random where they stay plausible (attributes, constants, further nodes): what both
ONNX Runtime and ridgeline take must give the same numbers. By hand, with the Python package and onnxruntime installed:
    tests/scripts/onnx_differential.py SEED SECONDS
Prints the counts; a model whose results differ is left as different-SEED-N.onnx."""

import collections
import pathlib
import random
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import ridgeline
from onnx import helper, numpy_helper

DATA = pathlib.Path("/usr/lib/python3/dist-packages/onnx/backend/test/data")
TEXTS = (b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"NOTSET", b"nearest", b"linear", b"half_pixel", b"asymmetric",
         b"align_corners", b"pytorch_half_pixel", b"floor", b"ceil", b"round_prefer_ceil", b"reverse", b"forward", b"none",
         b"tanh", b"constant", b"DCR", b"CRD")
REALS = (0, 1, -1, 0.5, 1e3, -1e3, 1e-3, 1e6, -1e6, 1e30, -1e30)
ADDED = {"keepdims": (0, 1), "axis": (-1, 0, 1, 2), "ceil_mode": (0, 1), "count_include_pad": (0, 1), "layout": (0, 1),
         "linear_before_reset": (0, 1), "transB": (0, 1), "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"),
         "alpha": (0.5, 2.0), "beta": (0.5, 2.0)}


def imported(model, file):
    file.write_bytes(model.SerializeToString())
    return ridgeline.from_onnx(str(file))


def starts(file):
    """The models that can be imported once all inputs but the first have the values of their test as constants."""
    found = []
    for path in sorted(DATA.rglob("model.onnx")):
        if path.stat().st_size > 20000:
            continue
        model = onnx.ModelProto.FromString(path.read_bytes())
        known = {tensor.name for tensor in model.graph.initializer}
        free = [value for value in model.graph.input if value.name not in known]
        try:
            for i, value in enumerate(free[1:], 1):
                tensor = onnx.TensorProto.FromString((path.parent / "test_data_set_0" / f"input_{i}.pb").read_bytes())
                tensor.name = value.name
                model.graph.initializer.append(tensor)
            imported(model, file)
        except (ridgeline.Error, OSError, ValueError, TypeError):
            continue
        found.append(model)
    return found


def change_attribute(node, draw):
    attribute = draw.choice(list(node.attribute))
    kind = attribute.type
    if kind == onnx.AttributeProto.INT:
        is_flag = attribute.name in ("noop_with_empty_axes", "keepdims", "ceil_mode", "allowzero")
        attribute.i = draw.choice((0, 1) if is_flag else (0, 1, 2, 3, -1, -2, attribute.i + 1))
    elif kind == onnx.AttributeProto.FLOAT:
        attribute.f = draw.choice((0, 0.1, 0.5, 1, 2, -0.5, 1e-3, 10, 1e-5))
    elif kind == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice((0, 1, 2, 3, -1))
    elif kind == onnx.AttributeProto.STRING:
        attribute.s = draw.choice(TEXTS)


def change_constant(graph, draw):
    tensor = draw.choice(list(graph.initializer))
    values = numpy_helper.to_array(tensor).copy()
    if values.size and values.dtype.kind in "if":
        values.reshape(-1)[draw.randrange(values.size)] = draw.choice((0, 1, 2, -1, 3) if values.dtype.kind == "i" else REALS)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def append_node(graph, other, draw):
    """A node of another model reads the output of this one; its constants come along."""
    node, mark = onnx.NodeProto(), f"n{draw.randrange(10**6)}_"
    node.CopyFrom(draw.choice(list(other.node)))
    constants = {tensor.name: tensor for tensor in other.initializer}
    for i, name in enumerate(node.input):
        if name in constants:
            graph.initializer.add().CopyFrom(constants[name])
            graph.initializer[-1].name = node.input[i] = mark + name
        elif name:
            node.input[i] = graph.output[0].name
    node.output[0] = mark + "out"
    graph.node.append(node)
    kind = graph.output[0].type.tensor_type.elem_type
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(mark + "out", kind, None))


def change(model, models, draw):
    graph = model.graph
    node, how = draw.choice(list(graph.node)), draw.random()
    if how < 0.7 and node.attribute:
        change_attribute(node, draw)
    elif how < 0.8 and graph.initializer:
        change_constant(graph, draw)
    elif how < 0.9:
        for key, values in ADDED.items():
            if draw.random() < 0.15 and key not in [each.name for each in node.attribute]:
                node.attribute.append(helper.make_attribute(key, draw.choice(values)))
    else:
        append_node(graph, draw.choice(models).graph, draw)


def compare(model, file, draw):
    """What became of a model, in a few words."""
    try:
        ours = imported(model, file)
    except (ridgeline.Error, ValueError, TypeError):
        return "refused"
    try:
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        given = session.get_inputs()[0]
        if given.type != "tensor(float)":
            return "takes no floats"
        x = draw.standard_normal([d if isinstance(d, int) and d > 0 else 3 for d in given.shape]).astype(np.float32)
        want = np.asarray(session.run(None, {given.name: x})[0], np.float64)
    except Exception:  # onnxruntime has many kinds
        return "refused by ONNX Runtime"
    try:
        got = np.asarray(ours.predict(x), np.float64).reshape(-1)
    except (ridgeline.Error, ValueError):
        return "samples in another order"
    if got.size != want.size:  # a classifier predicts classes
        try:
            got = np.asarray(ours.predict_proba(x), np.float64).reshape(-1)
        except ridgeline.Error:
            return "DIFFERENT"
    if got.size != want.size:
        return "DIFFERENT"
    size = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))
    for axis in range(max(1, want.ndim)):  # samples come first here, wherever the batch is in the graph
        moved = (np.moveaxis(want, axis, 0) if want.ndim else want).reshape(-1)
        finite = np.isfinite(moved)
        if np.allclose(got[finite], moved[finite], rtol=1e-3, atol=1e-4 * size):
            return "same"
    return "DIFFERENT"


def main():
    seed, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    onnxruntime.set_default_logger_severity(4)
    np.seterr(over="ignore")
    draw, numbers, counts = random.Random(seed), np.random.default_rng(seed), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "changed.onnx"
        models = starts(file)
        while time.monotonic() < end:
            model = onnx.ModelProto()
            model.CopyFrom(draw.choice(models))
            for _ in range(draw.randrange(1, 4)):
                try:
                    change(model, models, draw)
                except (ValueError, TypeError, IndexError, OverflowError):
                    continue
            result = compare(model, file, numbers)
            counts[result] += 1
            if result == "DIFFERENT":
                onnx.save(model, f"different-{seed}-{counts.total()}.onnx")
                print([node.op_type for node in model.graph.node], f"different-{seed}-{counts.total()}.onnx", flush=True)
    print(f"seed {seed}: {counts.total()} models of {len(models)}: " +
          ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    sys.exit(1 if counts["DIFFERENT"] else 0)


main()
