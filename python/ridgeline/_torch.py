"""Converts single PyTorch modules to our layers. `_torch_graph.py` converts whole networks."""

from __future__ import annotations

import warnings
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


# The end of a refusal: what else reads the module, without training it.
ELSEWHERE = "; for predictions alone, from_onnx reads more modules from the file of torch.onnx.export"


def _conv(kind: Any, m: Any) -> nn.Layer:
    _plain(m, padding_mode="zeros", transposed=False)
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


def _celu(m: Any) -> nn.Layer:
    _plain(m, alpha=1.0)
    return nn.ELU()


def _pad(m: Any) -> nn.Layer:
    return nn.Pad(tuple(m.padding), float(getattr(m, "value", 0.0)))


def _softplus(m: Any) -> nn.Layer:
    _plain(m, beta=1)
    return nn.Softplus()


def _batch_norm(m: Any) -> nn.Layer:
    _plain(m, track_running_stats=True)
    if m.momentum is None:
        raise UsageError(f"from_torch: {m!r}: got momentum=None, expected a number")
    return nn.BatchNorm1d(m.num_features, m.eps, m.momentum, m.affine)


def _global_pool(m: Any) -> nn.Layer:
    if m.output_size not in (1, (1, 1)):
        raise UsageError(f"from_torch: {m!r}: got output_size={m.output_size!r}, expected 1")
    return nn.GlobalAvgPool()


def _recurrent(kind: Any, m: Any) -> nn.Layer:
    _plain(m, batch_first=True, proj_size=0)
    more = {"nonlinearity": m.nonlinearity} if kind is nn.RNN else {}
    layer: nn.Layer = kind(m.input_size, m.hidden_size, m.num_layers, bias=m.bias, dropout=m.dropout,
                           bidirectional=m.bidirectional, **more)
    return layer


def _embedding(m: Any) -> nn.Layer:
    _plain(m, max_norm=None, scale_grad_by_freq=False)
    if m.padding_idx is not None:
        warnings.warn(f"from_torch: {m!r}: the vector of padding_idx is trained here as any other", stacklevel=2)
    return nn.Embedding(m.num_embeddings, m.embedding_dim)


def _upsample(m: Any) -> nn.Layer:
    _plain(m, size=None)
    if m.align_corners:
        raise UsageError(f"from_torch: {m!r}: got align_corners=True, expected False")
    if m.scale_factor is None or m.mode not in ("nearest", "bilinear") or any(
            each != int(each) for each in (m.scale_factor if isinstance(m.scale_factor, tuple) else (m.scale_factor,))):
        raise UsageError(f"from_torch: {m!r}: got scale_factor={m.scale_factor!r}, mode={m.mode!r}, expected whole "
                         "factors and nearest or bilinear")
    factor = _one(m.scale_factor)
    return nn.Upsample(tuple(map(int, factor)) if isinstance(factor, tuple) else int(factor), m.mode)


def _flatten(m: Any) -> nn.Layer:
    _plain(m, start_dim=1, end_dim=-1)
    return nn.Flatten()


def _unflatten(m: Any) -> nn.Layer:
    _plain(m, dim=1)
    return nn.Reshape(*m.unflattened_size)


_LAYERS: dict[str, Any] = {
    "Linear": lambda m: nn.Linear(m.in_features, m.out_features, m.bias is not None),
    "Conv1d": lambda m: _conv(nn.Conv1d, m),
    "Conv2d": lambda m: _conv(nn.Conv2d, m),
    "MaxPool1d": lambda m: _max_pool(nn.MaxPool1d, m),
    "MaxPool2d": lambda m: _max_pool(nn.MaxPool2d, m),
    "AvgPool1d": lambda m: _avg_pool(nn.AvgPool1d, m),
    "AvgPool2d": lambda m: _avg_pool(nn.AvgPool2d, m),
    "AdaptiveAvgPool1d": _global_pool,
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
    "CELU": _celu,
    "LayerNorm": lambda m: nn.LayerNorm(tuple(m.normalized_shape), m.eps, m.elementwise_affine),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "GroupNorm": lambda m: nn.GroupNorm(m.num_groups, m.num_channels, m.eps, m.affine),
    "RNN": lambda m: _recurrent(nn.RNN, m),
    "GRU": lambda m: _recurrent(nn.GRU, m),
    "LSTM": lambda m: _recurrent(nn.LSTM, m),
    "Embedding": _embedding,
    "Upsample": _upsample,
    **dict.fromkeys(("ZeroPad1d", "ZeroPad2d", "ConstantPad1d", "ConstantPad2d"), _pad),
    "Unflatten": _unflatten,
}


