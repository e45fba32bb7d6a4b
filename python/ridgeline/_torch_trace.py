"""What a module of PyTorch computes, traced by torch.fx, as a graph of our layers."""

from __future__ import annotations

import copy
import dis
import io
import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy, Tracer  # pyright: ignore[reportPrivateImportUsage]
from torch.fx.node import map_arg
from torch.fx.passes.shape_prop import ShapeProp

from . import nn
from ._errors import UsageError
from ._torch import ELSEWHERE, layer_of, rank_after

_F = torch.nn.functional
_T = torch.nn
# Calls between modules, by the module that does the same with the same arguments.
_CALLS: dict[Any, Any] = {
    torch.relu: _T.ReLU, _F.relu: _T.ReLU, "relu": _T.ReLU, torch.tanh: _T.Tanh, _F.tanh: _T.Tanh, "tanh": _T.Tanh,
    torch.sigmoid: _T.Sigmoid, _F.sigmoid: _T.Sigmoid, "sigmoid": _T.Sigmoid, _F.gelu: _T.GELU, _F.silu: _T.SiLU,
    _F.softplus: _T.Softplus, _F.hardswish: _T.Hardswish, _F.leaky_relu: _T.LeakyReLU, _F.elu: _T.ELU,
    _F.dropout: _T.Dropout, _F.max_pool1d: _T.MaxPool1d, _F.max_pool2d: _T.MaxPool2d, _F.avg_pool1d: _T.AvgPool1d,
    _F.avg_pool2d: _T.AvgPool2d, _F.adaptive_avg_pool1d: _T.AdaptiveAvgPool1d,
    _F.adaptive_avg_pool2d: _T.AdaptiveAvgPool2d, _F.adaptive_max_pool1d: _T.AdaptiveMaxPool1d,
    _F.adaptive_max_pool2d: _T.AdaptiveMaxPool2d, torch.flatten: _T.Flatten, "flatten": _T.Flatten, _F.interpolate: _T.Upsample,
}
# Keywords of calls that change nothing of what we compute.
_NOT_OF_MODULES = ("inplace", "training")
_NOT_OF_UPSAMPLE = ("recompute_scale_factor", "antialias")  # which it does not have; they may be false
_SQUEEZES = ("squeeze", torch.squeeze, "unsqueeze", torch.unsqueeze)
_LARGEST = ("amax", torch.amax, "max", torch.max)
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv)
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_MEANS = (torch.mean, "mean")
_CHUNKS = (torch.chunk, "chunk")
_SPLITS = (torch.split, "split")
_SOFTMAXES = (torch.softmax, _F.softmax, "softmax", torch.log_softmax, _F.log_softmax, "log_softmax")
_ALL = slice(None, None, None)


class _Unpacked(Proxy):  # type: ignore[misc]
    """Lets `y, state = lstm(x)` and `n, c, h, w = x.shape` be traced, which fails in some versions of torch.fx."""

    def __getattr__(self, name: str) -> Any:
        # Any other attribute is one of torch.fx's own proxies.
        return self.tracer.create_proxy("call_function", getattr, (self, name), {}) if name == "shape" else \
            super().__getattr__(name)

    def __iter__(self) -> Iterator[Any]:
        proxy: Any = self
        if proxy.tracer.gives_pair(self.node):
            return iter((proxy[0], proxy[1]))
        caller = sys._getframe(1)
        for step in dis.get_instructions(caller.f_code):
            if step.offset == caller.f_lasti and step.opname == "UNPACK_SEQUENCE":
                return iter([proxy[i] for i in range(step.argval)])
        raise TypeError(f"{self.node}: a loop over a tensor or its shape cannot be traced")


class _Tracer(Tracer):  # type: ignore[misc]
    def proxy(self, node: Any) -> Any:
        return _Unpacked(node, self)

    def recurrent(self, node: Any) -> Any:
        """The recurrent module that a node is a call of, or None."""
        if not isinstance(node, Node) or node.op != "call_module":
            return None
        module = self.root.get_submodule(str(node.target))
        return module if isinstance(module, torch.nn.RNNBase) else None

    def gives_pair(self, node: Any) -> bool:
        if self.recurrent(node) is not None:
            return True
        state = node.target is operator.getitem and node.args[1] == 1
        return state and isinstance(self.recurrent(node.args[0]), torch.nn.LSTM)


