"""Converts PyTorch's networks to ours, and back. Only `from_torch` and `to_torch` import this."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node, Tracer  # pyright: ignore[reportPrivateImportUsage]

from . import nn
from ._errors import UsageError
from ._torch import layer_of, module_of

if TYPE_CHECKING:
    from ._model import Model

_F = torch.nn.functional
# Function calls between modules, with their layers.
_CALLS: dict[Any, Callable[[], nn.Layer]] = {
    torch.relu: nn.ReLU, _F.relu: nn.ReLU, "relu": nn.ReLU, torch.tanh: nn.Tanh, "tanh": nn.Tanh,
    torch.sigmoid: nn.Sigmoid, "sigmoid": nn.Sigmoid, _F.gelu: nn.GELU, _F.silu: nn.SiLU, _F.softplus: nn.Softplus,
    _F.hardswish: nn.Hardswish,
}
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_FLATTENS = (torch.flatten, "flatten")


def _flat(module: Any) -> list[Any]:
    """Returns the modules of a Sequential, with nested Sequentials flattened."""
    if not isinstance(module, torch.nn.Sequential):
        return [module]
    return [each for child in module for each in _flat(child)]


def _joined(node: Any, layer: nn.Layer, values: Mapping[Any, nn.Node], inputs: Sequence[Any]) -> nn.Node:
    nodes = []
    for each in inputs:
        if each not in values:
            raise UsageError(f"from_torch: {node.format_node()}: got {each!r}, expected what a module gives")
        nodes.append(values[each])
    return layer(*nodes)


def _called(node: Any, values: Mapping[Any, nn.Node]) -> nn.Node:
    """Returns the node of a function or method call between modules."""
    arguments = [each for each in node.args if isinstance(each, Node)]
    target = node.target
    if target in _SUMS and not set(node.kwargs) - {"other"}:
        return _joined(node, nn.Add(), values, [*node.args, *node.kwargs.values()])
    if target in _PRODUCTS and not set(node.kwargs) - {"other"}:
        return _joined(node, nn.Multiply(), values, [*node.args, *node.kwargs.values()])
    if target in (torch.cat, torch.concat):
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
        if dim == 0:
            raise UsageError(f"from_torch: {node.format_node()}: got dim=0, expected one of a sample")
        return _joined(node, nn.Concat(dim - 1 if dim > 0 else dim), values, node.args[0])
    if target in _FLATTENS:
        start = node.kwargs.get("start_dim", node.args[1] if len(node.args) > 1 else 0)
        if start == 1 and len(node.args) < 3:
            return _joined(node, nn.Flatten(), values, arguments)
    if target in _CALLS and (not set(node.kwargs) - {"inplace"}) and len(node.args) == 1:
        return _joined(node, _CALLS[target](), values, arguments)
    raise UsageError(f"from_torch: {node.format_node()}: got a call that has no layer here, expected modules, sums, "
                     "products, torch.cat, torch.flatten(x, 1) or an activation")


def _traced(module: Any) -> tuple[nn.Graph, dict[int, Any]]:
    """Returns the graph of a module, and the modules by the numbers of its layers."""
    tracer = Tracer()
    try:
        graph = tracer.trace(module)
    except Exception as error:  # torch.fx raises whatever the module's own code does
        raise UsageError(f"from_torch: torch.fx cannot trace {type(module).__name__}: {error}") from error
    values: dict[Any, nn.Node] = {}
    owners: dict[int, Any] = {}  # by the identity of the layer
    start: nn.Node | None = None
    network: nn.Graph | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if start is not None:
                raise UsageError(f"from_torch: {type(module).__name__} takes several inputs, expected one")
            values[node] = start = nn.Input()
        elif node.op == "call_module":
            owner = tracer.root.get_submodule(node.target)
            layer = layer_of(owner, node.target)
            if any(each is owner for each in owners.values()) and list(owner.parameters()):
                raise UsageError(f"from_torch: {node.target} is called twice; layers here do not share weights")
            owners[id(layer)] = owner
            values[node] = _joined(node, layer, values, node.args)
        elif node.op in ("call_function", "call_method"):
            values[node] = _called(node, values)
        elif node.op == "output":
            if start is None or node.args[0] not in values:
                raise UsageError(f"from_torch: {type(module).__name__} gives {node.args[0]!r}, expected one tensor")
            network = nn.Graph(start, values[node.args[0]])
        else:
            raise UsageError(f"from_torch: {node.format_node()}: got a tensor of the module's own, expected modules")
    assert network is not None  # a graph of torch.fx ends with its output
    return network, {i: owners[id(layer)] for i, layer in enumerate(network.layers) if id(layer) in owners}


def from_torch(module: Any, input_shape: Sequence[int] | None, share: bool, keywords: Mapping[str, Any]) -> Model:
    from ._model import Model

    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {type(module).__name__}, expected a torch.nn.Module")
    network: nn.Sequential | nn.Graph
    if isinstance(module, torch.nn.Sequential) or type(module).__module__.startswith("torch.nn."):
        modules = _flat(module)
        network = nn.Sequential(*(layer_of(each, i) for i, each in enumerate(modules)))
        owners = dict(enumerate(modules))
    else:
        network, owners = _traced(module)
    if input_shape is None and network.input_shape() is None:
        raise UsageError("from_torch: input_shape: got None, expected the shape of one sample, as in "
                         "input_shape=(1, 28, 28)")
    model = Model(network, input_shape=input_shape, **{"scale": "raw", **keywords})
    state = {f"{i}.{name}": value.detach().cpu().contiguous()
             for i, each in owners.items() for name, value in each.state_dict().items()}
    model.load_state_dict(state)
    if share:
        _share(model, owners)
    return model


def _share(model: Model, owners: Mapping[int, Any]) -> None:
    """Makes the tensors of PyTorch's modules views of the model's weights."""
    shared: dict[str, Any] = {}
    for name, view in model.state_dict(copy=False).items():
        place, key = name.split(".", 1)
        owner = owners[int(place)]
        old = owner._parameters.get(key)
        tensor = torch.from_numpy(view)
        for other in (old, owner._buffers.get(key)):
            if other is not None and (other.device.type != "cpu" or other.dtype != tensor.dtype):
                raise UsageError(f"{name}: got {other.dtype} on {other.device}, expected {tensor.dtype} on the CPU: "
                                 "shared weights lie in host memory")
        if old is not None:
            old.data = tensor
            shared[name] = old
        else:
            owner._buffers[key] = shared[name] = tensor
    model._shared = shared
    model._version = sum(each._version for each in shared.values())


class _Graph(torch.nn.Module):  # type: ignore[misc]
    """The layers of a net that branches; child i has the weights of layer i."""

    def __init__(self, tables: list[dict[str, Any]], modules: dict[int, Any]) -> None:
        super().__init__()
        for i, module in modules.items():
            self.add_module(str(i), module)
        self._tables = tables

    def forward(self, x: Any) -> Any:
        named = {"input": x}
        for i, table in enumerate(self._tables):
            inputs = [named[name] for name in table["inputs"]] if "inputs" in table else [x]
            kind = table["type"]
            if kind == "add":
                x = sum(inputs[1:], inputs[0])
            elif kind == "multiply":
                x = inputs[0]
                for each in inputs[1:]:
                    x = x * each
            elif kind == "mean":
                x = sum(inputs[1:], inputs[0]) / len(inputs)
            elif kind == "concat":
                axis = table.get("axis", 0)
                x = torch.cat(inputs, axis + 1 if axis >= 0 else axis)
            else:
                x = inputs[0].flatten(1) if kind == "linear" else inputs[0]
                x = getattr(self, str(i))(x)
            if "name" in table:
                named[table["name"]] = x
        return x


def to_torch(model: Model, share: bool) -> Any:
    state = model.state_dict()
    layers = model.config["model"]["layers"]
    branches = any("inputs" in layer for layer in layers)
    modules: dict[int, Any] = {}
    images = len(model.input_shape or ()) > 1
    for i, layer in enumerate(layers):
        kind = layer["type"]
        if branches and kind in ("add", "multiply", "mean", "concat"):
            continue
        own = {name.split(".", 1)[1]: value.shape for name, value in state.items() if name.startswith(f"{i}.")}
        modules[i] = module_of(layer, own, len(own.get("weight", ())) == 4 if branches else images)
        # Our Linear flattens by itself; in a Sequential of PyTorch a Flatten has to.
        if kind == "linear" and images and not branches:
            raise UsageError(f"to_torch: layer {i} (linear) flattens its input; put a Flatten before it")
        if kind in ("flatten", "global_avgpool"):
            images = False
    result: Any = _Graph(layers, modules) if branches else torch.nn.Sequential(*modules.values())
    result.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    if share:
        _share(model, modules)
    return result.eval()