# The dimensions of a sample that a layer gives; other layers give as many as came.
_RANKS: dict[str, int] = {"linear": 1, "flatten": 1, "select": 1, "global_avgpool": 1, "embedding": 2, "rnn": 2, "gru": 2,
                          "lstm": 2, "conv1d": 2, "maxpool1d": 2, "avgpool1d": 2, "conv2d": 3, "maxpool2d": 3,
                          "avgpool2d": 3}


def rank_after(table: Mapping[str, Any], rank: int | None) -> int | None:
    """How many dimensions a sample has after the layer of a table; None: nobody knows yet."""
    if table.get("per_step"):
        return rank
    return len(table["shape"]) if table["type"] == "reshape" else _RANKS.get(table["type"], rank)


def needs_trace(module: Any) -> bool:
    """Whether a module is one of our layers only for samples of some shapes, or several layers."""
    return getattr(module, "output_size", 1) not in (1, (1, 1)) or getattr(module, "ceil_mode", False) or \
        type(module).__name__ in ("AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "GLU")


def layer_of(module: Any, place: int | str, rank: int | None = None) -> nn.Layer:
    """Our layer for a module; `place` is where it stands, `rank` how many dimensions samples have there, if known."""
    make = _LAYERS.get(type(module).__name__)
    if type(module).__name__ in ("Softmax", "LogSoftmax"):
        raise UsageError(f"from_torch: module {place} is {module!r}, expected one at the end of a classifier alone, whose "
                         "loss is the cross-entropy")
    if make is None or not type(module).__module__.startswith("torch.nn."):
        raise UsageError(f"from_torch: module {place} is {type(module).__name__}; those known are {', '.join(_LAYERS)}"
                         f"{ELSEWHERE}")
    if "weight" not in module._parameters and getattr(module, "weight", None) is not None and module._parameters:
        raise UsageError(f"from_torch: module {place} is {module!r} with a weight that is computed from others, expected "
                         "a plain one: torch.nn.utils.remove_weight_norm, or parametrize.remove_parametrizations")
    if rank == 2 and type(module).__name__ == "Linear":  # PyTorch's takes the last dimension, ours all of them
        return nn.Linear(module.in_features, module.out_features, module.bias is not None, per_step=True)
    layer: nn.Layer = make(module)
    return layer


def module_of(layer: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], rank: int | None) -> Any:
    """The PyTorch module of a layer's table. `shapes` are those of its weights, `rank` how many dimensions samples have."""
    import torch

    from . import _torch_modules as own

    get = layer.get
    kind = layer["type"]
    bias = get("bias", True)
    if kind == "linear":  # PyTorch's takes the last dimension, as ours does where it is per_step
        make = torch.nn.Linear if rank == 1 or get("per_step", False) else own.FlatLinear
        return make(shapes["weight"][1], layer["out"], bias)
    if kind == "embedding":
        return torch.nn.Embedding(layer["vocabulary"], layer["out"])
    if kind in ("rnn", "gru", "lstm") and not get("reverse", False) and not get("initial_state", False):
        more = {"nonlinearity": get("activation", "tanh")} if kind == "rnn" else {}
        make = {"rnn": own.Rnn, "gru": own.Gru, "lstm": own.Lstm}[kind]
        return make(shapes["weight_ih_l0"][1], layer["hidden"], get("layers", 1), bias=bias, batch_first=True,
                    dropout=get("dropout", 0.0), bidirectional=get("bidirectional", False), **more)
    if kind == "select":
        return own.Select(get("at", -1))
    if kind == "slice":
        return own.Slice(get("axis", 0), get("start", 0), get("end"))
    if kind == "transpose":
        return own.Transpose(layer["axes"])
    if kind == "reshape":
        return own.Reshape(layer["shape"])
    if kind == "pad":
        sides = layer["padding"] if isinstance(layer["padding"], (list, tuple)) else [layer["padding"]] * 2 * ((rank or 1) - 1)
        return getattr(torch.nn, f"ConstantPad{len(sides) // 2}d")(tuple(sides), get("value", 0.0))
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
        make = torch.nn.BatchNorm2d if rank == 3 else torch.nn.BatchNorm1d
        return make(shapes["running_mean"][0], get("eps", 1e-5), get("momentum", 0.1), get("affine", True))
    if kind == "global_avgpool":
        pool = torch.nn.AdaptiveAvgPool2d(1) if rank == 3 else torch.nn.AdaptiveAvgPool1d(1)
        return torch.nn.Sequential(pool, torch.nn.Flatten())
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