@contextmanager
def _zeros_traced(tracer: Tracer) -> Iterator[None]:
    """Lets torch.zeros(1, len(x), 16), from which recurrent modules start, be traced; torch.fx calls it instead."""
    zeros: Any = torch.zeros

    def traced_zeros(*size: Any, **keywords: Any) -> Any:
        extents = size[0] if size and isinstance(size[0], (tuple, list)) else size
        if any(isinstance(each, Proxy) for each in (*extents, *keywords.values())):
            return tracer.create_proxy("call_function", zeros, size, keywords)
        return zeros(*size, **keywords)

    torch.zeros = traced_zeros
    try:
        yield
    finally:
        torch.zeros = zeros


class _Trace:
    """The layers of a traced module, node by node."""

    def __init__(self, module: Any, input_shape: Sequence[int] | None) -> None:
        self.name = type(module).__name__
        self.tracer = _Tracer()
        try:
            with _zeros_traced(self.tracer):
                self.graph = self.tracer.trace(module)
        except Exception as error:  # torch.fx raises whatever the module's own code does
            raise UsageError(f"from_torch: torch.fx cannot trace {self.name}: {error}") from error
        self.values: dict[Any, nn.Node] = {}
        self.ranks: dict[int, int | None] = {}  # dimensions of a sample, by the identity of a value, where known
        self.states: dict[Any, Any] = {}  # the last states of recurrent modules, by the calls of these
        self.sizes: set[Any] = set()  # nodes that are numbers of samples
        self.numbers: dict[Any, Any] = {}  # other extents, where known
        self.parts: dict[Any, list[tuple[nn.Node, int, int, int]]] = {}  # what chunk() and split() give
        self.zeros: set[Any] = set()  # nodes that are zeros, or a device that they are on
        self.shapes = {} if input_shape is None else self.find_shapes(input_shape)
        self.owners: dict[int, Any] = {}  # PyTorch's modules by the identity of our layers
        self.input = nn.Input()
        self.ranks[id(self.input)] = None if input_shape is None else len(input_shape)

    def find_shapes(self, input_shape: Sequence[int]) -> dict[Any, tuple[int, ...]]:
        """The shapes of the nodes for two samples; empty if the module does not compute with such."""
        root = self.tracer.root
        trained = [each for each in root.modules() if each.training]
        root.eval()
        first = next((each for each in root.parameters() if each.is_floating_point()), torch.zeros(0))
        try:
            for dtype in (first.dtype, torch.int64):  # numbers, or codes
                try:
                    with torch.no_grad(), redirect_stderr(io.StringIO()):
                        ShapeProp(GraphModule(root, self.graph)).propagate(
                            torch.zeros((2, *input_shape), dtype=dtype, device=first.device))
                    break
                except Exception:  # whatever the module's code raises; the layers are checked later
                    continue
        finally:
            for each in trained:
                each.training = True
        found = {node: node.meta.get("tensor_meta") for node in self.graph.nodes}
        return {node: tuple(meta.shape) for node, meta in found.items() if hasattr(meta, "shape")}

    def refuse(self, node: Any, got: str, expected: str) -> UsageError:
        return UsageError(f"from_torch: {node.format_node()}: got {got}, expected {expected}{ELSEWHERE}")

    def value(self, node: Any, of: Any) -> nn.Node:
        if of not in self.values:
            raise self.refuse(node, repr(of), "what a module gives")
        return self.values[of]

    def rank(self, node: Any) -> int | None:
        return self.ranks[id(self.values[node])] if node in self.values else None

    def put(self, node: Any, layer: nn.Layer, *inputs: nn.Node) -> nn.Node:
        made = layer(*inputs)
        self.ranks[id(made)] = rank_after(layer.config(), self.ranks[id(inputs[0])])
        self.values[node] = made
        return made

    def put_module(self, node: Any, module: Any, place: str, x: Any) -> nn.Layer:
        layer = layer_of(self.as_pool(module, x), place, self.rank(x))
        self.put(node, layer, self.value(node, x))
        return layer

    def as_pool(self, module: Any, x: Any) -> Any:
        """An adaptive pool as one of windows, where these are as wide for every place."""
        name = type(module).__name__
        size = getattr(module, "output_size", 1)
        if getattr(module, "ceil_mode", False) and x in self.shapes and self.rounds_alike(module, self.shapes[x][2:]):
            module = copy.copy(module)
            module.ceil_mode = False
            return module
        if not name.startswith("Adaptive") or x not in self.shapes or ("Avg" in name and size in (1, (1, 1))) or \
                getattr(module, "return_indices", False):
            return module
        extents = self.shapes[x][2:]
        sizes = size if isinstance(size, (tuple, list)) else (size,) * len(extents)
        if any(each is None or extent % each for extent, each in zip(extents, sizes, strict=True)):
            return module
        windows = tuple(extent // each for extent, each in zip(extents, sizes, strict=True))
        return getattr(_T, name.removeprefix("Adaptive"))(windows)

    @staticmethod
    def rounds_alike(pool: Any, extents: tuple[int, ...]) -> bool:
        """Whether a pool's windows end where the samples do, so that ceil_mode changes nothing."""
        widths, strides, paddings = ((each,) * len(extents) if isinstance(each, int) else each
                                     for each in (pool.kernel_size, pool.stride, pool.padding))
        return all((extent + 2 * padding - width) % stride == 0
                   for extent, width, stride, padding in zip(extents, widths, strides, paddings, strict=True))

    def part(self, node: Any, x: nn.Node, dim: int, begin: int, end: int | None) -> nn.Node:
        """The positions of x from `begin` to `end` of an axis, counted with that of the samples."""
        return self.put(node, nn.Slice(dim - 1 if dim > 0 else dim, begin, end), x)

    def gated(self, node: Any, of: Any, dim: int) -> None:
        """GLU: the first half of an axis times the sigmoid of the second."""
        if of not in self.shapes or dim == 0:
            raise self.refuse(node, "a GLU of an unknown shape", "input_shape, and an axis of a sample")
        half, x = self.shapes[of][dim] // 2, self.value(node, of)
        gate = self.put(node, nn.Sigmoid(), self.part(node, x, dim, half, None))
        self.put(node, nn.Multiply(), self.part(node, x, dim, 0, half), gate)

    def divided(self, node: Any) -> None:
        """x.chunk(2, 1) and x.split(8, 1), whose parts the trace takes one by one."""
        of, count, *rest = node.args
        dim = rest[0] if rest else node.kwargs.get("dim", 0)
        if of not in self.shapes or dim == 0 or node.kwargs.keys() - {"dim"}:
            raise self.refuse(node, "parts of an unknown shape", "input_shape, and an axis of a sample")
        extent = self.shapes[of][dim]
        if isinstance(count, (tuple, list)):
            sizes = list(count)
        else:
            size = -(-extent // count) if node.target in _CHUNKS else count
            sizes = [min(size, extent - begin) for begin in range(0, extent, size)]
        begins = [sum(sizes[:i]) for i in range(len(sizes))]
        x = self.value(node, of)
        self.parts[node] = [(x, dim, begin, begin + size) for begin, size in zip(begins, sizes, strict=True)]

    def call_module(self, node: Any) -> None:
        owner = self.tracer.root.get_submodule(node.target)
        if isinstance(owner, _T.GLU):
            self.gated(node, node.args[0], owner.dim)
            return
        if any(each is owner for each in self.owners.values()) and list(owner.parameters()):
            raise UsageError(f"from_torch: {node.target} is called twice; layers here do not share weights")
        states: list[Any] = [*node.args[1:], *node.kwargs.values()]
        if len(states) == 1 and isinstance(states[0], (tuple, list)):  # the two of an LSTM
            states = list(states[0])
        if not node.args or (states and not (isinstance(owner, _T.RNNBase) and all(each in self.zeros for each in states))):
            raise self.refuse(node, f"{len(node.args) + len(node.kwargs)} arguments", "one")
        self.owners[id(self.put_module(node, owner, node.target, node.args[0]))] = owner
        if self.tracer.recurrent(node) is not None:
            self.states[node] = None  # what it gives is a pair

    def item(self, node: Any) -> None:
        """x[...]: the parts of a recurrent module's answer, a timestep, or an extent."""
        of, index = node.args
        if of in self.sizes:  # x.size() and x.shape
            x = of.args[0]
            if index == 0:
                self.sizes.add(node)
            elif x in self.shapes and (not isinstance(index, slice) or index.start):
                self.numbers[node] = self.shapes[x][index]
        elif of in self.parts and isinstance(index, int):
            self.part(node, *self.parts[of][index])
        elif isinstance(index, tuple) and index[0] == _ALL and of in self.values and self.one_slice(index):
            at = self.one_slice(index)
            self.part(node, self.values[of], at, index[at].start or 0, index[at].stop)
        elif index == 0 and of in self.values and of.target in _LARGEST:
            self.values[node] = self.values[of]
        elif self.tracer.recurrent(of) is not None:
            if index == 0:
                self.values[node] = self.values[of]
            else:
                module = self.tracer.recurrent(of)
                # An LSTM's state is a pair, of which the first is the one that the others have.
                self.states[node] = (of, "pair" if isinstance(module, torch.nn.LSTM) else "state")
        elif of in self.states and self.states[of][1] == "pair":
            self.states[node] = (self.states[of][0], "state" if index == 0 else "cell")
        elif of in self.states and isinstance(index, int):
            self.last_state(node, of, index)
        elif isinstance(index, tuple) and len(index) in (2, 3) and index[0] == _ALL and isinstance(index[1], int) and \
                index[2:] in ((), (_ALL,)) and self.rank(of) in (2, None):
            self.put(node, nn.Select(index[1]), self.value(node, of))
        else:
            raise self.refuse(node, f"the index {index!r}", "x[:, t] of a sequence, or the last state of the last layer")

    @staticmethod
    def one_slice(index: tuple[Any, ...]) -> int:
        """The axis of which x[:, 2:5] takes some positions from 0 on; 0 if it takes something else."""
        axes = [i for i, each in enumerate(index) if each != _ALL]
        each = index[axes[0]] if len(axes) == 1 else None
        plain = isinstance(each, slice) and each.step in (None, 1) and all(
            end is None or (isinstance(end, int) and end >= 0) for end in (each.start, each.stop))
        return axes[0] if plain else 0

    def last_state(self, node: Any, of: Any, index: int = -1) -> None:
        call, what = self.states[of]
        module = self.tracer.recurrent(call)
        directions = 2 if module.bidirectional else 1
        index -= directions * module.num_layers if index >= 0 else 0
        if what != "state" or index < -directions:
            raise self.refuse(node, "the state of a cell" if what != "state" else "the state of a layer before the last",
                              "the hidden state of the last layer")
        if not module.bidirectional:
            self.put(node, nn.Select(-1), self.values[call])
            return
        # The second direction ends at the first timestep, and its features follow those of the first.
        backward = index == -1
        timestep = self.put(node, nn.Select(0 if backward else -1), self.values[call])
        self.put(node, nn.Slice(0, backward * module.hidden_size, (1 + backward) * module.hidden_size), timestep)

    def is_one_state(self, state: Any) -> bool:
        module = self.tracer.recurrent(self.states[state][0])
        return module.num_layers == 1 and not module.bidirectional

    def squeezed(self, node: Any) -> None:
        """x.squeeze(-1) and x.unsqueeze(1): the numbers of a sample in another shape."""
        x = self.value(node, node.args[0])
        shape = self.shapes.get(node)
        if self.rank(node.args[0]) == 1 and node.target in ("squeeze", torch.squeeze):
            self.values[node] = x  # a row of one number is that number
        elif shape is not None and shape[0] == 2 and len(shape) > 1:
            self.put(node, nn.Flatten() if len(shape) == 2 else nn.Reshape(*shape[1:]), x)
        else:
            raise self.refuse(node, "a shape that is not known", "input_shape, and the samples' axis in its place")

    def largest(self, node: Any) -> None:
        """x.max(2)[0] and x.amax(2) over the timesteps of [samples, channels, timesteps]."""
        x, *rest = node.args
        axis = rest[0] if rest else node.kwargs.get("dim")
        if x not in self.shapes or len(self.shapes[x]) != 3 or axis not in (1, 2, -1) or node.kwargs.get("keepdim", False):
            raise self.refuse(node, "a maximum of something else", "one over the timesteps of a sequence (give input_shape)")
        value = self.value(node, x)
        if axis == 1:
            value = self.put(node, nn.Transpose(1, 0), value)
        self.put(node, nn.Flatten(), self.put(node, nn.MaxPool1d(self.shapes[x][axis]), value))

    def reshaped(self, node: Any) -> None:
        """x.view(len(x), -1) and the like: the first extent is the samples'."""
        of, first, *extents = node.args
        if isinstance(first, tuple):
            first, *extents = first
        samples = first in self.sizes or (first == -1 and all(isinstance(each, int) and each > 0 for each in extents))
        if not samples or not extents or not all(isinstance(each, int) for each in extents) or \
                self.shapes.get(node, (2,))[0] != 2:
            raise self.refuse(node, "extents that are not those of samples", "x.view(x.size(0), ...) or x.view(-1, n)")
        self.put(node, nn.Flatten() if len(extents) == 1 else nn.Reshape(*extents), self.value(node, of))

    def swapped(self, node: Any) -> None:
        """x.transpose(1, 2) and x.permute(0, 2, 1)."""
        of, *axes = node.args
        axes = list(axes[0]) if axes and isinstance(axes[0], (tuple, list)) else axes
        rank = len(axes) - 1 if node.target in (torch.permute, "permute") else self.rank(of)
        if rank is None or not axes:
            raise self.refuse(node, "axes of samples of unknown shape", "input_shape, or permute() with every axis")
        axes = [axis % (rank + 1) for axis in axes]
        if node.target not in (torch.permute, "permute"):
            order = list(range(rank + 1))
            order[axes[0]], order[axes[1]] = axes[1], axes[0]
            axes = order
        if axes[0] != 0:
            raise self.refuse(node, f"the axes {axes}", "the samples' axis in its place")
        self.put(node, nn.Transpose(*(axis - 1 for axis in axes[1:])), self.value(node, of))

    def averaged(self, node: Any) -> None:
        """x.mean(1) of a sequence, x.mean((2, 3)) of an image."""
        of, *rest = node.args
        dims = rest[0] if rest else node.kwargs.get("dim")
        rank = self.rank(of)
        if dims is None or rank is None or node.kwargs.get("keepdim", False) or len(rest) > 1:
            raise self.refuse(node, f"a mean over {dims!r}", "one over known dimensions of a sample (give input_shape)")
        axes = {axis % (rank + 1) for axis in (dims if isinstance(dims, (tuple, list)) else (dims,))}
        x = self.value(node, of)
        if axes == {1} and rank == 2:
            x = self.put(node, nn.Transpose(1, 0), x)
        elif axes != set(range(2, rank + 1)) or rank not in (2, 3):
            raise self.refuse(node, f"a mean over {dims!r}", "the timesteps of a sequence or the pixels of an image")
        self.put(node, nn.GlobalAvgPool(), x)

    def call(self, node: Any) -> None:
        """A function or method between modules."""
        known: Any = map_arg((node.args, node.kwargs), lambda each: self.numbers.get(each, each))
        node.args, node.kwargs = known
        target, keywords = node.target, node.kwargs
        if target in (torch.zeros, "new_zeros") or (target is getattr and node.args[1] in ("device", "dtype")) or \
                (isinstance(target, str) and node.args[0] in self.zeros):
            self.zeros.add(node)
            return None
        if target in _ARITHMETIC and all(isinstance(each, int) for each in node.args):
            self.numbers[node] = node.target(*node.args)
            return None
        if target == "size" and len(node.args) == 2 and node.args[1] != 0:
            if node.args[0] in self.shapes:
                self.numbers[node] = self.shapes[node.args[0]][node.args[1]]
            return None
        if target is operator.getitem:
            return self.item(node)
        if (target == "size" and node.args[1:] in ((), (0,))) or (target is getattr and node.args[1] == "shape"):
            self.sizes.add(node)
            return None
        if target in _SUMS + _PRODUCTS and not set(keywords) - {"other"}:
            inputs = [self.value(node, each) for each in (*node.args, *keywords.values())]
            self.put(node, nn.Add() if target in _SUMS else nn.Multiply(), *inputs)
            return None
        if target in (torch.cat, torch.concat):
            dim = keywords.get("dim", node.args[1] if len(node.args) > 1 else 0)
            if dim == 0:
                raise self.refuse(node, "dim=0", "one of a sample")
            inputs = [self.value(node, each) for each in node.args[0]]
            self.put(node, nn.Concat(dim - 1 if dim > 0 else dim), *inputs)
            return None
        if target in ("view", "reshape", torch.reshape):
            return self.reshaped(node)
        if target in ("transpose", torch.transpose, "permute", torch.permute):
            return self.swapped(node)
        if target in _CHUNKS + _SPLITS:
            return self.divided(node)
        if target is _F.glu:
            return self.gated(node, node.args[0], keywords.get("dim", (*node.args, -1)[1]))
        if target in _MEANS:
            return self.averaged(node)
        if target in _LARGEST:
            return self.largest(node)
        if target is getattr and node.args[1] == "values" and node.args[0].target in _LARGEST:
            self.values[node] = self.values[node.args[0]]
            return None
        if target in _SQUEEZES and node.args[0] in self.values:
            return self.squeezed(node)
        if target == "squeeze" and node.args[0] in self.states and node.args[1:] == (0,) and \
                self.is_one_state(node.args[0]):
            return self.last_state(node, node.args[0])
        if target == "contiguous":
            self.values[node] = self.value(node, node.args[0])
            return None
        if target in _CALLS:
            return self.call_like_module(node)
        raise self.refuse(node, "a call that has no layer here",
                          "modules, sums, products, torch.cat, torch.flatten(x, 1), pools or an activation")

    def call_like_module(self, node: Any) -> None:
        kind, keywords = _CALLS[node.target], {k: v for k, v in node.kwargs.items() if k not in _NOT_OF_MODULES}
        if kind is _T.Upsample and not any(keywords.get(each) for each in _NOT_OF_UPSAMPLE):
            keywords = {k: v for k, v in keywords.items() if k not in _NOT_OF_UPSAMPLE}
        x, *rest = node.args
        if any(isinstance(each, Node) for each in (*rest, *keywords.values())):
            raise self.refuse(node, "an extent that is not known", "numbers, or input_shape, which determines them")
        if kind is _T.Flatten and not rest and "start_dim" not in keywords:
            rest = [0]  # the function begins with the samples, the module after them
        make: Any = kind
        self.put_module(node, make(*(rest[:1] if kind is _T.Dropout else rest), **keywords), node.format_node(), x)

    def in_loss(self, node: Any, loss: str | None) -> bool:
        """As the function of this name, for a node."""
        if not isinstance(node, Node):
            return False
        if node.op == "call_module":
            return in_loss(self.tracer.root.get_submodule(str(node.target)), loss)
        if loss == "binary-cross-entropy":
            return _CALLS.get(node.target) is _T.Sigmoid
        return loss in (None, "cross-entropy") and node.target in _SOFTMAXES and \
            (*node.args[1:], *node.kwargs.values())[:1] in ((1,), (-1,))

    def end(self, last: Any) -> nn.Graph:
        """The graph up to the node that has the outputs."""
        if not isinstance(last, Node) or last not in self.values:
            raise UsageError(f"from_torch: {self.name} gives {last!r}, expected one tensor")
        return nn.Graph(self.input, self.values[last])


def in_loss(module: Any, loss: str | None) -> bool:
    """Whether a loss has in it what a module at the end does: the softmax of a row, or its logarithm, or the sigmoid."""
    if loss == "binary-cross-entropy":
        return isinstance(module, _T.Sigmoid)
    return loss in (None, "cross-entropy") and isinstance(module, (_T.Softmax, _T.LogSoftmax)) and module.dim in (1, -1)


def traced(module: Any, input_shape: Sequence[int] | None, loss: str | None) -> tuple[nn.Graph, dict[int, Any]]:
    """The graph of a module, and the modules by the numbers of its layers."""
    trace = _Trace(module, input_shape)
    network: nn.Graph | None = None
    started = False
    given = next(node.args[0] for node in trace.graph.nodes if node.op == "output")
    ending = given if trace.in_loss(given, loss) else None
    for node in trace.graph.nodes:
        if node.op == "placeholder":
            if started:
                raise UsageError(f"from_torch: {trace.name} takes several inputs, expected one")
            started = True
            trace.values[node] = trace.input
        elif node is ending:
            continue
        elif node.op == "call_module":
            trace.call_module(node)
        elif node.op in ("call_function", "call_method"):
            trace.call(node)
        elif node.op == "output":
            network = trace.end(given if ending is None else ending.args[0])
        else:
            raise UsageError(f"from_torch: {node.format_node()}: got a tensor of the module's own, expected modules")
    assert network is not None  # a graph of torch.fx ends with its output
    return network, {i: trace.owners[id(layer)] for i, layer in enumerate(network.layers) if id(layer) in trace.owners}
