"""What a module of PyTorch computes, traced by torch.fx, as a graph of our layers."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node, Proxy, Tracer  # pyright: ignore[reportPrivateImportUsage]

from . import nn
from ._errors import UsageError
from ._torch import layer_of, rank_after

_F = torch.nn.functional
_T = torch.nn
# Calls between modules, by the module that does the same with the same arguments.
_CALLS: dict[Any, Any] = {
    torch.relu: _T.ReLU, _F.relu: _T.ReLU, "relu": _T.ReLU, torch.tanh: _T.Tanh, _F.tanh: _T.Tanh, "tanh": _T.Tanh,
    torch.sigmoid: _T.Sigmoid, _F.sigmoid: _T.Sigmoid, "sigmoid": _T.Sigmoid, _F.gelu: _T.GELU, _F.silu: _T.SiLU,
    _F.softplus: _T.Softplus, _F.hardswish: _T.Hardswish, _F.leaky_relu: _T.LeakyReLU, _F.elu: _T.ELU,
    _F.dropout: _T.Dropout, _F.max_pool1d: _T.MaxPool1d, _F.max_pool2d: _T.MaxPool2d, _F.avg_pool1d: _T.AvgPool1d,
    _F.avg_pool2d: _T.AvgPool2d, _F.adaptive_avg_pool1d: _T.AdaptiveAvgPool1d,
    _F.adaptive_avg_pool2d: _T.AdaptiveAvgPool2d, torch.flatten: _T.Flatten, "flatten": _T.Flatten,
}
_NOT_OF_MODULES = ("inplace", "training")  # keywords of calls that change nothing of what we compute
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_MEANS = (torch.mean, "mean")
_SOFTMAXES = (torch.softmax, _F.softmax, "softmax", torch.log_softmax, _F.log_softmax, "log_softmax")
_ALL = slice(None, None, None)


class _PairProxy(Proxy):  # type: ignore[misc]
    """Lets `y, state = lstm(x)` be traced; torch.fx reads the caller's bytecode for it, which fails in some versions."""

    def __iter__(self) -> Iterator[Any]:
        proxy: Any = self
        return iter((proxy[0], proxy[1])) if proxy.tracer.gives_pair(self.node) else iter(super().__iter__())


class _Tracer(Tracer):  # type: ignore[misc]
    def proxy(self, node: Any) -> Any:
        return _PairProxy(node, self)

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


