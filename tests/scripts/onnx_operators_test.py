"""Small graphs of one operator, or of a few that exporters write together, give what ONNX Runtime gives for them. Models
that scikit-learn has trained come in through its own exporter."""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

# Differences are of the order of the sums, which are of a few dozen fp32 terms of order one.
TOLERANCE = 1e-5

# Writes NAME.onnx, NAME.x.npy and what ONNX Runtime gives, NAME.y.npy, for each graph.
GRAPHS = '''
import sys, pathlib, numpy as np, onnx, onnxruntime
from onnx import helper, numpy_helper, TensorProto
out, draw = pathlib.Path(sys.argv[1]), np.random.default_rng(1)
def floats(*shape): return draw.standard_normal(shape, dtype=np.float32)
def ints(*values): return np.array(values, np.int64)
def write(name, shape, nodes, opset=18, output=TensorProto.FLOAT, **constants):
    """`nodes`: (operator, inputs, outputs, attributes), from x to y; "-" is an input that is absent."""
    listed = lambda names: ["" if each == "-" else each for each in names.split()]
    made = [helper.make_node(op, listed(i), o.split(), domain=more.pop("domain", ""), **more) for op, i, o, more in nodes]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", *shape))
    y = helper.make_tensor_value_info("y", output, None)
    initializers = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
    graph = helper.make_graph(made, "g", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)])
    model.ir_version = 8
    file, samples = out / f"{name}.onnx", floats(5, *shape)
    file.write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    np.save(out / f"{name}.x.npy", samples)
    np.save(out / f"{name}.y.npy", session.run(None, {"x": samples})[0])
def one(name, shape, op, inputs="x", opset=18, constants={}, **more):
    write(name, shape, [(op, inputs, "y", more)], opset, **constants)

for op, more in (("Neg", {}), ("Abs", {}), ("Selu", {}), ("Celu", {"alpha": 1.5}), ("Mish", {})):
    one(op, (3, 4), op, **more)
one("gelu-tanh", (7,), "Gelu", opset=20, approximate="tanh")
one("prelu", (3, 4, 4), "PRelu", "x s", constants={"s": floats(3, 1, 1)})
one("prelu-one", (7,), "PRelu", "x s", constants={"s": floats(1)})
one("shrink", (7,), "Shrink", lambd=0.4, bias=0.4)
write("log-sigmoid", (6,), [("Sigmoid", "x", "s", {}), ("Log", "s", "y", {})])
one("clip-above", (7,), "Clip", "x low high", constants={"low": np.float32(-3e38), "high": np.float32(0.3)})
write("zeros", (6,), [("Shape", "x", "n", {"start": 0, "end": 1}), ("Concat", "n w", "s", {"axis": 0}), ("Expand", "z s", "h", {}),
      ("MatMul", "h a", "p", {}), ("MatMul", "x b", "q", {}), ("Add", "p q", "y", {})],
      w=ints(4), z=np.float32(0), a=floats(4, 3), b=floats(6, 3))
one("max", (7,), "Max", "x c", constants={"c": np.float32(0.2)})
one("min", (3, 4), "Min", "c x", constants={"c": floats(4)})
one("max-of-no-bound", (7,), "Max", "x c", constants={"c": np.float32(-3.4e38)})
one("min-of-no-bounds", (3, 4), "Min", "c x", constants={"c": np.full(4, 1e30, np.float32)})
one("max-of-a-large-bound", (7,), "Max", "x c", constants={"c": np.float32(1e5)})
write("max-two", (6,), [("MatMul", "x a", "p", {}), ("MatMul", "x b", "q", {}), ("Max", "p q", "r", {}), ("Min", "r p", "y", {})],
      a=floats(6, 4), b=floats(6, 4))
for power in (1, 2, 3):
    one(f"pow-{power}", (5,), "Pow", "x c", constants={"c": np.float32(power)})
one("add-positions", (6, 4), "Add", "x c", constants={"c": floats(1, 6, 4)})
one("multiply-features", (6, 4), "Mul", "x c", constants={"c": floats(4)})
write("add-transposed", (2, 3, 4), [("Transpose", "x", "t", {"perm": [0, 2, 3, 1]}), ("Sub", "t c", "y", {})], c=floats(3, 4, 2))
for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"):
    for name, axes in (("steps", [1]), ("features", [-1]), ("all", [1, 2])):
        if op != "ReduceSum":
            one(f"{op}-{name}", (6, 4), op, opset=13, axes=axes, keepdims=0)
        else:
            one(f"{op}-{name}", (6, 4), op, "x a", constants={"a": ints(*axes)}, keepdims=1)
one("mean-of-rows", (2, 3, 4), "ReduceMean", opset=13, axes=[2], keepdims=1)
for axis in (1, 2, 3):
    one(f"softmax-{axis}", (2, 3, 4), "Softmax", axis=axis)
one("softmax-old", (2, 3, 4), "Softmax", opset=11, axis=2)
write("softmax-between", (6,), [("Softmax", "x", "s", {"axis": 1}), ("MatMul", "s a", "p", {}), ("Mul", "s p", "y", {})], a=floats(6, 6))
write("softmax-and-bias", (6,), [("MatMul", "x a", "p", {}), ("Softmax", "p", "s", {"axis": 1}), ("Add", "s b", "y", {})],
      a=floats(6, 4), b=floats(4))
one("gather-several", (6, 4), "Gather", "x i", constants={"i": ints(4, 5, 0, -3)}, axis=1)
one("slice-steps", (7, 4), "Slice", "x b e a s", constants={"b": ints(1), "e": ints(7), "a": ints(1), "s": ints(3)})
one("slice-back", (7, 4), "Slice", "x b e a s", constants={"b": ints(-1), "e": ints(-(2**60)), "a": ints(1), "s": ints(-1)})
one("depth-dcr", (8, 3, 2), "DepthToSpace", blocksize=2)
one("depth-crd", (8, 3, 2), "DepthToSpace", blocksize=2, mode="CRD")
one("space", (3, 4, 6), "SpaceToDepth", blocksize=2)
write("pixel-shuffle", (8, 3, 2), [("Reshape", "x s", "r", {}), ("Transpose", "r", "t", {"perm": [0, 1, 4, 2, 5, 3]}),
      ("Reshape", "t w", "u", {}), ("Conv", "u k", "y", {})], s=ints(-1, 2, 2, 2, 3, 2), w=ints(-1, 2, 6, 4), k=floats(3, 2, 3, 3))
one("max-pool-uneven", (2, 6, 7), "MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
one("max-pool-up", (2, 7), "MaxPool", kernel_shape=[3], strides=[2], pads=[0, 1], ceil_mode=1)
one("mean-pool-uneven", (2, 6, 7), "AveragePool", kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
one("mean-pool-lower", (2, 6, 7), "AveragePool", kernel_shape=[2, 2], strides=[1, 1], auto_pad="SAME_LOWER", count_include_pad=0)
one("mean-pool-counted", (2, 6), "AveragePool", kernel_shape=[3], pads=[0, 1], count_include_pad=1)
one("conv-uneven", (2, 9, 9), "Conv", "x w", constants={"w": floats(3, 2, 3, 3)}, pads=[0, 1, 1, 3], dilations=[2, 3])
for name, more in (("plain", {}), ("stride", {"strides": [2, 3]}), ("padded", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
                   ("longer", {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
                   ("far", {"strides": [3, 3], "output_padding": [2, 1]}), ("dilated", {"strides": [2, 1], "dilations": [2, 3]}),
                   ("same", {"strides": [2, 2], "auto_pad": "SAME_UPPER"})):
    one(f"conv-transpose-{name}", (2, 4, 5), "ConvTranspose", "x w b", constants={"w": floats(2, 3, 3, 3), "b": floats(3)}, **more)
one("conv-transpose-groups", (4, 4, 5), "ConvTranspose", "x w", constants={"w": floats(4, 3, 2, 4)}, group=2, strides=[2, 2])
one("conv-transpose-1d", (2, 6), "ConvTranspose", "x w b", constants={"w": floats(2, 3, 4), "b": floats(3)}, strides=[2], pads=[1, 1])
one("pad-reflect", (2, 5, 6), "Pad", "x p", constants={"p": ints(0, 0, 2, 1, 0, 0, 1, 3)}, mode="reflect")
one("pad-edge", (3, 5), "Pad", "x p", constants={"p": ints(0, 1, 2, 0, 0, 3)}, mode="edge")
one("pad-wrap", (2, 5), "Pad", "x p", opset=19, constants={"p": ints(0, 0, 2, 0, 0, 4)}, mode="wrap")
one("pad-less", (2, 6, 6), "Pad", "x p v", constants={"p": ints(0, 0, -1, 1, 0, 0, -2, -1), "v": np.float32(0.5)})
# PyTorch computes the pads of a reflection by a Slice of constants, backwards.
write("pad-computed", (2, 5, 6), [("Slice", "p b e a b", "q", {}), ("Transpose", "q", "r", {"perm": [1, 0]}), ("Reshape", "r b", "t", {}), ("Pad", "x t", "y", {"mode": "reflect"})],
      p=np.array([[1, 3], [2, 0], [0, 0], [0, 0]]), b=ints(-1), e=ints(-(2**63)), a=ints(0))
one("resize-half", (2, 6, 7), "Resize", "x r s", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    constants={"r": np.zeros(0, np.float32), "s": np.array([1, 1, 0.5, 0.4], np.float32)})
for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    one(f"resize-{rounding}", (2, 5, 4), "Resize", "x r r n", constants={"r": np.zeros(0, np.float32), "n": ints(5, 2, 9, 3)}, nearest_mode=rounding)
write("gram", (4, 5), [("Transpose", "x", "t", {"perm": [0, 2, 1]}), ("MatMul", "x t", "y", {})])
one("matmul-left", (4, 3), "MatMul", "a x", constants={"a": floats(5, 4)})
one("matmul-of-one", (4, 3), "MatMul", "x w", constants={"w": floats(1, 3, 5)})
one("where", (3, 4), "Where", "c x z", constants={"c": np.eye(3, 4) > 0, "z": floats(4)})
write("where-two", (4,), [("MatMul", "x a", "p", {}), ("MatMul", "x b", "q", {}), ("Where", "c p q", "y", {})],
      a=floats(4, 3), b=floats(4, 3), c=np.array([True, False, True]))
# Attention of two heads.
heads = [step for part in "qkv" for step in (("MatMul", f"x w{part}", f"{part}1", {}), ("Reshape", f"{part}1 split", f"{part}2", {}),
         ("Transpose", f"{part}2", part, {"perm": [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]}))]
write("attention", (5, 6), heads + [("MatMul", "q k", "s", {}), ("Mul", "s scale", "t", {}), ("Softmax", "t", "p", {"axis": -1}), ("MatMul", "p v", "h", {}),
      ("Transpose", "h", "g", {"perm": [0, 2, 1, 3]}), ("Reshape", "g whole", "j", {}), ("MatMul", "j wo", "o", {}), ("Add", "o x", "y", {})],
      wq=floats(6, 6), wk=floats(6, 6), wv=floats(6, 8), wo=floats(8, 6), split=ints(0, 0, 2, -1), whole=ints(0, 0, -1), scale=np.float32(0.57735))
# The same as PyTorch writes it: timesteps come first, heads are merged with the batch, and then timesteps are.
heads = [step for part in "qkv" for step in (("MatMul", f"t w{part}", f"{part}1", {}), ("Reshape", f"{part}1 s{part}", f"{part}2", {}),
         ("Transpose", f"{part}2", part, {"perm": [1, 2, 0] if part == "k" else [1, 0, 2]}))]
write("attention-merged", (5, 6), [("Transpose", "x", "t", {"perm": [1, 0, 2]})] + heads + [("MatMul", "q k", "s", {}), ("Mul", "s scale", "u", {}),
      ("Softmax", "u", "p", {"axis": -1}), ("MatMul", "p v", "h", {}), ("Transpose", "h", "g", {"perm": [1, 0, 2]}), ("Reshape", "g rows", "j", {}),
      ("Gemm", "j wo b", "o", {"transB": 1}), ("Reshape", "o whole", "r", {}), ("Add", "r t", "a", {}), ("Transpose", "a", "y", {"perm": [1, 0, 2]})],
      wq=floats(6, 6), wk=floats(6, 6), wv=floats(6, 8), wo=floats(6, 8), b=floats(6), sq=ints(5, -1, 3), sk=ints(5, -1, 3), sv=ints(5, -1, 4),
      rows=ints(-1, 8), whole=ints(5, -1, 6), scale=np.float32(0.57735))
one("matmul-images", (2, 3, 4), "MatMul", "x w", constants={"w": floats(4, 5)})
write("rms-reciprocal", (2, 6), [("Pow", "x two", "p", {}), ("ReduceMean", "p", "m", {"axes": [-1]}), ("Add", "m e", "a", {}),
      ("Sqrt", "a", "s", {}), ("Reciprocal", "s", "r", {}), ("Mul", "x r", "n", {}), ("Mul", "n w", "y", {})], opset=13,
      two=np.float32(2), e=np.float32(1e-3), w=floats(6))
write("unit-length", (6,), [("ReduceL2", "x", "n", {"axes": [-1], "keepdims": 1}), ("Clip", "n e", "c", {}), ("Shape", "x", "s", {}),
      ("Expand", "c s", "w", {}), ("Div", "x w", "y", {})], opset=13, e=np.float32(1e-12))
one("unit-steps", (3, 4), "LpNormalization", axis=-1, p=2)
write("softplus", (6,), [("Softplus", "x", "p", {}), ("Greater", "x t", "g", {}), ("Where", "g x p", "y", {})], t=np.float32(20))
write("initial-state", (6,), [("Shape", "x", "n", {"start": 0, "end": 1}), ("Concat", "n w", "s", {"axis": 0}), ("Expand", "z s", "h", {}),
      ("Gemm", "h a b", "p", {}), ("Tanh", "p", "t", {}), ("MatMul", "x m", "q", {}), ("Mul", "t q", "y", {})],
      w=ints(4), z=np.float32(0), a=floats(4, 3), b=floats(3), m=floats(6, 3))
write("join-ranks", (4,), [("MatMul", "x a", "p", {}), ("Unsqueeze", "p z", "u", {}), ("MatMul", "x b", "q", {}), ("Add", "u q", "s", {}),
      ("Add", "q c", "r", {}), ("Sub", "s r", "t", {}), ("Squeeze", "t z", "y", {})], a=floats(4, 3), b=floats(4, 3), c=floats(1, 1, 3), z=ints(0))
# A value that is transposed without a layer, joined with one that is not.
write("concat-transposed", (2, 3, 4), [("Conv", "x k", "c", {}), ("Transpose", "c", "t", {"perm": [0, 2, 3, 1]}), ("Reshape", "t f", "p", {}),
      ("Reshape", "x f", "q", {}), ("Concat", "p q", "j", {"axis": 1}), ("MatMul", "j w", "y", {})],
      k=floats(5, 2, 1, 1), f=ints(0, -1), w=floats(84, 3))
one("tile", (2, 3, 4), "Tile", "x r", constants={"r": ints(1, 2, 1, 3)})
write("expand", (3, 4), [("Unsqueeze", "x a", "u", {}), ("Shape", "x", "n", {"start": 0, "end": 1}), ("Concat", "n e", "s", {"axis": 0}),
      ("Expand", "u s", "y", {})], a=ints(2), e=ints(3, 5, 4))
write("stack", (3, 4), [("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("Gather", "t i", "a", {}), ("Gather", "t j", "b", {}),
      ("Unsqueeze", "a z", "c", {}), ("Unsqueeze", "b z", "d", {}), ("Concat", "c d t", "e", {"axis": 0}), ("Transpose", "e", "y", {"perm": [1, 0, 2]})],
      i=np.int64(2), j=np.int64(0), z=ints(0))
write("flip-and-sum", (5, 3), [("Slice", "x b e a s", "r", {}), ("MatMul", "r w", "p", {}), ("Add", "p x", "y", {})],
      b=ints(-1), e=ints(-(2**60)), a=ints(1), s=ints(-1), w=floats(3, 3))
# [N, T, ...] as [N * T, ...]: rows that a product treats alike, and images that a convolution gets one by one.
write("merge-rows", (5, 3), [("Reshape", "x m", "r", {}), ("Gemm", "r w b", "p", {}), ("Relu", "p", "q", {}), ("Shape", "x", "n", {"start": 0, "end": 1}),
      ("Concat", "n e", "s", {"axis": 0}), ("Reshape", "q s", "y", {})], m=ints(-1, 3), w=floats(3, 4), b=floats(4), e=ints(5, 4))
write("merge-images", (3, 2, 5, 5), [("Reshape", "x m", "r", {}), ("Conv", "r k b", "c", {}), ("Relu", "c", "d", {}),
      ("MaxPool", "d", "p", {"kernel_shape": [3, 3]}), ("Reshape", "p f", "g", {}), ("MatMul", "g w", "h", {}), ("Reshape", "h e", "y", {})],
      m=ints(-1, 2, 5, 5), k=floats(4, 2, 3, 3), b=floats(4), f=ints(0, -1), w=floats(4, 2), e=ints(-1, 3, 2))
write("merge-twice", (2, 3, 4), [("Reshape", "x m", "r", {}), ("Sigmoid", "r", "q", {}), ("Reshape", "q o", "p", {}), ("MatMul", "p w", "h", {}),
      ("Reshape", "h e", "y", {})], m=ints(-1, 3, 4), o=ints(-1, 4), w=floats(4, 2), e=ints(-1, 2, 3, 2))
# Norms in other forms than those of PyTorch.
for name, axes, dims in (("last", [2], (1, 1, 6)), ("middle", [1], (1, 4, 6)), ("both", [1, 2], (4, 6))):
    write(f"norm-{name}", (4, 6), [("ReduceMean", "x", "m", {"axes": axes}), ("Sub", "x m", "d", {}), ("Mul", "d d", "q", {}), ("ReduceMean", "q", "v", {"axes": axes}),
          ("Add", "v e", "a", {}), ("Sqrt", "a", "s", {}), ("Reciprocal", "s", "r", {}), ("Mul", "r g", "rg", {}), ("Mul", "x rg", "xr", {}),
          ("Neg", "m", "n", {}), ("Mul", "n rg", "mr", {}), ("Add", "mr b", "z", {}), ("Add", "xr z", "y", {})], opset=13,
          e=np.float32(1e-3), g=floats(*dims), b=floats(*dims))
write("norm-and-sum", (6,), [("MatMul", "x w", "u", {}), ("Add", "u x", "h", {}), ("ReduceMean", "h", "m", {"axes": [-1]}), ("Sub", "h m", "d", {}), ("Pow", "d two", "q", {}),
      ("ReduceMean", "q", "v", {"axes": [-1]}), ("Add", "v e", "a", {}), ("Sqrt", "a", "s", {}), ("Div", "d s", "n", {}), ("Mul", "n g", "k", {}), ("Add", "k x", "y", {})],
      opset=13, w=floats(6, 6), two=np.float32(2), e=np.float32(1e-5), g=floats(6))
one("normalizer", (4,), "Normalizer", domain="ai.onnx.ml", norm="L2")
onnxruntime.set_default_logger_severity(3)  # some constants are for other graphs
def body(name, inputs, outputs, nodes, **constants):
    made = [helper.make_node(op, i.split(), o.split(), **more) for op, i, o, more in nodes]
    kind = lambda each: {"t": TensorProto.INT64, "go": TensorProto.BOOL, "on": TensorProto.BOOL}.get(each, TensorProto.FLOAT)
    values = [[helper.make_tensor_value_info(each, kind(each), () if kind(each) != TensorProto.FLOAT else None) for each in names.split()]
              for names in (inputs, outputs)]
    return helper.make_graph(made, name, *values, [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()])
def loop(name, states, outputs, nodes, width=4, steps=6, scan=False, **constants):
    """`nodes` compute the states' names with a 2 from x1 [N, 3] and the states; the net's output joins all states and the stacked one."""
    count = len(states.split())
    begin = [("Transpose", "x", "xt", {"perm": [1, 0, 2]}), ("Shape", "x", "count", {"start": 0, "end": 1}), ("Concat", "count width", "extents", {"axis": 0}),
             ("Expand", "zero extents", "state", {})]
    ends = [f"end{i}" for i in range(count)]
    after = " ".join(each + "2" for each in states.split())
    if scan:
        inner = body("cell", states + " x1", after + " " + outputs, nodes, **constants)
        run = ("Scan", "state " * count + "xt", " ".join(ends) + " stacked", {"body": inner, "num_scan_inputs": 1})
    else:
        inner = body("cell", "t go " + states, "on " + after + " " + outputs, [("Gather", "xt t", "x1", {}), ("Identity", "go", "on", {})] + nodes, **constants)
        run = ("Loop", "steps yes " + "state " * count, " ".join(ends) + " stacked", {"body": inner})
    end = [("Transpose", "stacked", "st", {"perm": [1, 0, 2]}), ("Reshape", "st flat", "all", {}),
           ("Concat", " ".join(ends[:1]) + " all", "y", {"axis": 1})]
    write(name, (steps, 3), begin + [run] + end, opset=15, width=ints(width), zero=np.float32(0), steps=np.int64(steps), yes=np.array(True), flat=ints(0, -1))
weights = {"w": floats(3, 16), "r": floats(4, 16), "b": floats(16), "one": np.float32(1), "p": ints(0), "q": ints(4), "e": ints(8), "f": ints(12), "l": ints(16), "a": ints(1)}
gates = [("MatMul", "x1 w", "u", {}), ("MatMul", "h r", "v", {}), ("Add", "u v", "uv", {}), ("Add", "uv b", "z", {}), ("Slice", "z p q a", "z1", {}),
         ("Slice", "z q e a", "z2", {}), ("Slice", "z e f a", "z3", {}), ("Slice", "z f l a", "z4", {})]
lstm = gates + [("Sigmoid", "z1", "i", {}), ("Sigmoid", "z2", "o", {}), ("Sigmoid", "z3", "g", {}), ("Tanh", "z4", "n", {}), ("Mul", "g c", "k", {}),
                ("Mul", "n i", "m", {}), ("Add", "m k", "c2", {}), ("Tanh", "c2", "ct", {}), ("Mul", "ct o", "h2", {}), ("Identity", "h2", "out", {})]
loop("loop-lstm-scan", "h c", "out", lstm, scan=True, **weights)
gru = gates + [("Sigmoid", "z1", "zz", {}), ("Sigmoid", "z2", "rr", {}), ("Mul", "rr h", "rh", {}), ("MatMul", "rh m", "k", {}), ("Add", "z3 k", "s", {}), ("Tanh", "s", "n", {})]
for name, mix in (("keras", [("Sub", "one zz", "mz", {}), ("Mul", "mz n", "mn", {}), ("Mul", "zz h", "zh", {}), ("Add", "zh mn", "h2", {})]),
                  ("difference", [("Sub", "h n", "hn", {}), ("Mul", "hn zz", "zh", {}), ("Add", "zh n", "h2", {})]),
                  ("other-way", [("Sub", "n h", "nh", {}), ("Mul", "zz nh", "zn", {}), ("Add", "h zn", "h2", {})])):
    more = {**weights, "w": floats(3, 12), "r": floats(4, 12) * (np.arange(12) < 8), "b": floats(12), "l": ints(12), "m": floats(4, 4)}
    loop(f"loop-gru-{name}", "h", "out", [each for each in gru if "z4" not in each[2]] + mix + [("Identity", "h2", "out", {})], **more)
# No cell that is known: it is written out.
loop("loop-unrolled", "h", "out", [("MatMul", "x1 w", "u", {}), ("MatMul", "h r", "v", {}), ("Add", "u v", "z", {}), ("Add", "z b", "s", {}), ("Tanh", "s", "t1", {}),
     ("Add", "t1 h", "h2", {}), ("Relu", "h2", "out", {})], w=floats(3, 4), r=floats(4, 4) / 4, b=floats(4))
# A state of a million numbers, whose weights the file does not hold.
wide = out / "refused"; wide.mkdir()
model = onnx.load(out / "loop-unrolled.onnx")
for each in model.graph.initializer:
    if each.name == "width": each.CopyFrom(numpy_helper.from_array(ints(10**6), "width"))
onnx.save(model, wide / "wide.onnx")
# Functions of one number, comparisons and choices.
for op in ("Exp", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign", "Softsign"):
    one(op, (3, 5), op)
for op in ("Log", "Sqrt", "Reciprocal"):
    write(op, (3, 5), [("Exp", "x", "e", {}), (op, "e", "y", {})])
one("thresholded", (9,), "ThresholdedRelu", alpha=0.6)
one("hard-shrink", (9,), "Shrink", lambd=0.5, bias=0.0)
one("shrink-far", (9,), "Shrink", lambd=0.5, bias=1.5)
for power in (0.5, -0.5, -1, -2, 1.7, 5):
    write(f"power-{power}", (5,), [("Exp", "x", "e", {}), ("Pow", "e c", "y", {})], c=np.float32(power))
one("power-of-two", (5,), "Pow", "c x", constants={"c": np.float32(2)})
write("quotient", (6, 4), [("Exp", "x", "e", {}), ("ReduceSum", "e a", "s", {}), ("Div", "e s", "y", {})], a=ints(-1))
write("inverse", (6,), [("Exp", "x", "e", {}), ("Div", "c e", "y", {})], c=floats(6))
write("standard", (6, 4), [("ReduceMean", "x", "m", {"axes": [1]}), ("Sub", "x m", "d", {}), ("Mul", "d d", "q", {}), ("ReduceMean", "q", "v", {"axes": [1], "keepdims": 0}),
      ("Sqrt", "v", "y", {})], opset=13)
for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"):
    # Whole numbers, many of which are equal.
    write(f"{op}-constant", (7, 4), [("Round", "x", "r", {}), (op, "r c", "m", {}), ("Cast", "m", "y", {"to": 1})], c=np.float32(1))
    write(f"{op}-values", (7, 4), [("Round", "x", "r", {}), ("MatMul", "r w", "p", {}), (op, "r p", "m", {}), ("Cast", "m", "y", {"to": 1})],
          w=np.eye(4, k=1, dtype=np.float32))
logic = [("Greater", "x zero", "a", {}), ("Less", "x half", "b", {})]
for op in ("And", "Or", "Xor"):
    write(op, (8,), logic + [(op, "a b", "c", {}), ("Not", "c", "d", {}), ("Cast", "d", "y", {"to": 1})], zero=np.float32(0), half=np.float32(0.5))
write("choice", (8,), [("Greater", "x zero", "m", {}), ("Tanh", "x", "t", {}), ("Where", "m t c", "y", {})], zero=np.float32(0), c=np.float32(-0.3))
write("choice-of-two", (8,), [("MatMul", "x w", "p", {}), ("Less", "p x", "m", {}), ("Where", "m p x", "y", {})], w=floats(8, 8))
write("masked", (8,), [("Greater", "x half", "m", {}), ("Cast", "m", "f", {"to": 1}), ("Mul", "x f", "y", {})], half=np.float32(0.5))
# Reductions, sums of neighbours and products.
for op in ("ReduceL2", "ReduceLogSumExp"):
    one(f"{op}-features", (6, 4), op, opset=13, axes=[-1], keepdims=0)
    one(f"{op}-steps", (6, 4), op, opset=13, axes=[1], keepdims=1)
one("product", (6, 4), "ReduceProd", opset=13, axes=[1], keepdims=0)
write("log-sum", (6, 4), [("Exp", "x", "e", {}), ("ReduceLogSum", "e", "y", {"axes": [2], "keepdims": 0})], opset=13)
write("log-softmax-between", (6, 4), [("LogSoftmax", "x", "s", {"axis": -1}), ("MatMul", "s w", "y", {})], w=floats(4, 3))
for name, more in (("", {}), ("-exclusive", {"exclusive": 1}), ("-reverse", {"reverse": 1}), ("-both", {"exclusive": 1, "reverse": 1})):
    one(f"cumsum{name}", (6, 4), "CumSum", "x a", constants={"a": np.int64(1)}, **more)
one("trilu", (4, 5), "Trilu", "x k", constants={"k": np.int64(-1)})
one("trilu-lower", (2, 4, 4), "Trilu", upper=0)
for size in (3, 5):
    one(f"lrn-{size}", (7, 3, 4), "LRN", size=size, alpha=0.3, beta=0.6, bias=1.5)
for name, equation, shape, w in (("product", "btd,de->bte", (5, 4), (4, 3)), ("heads", "btd,hde->bhte", (5, 4), (2, 4, 3)), ("first", "ij,bjk->bik", (4, 3), (5, 4)),
                                 ("implicit", "bi,ij", (4,), (4, 3)), ("all", "bthd,hde->bte", (5, 2, 4), (2, 4, 3)), ("weights", "bts,s->bt", (5, 4), (4,))):
    one(f"einsum-{name}", shape, "Einsum", "w x" if name == "first" else "x w", constants={"w": floats(*w)}, equation=equation)
for name, equation in (("gram", "bid,bjd->bij"), ("each", "bid,bid->bi"), ("across", "bid,bie->bde")):
    write(f"einsum-{name}", (5, 4), [("MatMul", "x w", "p", {}), ("Einsum", "x p", "y", {"equation": equation})], w=floats(4, 4))
one("einsum-three", (5, 4), "Einsum", "x w x", constants={"w": floats(4, 4)}, equation="btd,de,bse->bts")
one("gather-array", (6, 4), "Gather", "x i", constants={"i": ints(4, 5, 0, -3, 1, 1).reshape(2, 3)}, axis=1)
one("einsum-sum", (5, 4, 3), "Einsum", equation="bijk->bk")
one("einsum-transpose", (5, 4, 3), "Einsum", equation="bijk->bkji")
# Attention whose mask is minus infinity.
scores = [("Transpose", "x", "k", {"perm": [0, 2, 1]}), ("MatMul", "x k", "s", {})]
chosen = [("Softmax", "t", "p", {"axis": -1}), ("MatMul", "p x", "y", {})]
write("causal", (5, 4), scores + [("Add", "s m", "t", {})] + chosen, m=np.triu(np.full((5, 5), -np.inf, np.float32), 1))
write("causal-choice", (5, 4), scores + [("Where", "c s i", "t", {})] + chosen, c=np.tri(5) > 0, i=np.float32(-np.inf))
# A class token, and constants between values.
repeat = [("Shape", "x", "n", {"start": 0, "end": 1}), ("Concat", "n e", "s", {"axis": 0}), ("Expand", "t s", "c", {})]
write("class-token", (4, 6), repeat + [("Concat", "c x", "y", {"axis": 1})], e=ints(1, 6), t=floats(1, 1, 6))
write("constants-between", (4, 6), repeat + [("Tanh", "x", "h", {}), ("Concat", "x c c h c", "y", {"axis": 2})], e=ints(4, 2), t=floats(1, 4, 2))
# Categories, and outputs that nobody reads.
write("one-hot", (2,), [("Abs", "x", "a", {}), ("Floor", "a", "f", {}), ("Cast", "f", "i", {"to": 7}), ("OneHotEncoder", "i", "h", {"domain": "ai.onnx.ml", "cats_int64s": [0, 1, 2, 3], "zeros": 1}),
      ("Reshape", "h s", "r", {}), ("MatMul", "r w", "y", {})], s=ints(0, -1), w=floats(8, 3))
write("half-read", (6,), [("Split", "x s", "a b c", {"axis": 1}), ("Tanh", "a", "t", {}), ("Mul", "t c", "y", {})], s=ints(2, 2, 2))
# Resizing to any size.
for name, more in (("corners", {"coordinate_transformation_mode": "align_corners"}), ("half", {}), ("asymmetric", {"coordinate_transformation_mode": "asymmetric"}),
                   ("pytorch", {"coordinate_transformation_mode": "pytorch_half_pixel"})):
    for mode in ("linear", "cubic"):
        one(f"resize-{mode}-{name}", (2, 5, 4), "Resize", "x r r n", constants={"r": np.zeros(0, np.float32), "n": ints(5, 2, 9, 3)}, mode=mode, **more)
one("resize-cubic-inside", (2, 5, 4), "Resize", "x r s", constants={"r": np.zeros(0, np.float32), "s": np.array([1, 1, 1.7, 2], np.float32)}, mode="cubic",
    exclude_outside=1, cubic_coeff_a=-0.5)
# Quantised weights and values.
write("quantised", (6,), [("QuantizeLinear", "x s z", "q", {}), ("DequantizeLinear", "q s z", "d", {}), ("DequantizeLinear", "w sw zw", "v", {"axis": 1}), ("MatMul", "d v", "y", {})],
      s=np.float32(0.03), z=np.uint8(120), w=draw.integers(-128, 128, (6, 4), dtype=np.int8), sw=np.abs(floats(4)) / 64, zw=np.array([0, 3, -2, 1], np.int8))
write("quantised-channels", (3, 4, 4), [("QuantizeLinear", "x s z", "q", {"axis": 1}), ("DequantizeLinear", "q s z", "y", {"axis": 1})],
      s=np.array([0.01, 0.02, 0.005], np.float32), z=np.zeros(3, np.int8))
# Recurrent nodes whose states are computed, or whose last cell states are read.
for name, op, gates, more in (("lstm", "LSTM", 4, {}), ("lstm-both", "LSTM", 4, {"direction": "bidirectional"}), ("lstm-peepholes", "LSTM", 4, {}),
                              ("gru", "GRU", 3, {"direction": "reverse"}), ("gru-after", "GRU", 3, {"linear_before_reset": 1}), ("rnn", "RNN", 1, {"activations": ["Relu"]})):
    ways = 2 if more.get("direction") == "bidirectional" else 1
    begin = [("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("Gather", "t first", "f", {}), ("MatMul", "f a", "g", {}), ("Reshape", "g ways", "k", {}),
             ("Transpose", "k", "s", {"perm": [1, 0, 2]})]
    states = "s" + (" s" if op == "LSTM" else "") + (" p" if "peep" in name else "")
    outputs = ["Y", "H"] + ["C"] * (op == "LSTM")
    ends = [step for each in outputs for step in (("Transpose", each, f"{each}t", {"perm": [2, 0, 1, 3] if each == "Y" else [1, 0, 2]}),
            ("Reshape", f"{each}t flat", f"{each}f", {}))]
    write(f"states-{name}", (6, 3), begin + [(op, f"t w r b - {states}", " ".join(outputs), {"hidden_size": 4, **more})] + ends +
          [("Concat", " ".join(f"{each}f" for each in outputs), "y", {"axis": 1})], w=floats(ways, gates * 4, 3), r=floats(ways, gates * 4, 4),
          b=floats(ways, gates * 8), p=floats(ways, 12), a=floats(3, ways * 4), first=np.int64(0), ways=ints(0, ways, 4), flat=ints(0, -1))
# Weights that are computed from constants.
write("weights-of-length-one", (5,), [("ReduceL2", "v", "n", {"axes": [1]}), ("Div", "v n", "u", {}), ("Mul", "u g", "w", {}), ("Gemm", "x w", "y", {"transB": 1})], opset=13,
      v=floats(3, 5), g=floats(3, 1))
write("wider-constant", (1, 6), [("Sub", "x c", "d", {}), ("Mul", "d d", "q", {}), ("ReduceSum", "q a", "y", {"keepdims": 0})], c=floats(1, 4, 6), a=ints(-1))
write("gemm-of-sums", (6,), [("MatMul", "x w", "c", {}), ("Gemm", "x v c", "y", {"beta": 0.5})], w=floats(6, 3), v=floats(6, 3))
one("matmul-vector", (4, 3), "MatMul", "x v", constants={"v": floats(3)})
for to in (7, 9):
    write(f"cast-{to}", (7,), [("Mul", "x c", "m", {}), ("Cast", "m", "w", {"to": to}), ("Cast", "w", "y", {"to": 1})], c=np.float32(2.5))
one("sum-of-one", (3, 4), "LpNormalization", axis=1, p=1)
one("binarizer", (5,), "Binarizer", domain="ai.onnx.ml", threshold=0.2)
one("normalizer-sums", (4,), "Normalizer", domain="ai.onnx.ml", norm="L1")
# Logarithms are values unless they are said to be of classes; the classifier then gives probabilities.
write("log-softmax", (6,), [("MatMul", "x a", "p", {}), ("LogSoftmax", "p", "y", {"axis": 1})], a=floats(6, 4))
classes = out / "classes"; classes.mkdir()
for end in ("onnx", "x.npy"): (classes / f"log-softmax.{end}").write_bytes((out / f"log-softmax.{end}").read_bytes())
np.save(classes / "log-softmax.y.npy", np.exp(np.load(out / "log-softmax.y.npy")))
# Labels alone: the probabilities of a classifier, whose largest ones they are.
matrix = floats(6, 4)
write("labels", (6,), [("MatMul", "x a", "p", {}), ("ArgMax", "p", "y", {"axis": 1, "keepdims": 0})], output=TensorProto.INT64, a=matrix)
odds = np.exp(np.load(out / "labels.x.npy") @ matrix)
np.save(out / "labels.y.npy", odds / odds.sum(1, keepdims=True))
'''

