"""Converts single PyTorch modules to our layers. `_torch_graph.py` converts whole networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import nn
from ._errors import UsageError


def _one(value: Any) -> Any:
    """Returns (3, 3) as 3: PyTorch's modules store tuples whatever they were given."""
    if isinstance(value, (tuple, list)):
        return value[0] if all(each == value[0] for each in value) else tuple(value)
    return value


def _plain(module: Any, **wanted: Any) -> None:
    """Refuses a module with settings that our layer does not have."""
    for name, value in wanted.items():
        if getattr(module, name, value) != value:
            raise UsageError(f"from_torch: {module!r}: got {name}={getattr(module, name)!r}, expected {value!r}")


def _conv(kind: Any, m: Any) -> nn.Layer:
    _plain(m, padding_mode="zeros", transposed=False)
    if isinstance(m.padding, str):
        raise UsageError(f"from_torch: {m!r}: got padding={m.padding!r}, expected numbers")
    layer: nn.Layer = kind(m.in_channels, m.out_channels, _one(m.kernel_size), _one(m.stride), _one(m.padding),
                           _one(m.dilation), m.groups, m.bias is not None)
    return layer


def _max_pool(kind: Any, m: Any) -> nn.Layer:
    _plain(m, dilation=1, ceil_mode=False, return_indices=False)
    layer: nn.Layer = kind(_one(m.kernel_size), _one(m.stride), _one(m.padding))
    return layer


def _avg_pool(kind: Any, m: Any) -> nn.Layer:
    _plain(m, ceil_mode=False, divisor_override=None)
    layer: nn.Layer = kind(_one(m.kernel_size), _one(m.stride), _one(m.padding), m.count_include_pad)
    return layer


def _gelu(m: Any) -> nn.Layer:
    _plain(m, approximate="none")
    return nn.GELU()


def _softplus(m: Any) -> nn.Layer:
    _plain(m, beta=1)
    return nn.Softplus()


def _batch_norm(m: Any) -> nn.Layer:
    _plain(m, track_running_stats=True)
    if m.momentum is None:
        raise UsageError(f"from_torch: {m!r}: got momentum=None, expected a number")
    return nn.BatchNorm(m.eps, m.momentum, m.affine)


def _global_pool(m: Any) -> nn.Layer:
    if m.output_size not in (1, (1, 1)):
        raise UsageError(f"from_torch: {m!r}: got output_size={m.output_size!r}, expected 1")
    return nn.GlobalAvgPool()


def _flatten(m: Any) -> nn.Layer:
    _plain(m, start_dim=1, end_dim=-1)
    return nn.Flatten()


_LAYERS: dict[str, Any] = {
    "Linear": lambda m: nn.Linear(m.in_features, m.out_features, m.bias is not None),
    "Conv1d": lambda m: _conv(nn.Conv1d, m),
    "Conv2d": lambda m: _conv(nn.Conv2d, m),
    "MaxPool1d": lambda m: _max_pool(nn.MaxPool1d, m),
    "MaxPool2d": lambda m: _max_pool(nn.MaxPool2d, m),
    "AvgPool1d": lambda m: _avg_pool(nn.AvgPool1d, m),
    "AvgPool2d": lambda m: _avg_pool(nn.AvgPool2d, m),
    "AdaptiveAvgPool2d": _global_pool,
    "Flatten": _flatten,
    "Identity": lambda m: nn.Dropout(0.0),
    "Dropout": lambda m: nn.Dropout(m.p),
    "ReLU": lambda m: nn.ReLU(),
    "Tanh": lambda m: nn.Tanh(),
    "Sigmoid": lambda m: nn.Sigmoid(),
    "GELU": _gelu,
    "SiLU": lambda m: nn.SiLU(),
    "Softplus": _softplus,
    "Hardswish": lambda m: nn.Hardswish(),
    "LeakyReLU": lambda m: nn.LeakyReLU(m.negative_slope),
    "ELU": lambda m: nn.ELU(m.alpha),
    "LayerNorm": lambda m: nn.LayerNorm(len(m.normalized_shape), m.eps, m.elementwise_affine),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "GroupNorm": lambda m: nn.GroupNorm(m.num_groups, m.eps, m.affine),
}


def layer_of(module: Any, place: int | str) -> nn.Layer:
    """Returns our layer for a module; `place` is its position."""
    make = _LAYERS.get(type(module).__name__)
    if make is None or not type(module).__module__.startswith("torch.nn."):
        raise UsageError(f"from_torch: module {place} is {type(module).__name__}; those known are {', '.join(_LAYERS)}")
    layer: nn.Layer = make(module)
    return layer


def module_of(layer: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], images: bool) -> Any:
    """Returns the PyTorch module of a layer's table.

    `shapes` are those of its weights; `images`: samples have more than one dimension where it stands.
    """
    import torch

    get = layer.get
    kind = layer["type"]
    bias = get("bias", True)
    if kind == "linear" and not get("per_step", False):
        return torch.nn.Linear(shapes["weight"][1], layer["out"], bias)
    if kind in ("conv1d", "conv2d"):
        groups = get("groups", 1)
        make = torch.nn.Conv1d if kind == "conv1d" else torch.nn.Conv2d
        return make(shapes["weight"][1] * groups, layer["out"], _one(layer["kernel"]), _one(get("stride", 1)),
                    _one(get("padding", 0)), _one(get("dilation", 1)), groups, bias)
    if kind in ("maxpool1d", "maxpool2d", "avgpool1d", "avgpool2d"):
        stride = get("stride", layer["kernel"])
        make = getattr(torch.nn, f"{'Max' if kind[0] == 'm' else 'Avg'}Pool{kind[-2:]}")
        more = {} if kind[0] == "m" else {"count_include_pad": get("count_include_pad", True)}
        return make(_one(layer["kernel"]), _one(stride), _one(get("padding", 0)), **more)
    plain = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "gelu": "GELU", "silu": "SiLU",
             "softplus": "Softplus", "hardswish": "Hardswish", "flatten": "Flatten"}
    if kind in plain:
        return getattr(torch.nn, plain[kind])()
    if kind == "batchnorm":
        make = torch.nn.BatchNorm2d if images else torch.nn.BatchNorm1d
        return make(shapes["running_mean"][0], get("eps", 1e-5), get("momentum", 0.1), get("affine", True))
    if kind == "global_avgpool":
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    if kind == "upsample":
        return torch.nn.Upsample(scale_factor=_one(layer["factor"]), mode=get("mode", "nearest"))
    if kind == "dropout":
        return torch.nn.Dropout(get("p", 0.5))
    if kind == "leaky_relu":
        return torch.nn.LeakyReLU(get("slope", 0.01))
    if kind == "elu":
        return torch.nn.ELU(get("alpha", 1.0))
    if kind == "layernorm" and get("affine", True):
        return torch.nn.LayerNorm(list(shapes["weight"]), get("eps", 1e-5))
    if kind == "groupnorm" and get("affine", True):
        return torch.nn.GroupNorm(layer["groups"], shapes["weight"][0], get("eps", 1e-5))
    raise UsageError(f"to_torch: layer {kind!r} has no module of PyTorch's that does the same")
