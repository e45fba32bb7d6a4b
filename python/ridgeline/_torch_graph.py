"""Converts PyTorch's networks to ours, and back. Only `from_torch` and `to_torch` import this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import nn
from ._errors import UsageError
from ._torch import layer_of, module_of, needs_trace, rank_after
from ._torch_modules import Residual
from ._torch_trace import in_loss, traced

if TYPE_CHECKING:
    from ._model import Model
    from ._network import Network


def _flat(module: Any) -> list[Any]:
    """Returns the modules of a Sequential, with nested Sequentials flattened."""
    if not isinstance(module, torch.nn.Sequential):
        return [module]
    return [each for child in module for each in _flat(child)]


def from_torch(module: Any, input_shape: Sequence[int] | None, share: bool, keywords: Mapping[str, Any]) -> Model:
    from ._model import Model

    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {type(module).__name__}, expected a torch.nn.Module")
    module = getattr(module, "_orig_mod", module)  # of what torch.compile gives
    network: nn.Sequential | nn.Graph
    loss = keywords.get("loss")
    loss = loss.get("type") if isinstance(loss, Mapping) else loss
    modules = _flat(module)
    # What an nn.Sequential has inside may be anything, and torch.fx sees what that does.
    if all(type(each).__module__.startswith("torch.nn.") and not needs_trace(each) for each in modules):
        if len(modules) > 1 and in_loss(modules[-1], loss):
            modules.pop()
        layers: list[nn.Layer] = []
        rank = None if input_shape is None else len(input_shape)
        for i, each in enumerate(modules):
            layers.append(layer_of(each, i, rank))
            rank = rank_after(layers[-1].config(), rank)
        network = nn.Sequential(*layers)
        owners = dict(enumerate(modules))
    else:
        network, owners = traced(module, input_shape, loss)
    if input_shape is None and network.input_shape() is None:
        raise UsageError("from_torch: input_shape: got None, expected the shape of one sample, as in "
                         "input_shape=(1, 28, 28)")
    model = Model(network, input_shape=input_shape, **{"scale": "raw", "freeze": _frozen(owners), **keywords})
    state = {f"{i}.{name}": _wide(value.detach().cpu()).contiguous()
             for i, each in owners.items() for name, value in each.state_dict().items()}
    model.load_state_dict(state)
    if share:
        _share(model, owners)
    return model


def _frozen(owners: Mapping[int, Any]) -> list[int] | None:
    """The layers whose weights need no gradient; None if no layer is frozen."""
    needs = {i: {weight.requires_grad for weight in owner.parameters()} for i, owner in owners.items()}
    for i, each in needs.items():
        if len(each) == 2:
            raise UsageError(f"from_torch: {owners[i]!r}: got weights with and without requires_grad, expected all or none")
    return [i for i, each in needs.items() if each == {False}] or None


def _wide(value: Any) -> Any:
    """Half types as float32: a model keeps its weights in that."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _share(model: Network, owners: Mapping[int, Any]) -> None:
    """Makes the tensors of PyTorch's modules views of the model's weights."""
    shared: dict[str, Any] = {}
    for name, view in model.state_dict(copy=False).items():
        place, *inside, key = name.split(".")
        owner = owners[int(place)].get_submodule(".".join(inside))
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
                x = getattr(self, str(i))(inputs[0])
            if "name" in table:
                named[table["name"]] = x
        return x


_JOINS = ("add", "multiply", "mean", "concat")


def _modules(tables: Sequence[Mapping[str, Any]], shapes: Mapping[str, tuple[int, ...]], prefix: str,
             rank: int | None) -> tuple[dict[int, Any], int | None]:
    """The modules of some layers by their numbers, and the dimensions of a sample after the last."""
    modules: dict[int, Any] = {}
    ranks: dict[str, int | None] = {"input": rank}
    for i, table in enumerate(tables):
        if "inputs" in table:
            rank = ranks[table["inputs"][0]]
        place = f"{prefix}{i}."
        if "type" not in table or "weights_of" in table:
            raise UsageError(f"to_torch: layer {place[:-1]} repeats layers or shares weights, expected one of its own")
        if table["type"] == "residual":
            modules[i], rank = _residual(table, shapes, place, rank)
        elif table["type"] not in _JOINS:
            own = {name[len(place):]: shape for name, shape in shapes.items() if name.startswith(place)}
            modules[i] = module_of(table, own, rank)
            rank = rank_after(table, rank)
        if "name" in table:
            ranks[table["name"]] = rank
    return modules, rank


def _residual(table: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], place: str,
              rank: int | None) -> tuple[Any, int | None]:
    inside, shortcut = table["layers"], table.get("shortcut", [])
    if "repeat" in table or any("inputs" in each for each in (*inside, *shortcut)):
        raise UsageError(f"to_torch: layer {place[:-1]} (residual) repeats or branches inside, expected a chain of layers")
    modules, after = _modules(inside, shapes, place, rank)
    beside, _ = _modules(shortcut, shapes, place + "shortcut.", rank)
    return Residual(list(modules.values()), list(beside.values())), after


def to_torch(model: Network, share: bool) -> Any:
    state = model.state_dict()
    tables = model.config["model"]["layers"]
    shapes = {name: value.shape for name, value in state.items()}
    modules, _ = _modules(tables, shapes, "", len(model.input_shape or ()))
    branches = any("inputs" in table for table in tables)
    result: Any = _Graph(tables, modules) if branches else torch.nn.Sequential(*modules.values())
    result.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    if share:
        _share(model, modules)
    return result.eval()