# Writes models of scikit-learn as NAME.onnx with NAME.x.npy and NAME.y.npy, and the classes' names.
SKLEARN = '''
import json, sys, pathlib, warnings, numpy as np
warnings.filterwarnings("ignore")
from sklearn.datasets import make_classification
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, RobustScaler, StandardScaler
from skl2onnx import to_onnx
out = pathlib.Path(sys.argv[1])
x, three = make_classification(120, 8, n_informative=5, n_classes=3, random_state=1)
x, two, words, values = x.astype(np.float32), three > 0, np.array(["ash", "beech", "oak"])[three], x @ np.arange(8.0)
def net(kind, **more): return kind(hidden_layer_sizes=(9,), max_iter=15, random_state=1, **more)
models = {
    "mlp": (net(MLPClassifier), words), "mlp-numbers": (net(MLPClassifier, activation="logistic"), three + 1),
    "mlp-two": (net(MLPClassifier, activation="tanh"), two.astype(int)), "regressor": (net(MLPRegressor), values),
    "standard": (make_pipeline(StandardScaler(), net(MLPClassifier)), three),
    "min-max": (make_pipeline(MinMaxScaler(), net(MLPRegressor)), values),
    "clipped": (make_pipeline(MinMaxScaler(clip=True), net(MLPRegressor)), values),
    "pca": (make_pipeline(RobustScaler(), PCA(4), net(MLPClassifier)), three),
    "logistic": (make_pipeline(MaxAbsScaler(), LogisticRegression()), words), "logistic-two": (LogisticRegression(), two.astype(int)),
    "normalized": (make_pipeline(Normalizer(), LogisticRegression()), three), "linear": (LinearRegression(), values),
    "ridge": (Ridge(), np.stack([values, x[:, 0]], 1)), "polynomial": (make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge()), values),
    "columns": (make_pipeline(ColumnTransformer([("a", StandardScaler(), [0, 1, 2]), ("b", MinMaxScaler(), [4, 5]), ("c", "passthrough", [6])]), LogisticRegression()), words),
    "selected": (make_pipeline(SelectKBest(k=4), LogisticRegression()), three), "binarized": (make_pipeline(Binarizer(threshold=0.3), Ridge()), values),
    "calibrated": (CalibratedClassifierCV(LogisticRegression(), cv=2), three), "bayes": (GaussianNB(), three), "one-by-one": (OneVsRestClassifier(LogisticRegression()), three),
    "rates": (PoissonRegressor(), abs(values))}
names = {}
for name, (model, y) in models.items():
    model.fit(x, y)
    (out / f"{name}.onnx").write_bytes(to_onnx(model, x[:1]).SerializeToString())
    classifier = hasattr(model, "predict_proba")
    np.save(out / f"{name}.x.npy", x)
    np.save(out / f"{name}.y.npy", model.predict_proba(x) if classifier else model.predict(x).reshape(len(x), -1))
    if classifier: names[name] = [str(each) for each in model.classes_]
print(json.dumps(names))
'''