class _Trace:
    """The layers of a traced module, node by node."""

    def __init__(self, module: Any, input_shape: Sequence[int] | None) -> None:
        self.name = type(module).__name__
        self.tracer = _Tracer()
        try:
            self.graph = self.tracer.trace(module)
        except Exception as error:  # torch.fx raises whatever the module's own code does
            raise UsageError(f"from_torch: torch.fx cannot trace {self.name}: {error}") from error
        self.values: dict[Any, nn.Node] = {}
        self.ranks: dict[int, int | None] = {}  # dimensions of a sample, by the identity of a value, where known
        self.states: dict[Any, Any] = {}  # the last states of recurrent modules, by the calls of these
        self.sizes: set[Any] = set()  # nodes that are numbers of samples
        self.owners: dict[int, Any] = {}  # PyTorch's modules by the identity of our layers
        self.input = nn.Input()
        self.ranks[id(self.input)] = None if input_shape is None else len(input_shape)

    def refuse(self, node: Any, got: str, expected: str) -> UsageError:
        return UsageError(f"from_torch: {node.format_node()}: got {got}, expected {expected}")

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
        layer = layer_of(module, place, self.rank(x))
        self.put(node, layer, self.value(node, x))
        return layer

    def call_module(self, node: Any) -> None:
        owner = self.tracer.root.get_submodule(node.target)
        if any(each is owner for each in self.owners.values()) and list(owner.parameters()):
            raise UsageError(f"from_torch: {node.target} is called twice; layers here do not share weights")
        if len(node.args) != 1 or node.kwargs:
            raise self.refuse(node, f"{len(node.args) + len(node.kwargs)} arguments", "one")
        self.owners[id(self.put_module(node, owner, node.target, node.args[0]))] = owner
        if self.tracer.recurrent(node) is not None:
            self.states[node] = None  # what it gives is a pair

    def item(self, node: Any) -> None:
        """x[...]: the parts of a recurrent module's answer, a timestep, or an extent."""
        of, index = node.args
        if of in self.sizes:
            self.sizes.add(node)
        elif self.tracer.recurrent(of) is not None:
            if index == 0:
                self.values[node] = self.values[of]
            else:
                module = self.tracer.recurrent(of)
                # An LSTM's state is a pair, of which the first is the one that the others have.
                self.states[node] = (of, "pair" if isinstance(module, torch.nn.LSTM) else "state")
        elif of in self.states and self.states[of][1] == "pair":
            self.states[node] = (self.states[of][0], "state" if index == 0 else "cell")
        elif of in self.states and index == -1:
            self.last_state(node, of)
        elif isinstance(index, tuple) and len(index) in (2, 3) and index[0] == _ALL and isinstance(index[1], int) and \
                index[2:] in ((), (_ALL,)) and self.rank(of) in (2, None):
            self.put(node, nn.Select(index[1]), self.value(node, of))
        else:
            raise self.refuse(node, f"the index {index!r}", "x[:, t] of a sequence, or the last state of the last layer")

    def last_state(self, node: Any, of: Any) -> None:
        call, what = self.states[of]
        module = self.tracer.recurrent(call)
        if what != "state" or module.bidirectional:
            raise self.refuse(node, "the state of a cell" if what != "state" else "a state of both directions",
                              "the hidden state of one direction")
        self.put(node, nn.Select(-1), self.values[call])

    def reshaped(self, node: Any) -> None:
        """x.view(len(x), -1) and the like: the first extent is the samples'."""
        of, first, *extents = node.args
        if isinstance(first, tuple):
            first, *extents = first
        samples = first in self.sizes or (first == -1 and all(isinstance(each, int) and each > 0 for each in extents))
        if not samples or not extents or not all(isinstance(each, int) for each in extents):
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
        target, keywords = node.target, node.kwargs
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
        if target in _MEANS:
            return self.averaged(node)
        if target == "squeeze" and node.args[0] in self.states and node.args[1:] == (0,) and \
                self.tracer.recurrent(self.states[node.args[0]][0]).num_layers == 1:
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
        x, *rest = node.args
        if kind is _T.Flatten and not rest and "start_dim" not in keywords:
            rest = [0]  # the function begins with the samples, the module after them
        self.put_module(node, kind(*(rest[:1] if kind is _T.Dropout else rest), **keywords), node.format_node(), x)

    def gives_softmax(self, node: Any) -> bool:
        if not isinstance(node, Node):
            return False
        if node.op == "call_module":
            return is_softmax(self.tracer.root.get_submodule(str(node.target)))
        return node.target in _SOFTMAXES and (*node.args[1:], *node.kwargs.values())[:1] in ((1,), (-1,))

    def end(self, last: Any) -> nn.Graph:
        """The graph up to the node that has the outputs."""
        if not isinstance(last, Node) or last not in self.values:
            raise UsageError(f"from_torch: {self.name} gives {last!r}, expected one tensor")
        return nn.Graph(self.input, self.values[last])


def is_softmax(module: Any) -> bool:
    """Whether a module gives probabilities, or their logarithms, over the last dimension of a row."""
    return isinstance(module, (torch.nn.Softmax, torch.nn.LogSoftmax)) and module.dim in (1, -1)


def traced(module: Any, input_shape: Sequence[int] | None, classifier: bool) -> tuple[nn.Graph, dict[int, Any]]:
    """The graph of a module, and the modules by the numbers of its layers."""
    trace = _Trace(module, input_shape)
    network: nn.Graph | None = None
    started = False
    given = next(node.args[0] for node in trace.graph.nodes if node.op == "output")
    softmax = given if classifier and trace.gives_softmax(given) else None  # it is part of the loss
    for node in trace.graph.nodes:
        if node.op == "placeholder":
            if started:
                raise UsageError(f"from_torch: {trace.name} takes several inputs, expected one")
            started = True
            trace.values[node] = trace.input
        elif node is softmax:
            continue
        elif node.op == "call_module":
            trace.call_module(node)
        elif node.op in ("call_function", "call_method"):
            trace.call(node)
        elif node.op == "output":
            network = trace.end(given if softmax is None else softmax.args[0])
        else:
            raise UsageError(f"from_torch: {node.format_node()}: got a tensor of the module's own, expected modules")
    assert network is not None  # a graph of torch.fx ends with its output
    return network, {i: trace.owners[id(layer)] for i, layer in enumerate(network.layers) if id(layer) in trace.owners}