# What infer gives for NAME.x.npy is NAME.y.npy, in its order; the last columns are probabilities where there are labels.
COMPARE = '''
import sys, numpy as np
for got, want in zip(*[iter(sys.argv[2:])] * 2):
    y, w = np.load(got), np.load(want)
    y, w = y.reshape(len(y), -1), w.reshape(len(w), -1)
    y = y[:, -w.shape[1]:]
    worst = np.max(np.abs(y - w) / (1 + np.abs(w))) if y.shape == w.shape else f"{y.shape}, not {w.shape}"
    if not (y.shape == w.shape and worst <= float(sys.argv[1])): print(f"{got}: differs by {worst}")
'''


def run_all(folder, python):
    """Every model of the folder gives the outputs that lie beside it."""
    pairs = []
    for file in sorted(folder.glob("*.onnx")):
        x, y, got = (file.with_suffix(end) for end in (".x.npy", ".y.npy", ".got.npy"))
        if folder.name == "classes":
            tool.run("import", file, "--classes", "--out", file.with_suffix(".safetensors"))
            file = file.with_suffix(".safetensors")
        tool.run("infer", file, "--input", x, "--output", got, "--no-tune")
        pairs += [got, y]
    assert pairs
    wrong = tool.command([python, "-c", COMPARE, str(TOLERANCE), *pairs]).stdout
    assert not wrong, wrong
    return len(pairs) // 2


def graphs(python):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tool.command([python, "-c", GRAPHS, folder])
        print(f"{run_all(folder, python) + run_all(folder / 'classes', python)} graphs give ONNX Runtime's numbers")
        tool.run("import", folder / "refused/wide.onnx", "--out", folder / "wide.safetensors", code=3)


def sklearn(python):
    """Probabilities and values are scikit-learn's own, and classes keep their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        names = json.loads(tool.command([python, "-c", SKLEARN, folder]).stdout)
        print(f"{run_all(folder, python)} models of scikit-learn give its numbers")
        x = folder / "mlp.x.npy"
        tool.run("infer", folder / "mlp.onnx", "--input", x, "--output", folder / "mlp.csv", "--no-tune")
        said = {line.split(",")[1] for line in (folder / "mlp.csv").read_text().splitlines()[1:]}
        assert said and said <= set(names["mlp"]), said


def main():
    probe = subprocess.run([tool.TOOL, "import", "/dev/null", "--out", "none.safetensors"], capture_output=True, text=True)
    if "has no ONNX" in probe.stderr:
        print("skipped: this build has no ONNX")
        return 77
    python = tool.python_with("onnx")
    if python is None:
        return 77
    graphs(python)
    with_sklearn = tool.python_with("sklearn")
    if with_sklearn is None:
        return 77
    sklearn(with_sklearn)
    return 0


sys.exit(main())
