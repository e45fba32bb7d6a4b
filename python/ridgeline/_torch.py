"""PyTorch's modules as our layers, and back. Only `from_torch` and `to_torch` import this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import nn
from ._errors import UsageError

if TYPE_CHECKING:
    from ._model import Model


def _one(value: Any) -> Any:
    """(3, 3) as 3: PyTorch's modules keep tuples whatever they were given."""
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


def _flat(module: Any) -> list[Any]:
    """The modules of a Sequential, those of Sequentials in it in their places."""
    import torch

    if not isinstance(module, torch.nn.Sequential):
        return [module]
    return [each for child in module for each in _flat(child)]


def from_torch(module: Any, input_shape: Sequence[int] | None, keywords: Mapping[str, Any]) -> Model:
    import torch

    from ._model import Model

    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {type(module).__name__}, expected a torch.nn.Module")
    modules = _flat(module)
    layers: list[nn.Layer] = []
    for i, each in enumerate(modules):
        make = _LAYERS.get(type(each).__name__)
        if make is None or not type(each).__module__.startswith("torch.nn."):
            raise UsageError(f"from_torch: module {i} is {type(each).__name__}; those known are "
                             f"{', '.join(_LAYERS)} in an nn.Sequential")
        layers.append(make(each))
    network = nn.Sequential(*layers)
    if input_shape is None and network.input_shape() is None:
        raise UsageError("from_torch: input_shape: got None, expected the shape of one sample, as in "
                         "input_shape=(1, 28, 28)")
    model = Model(network, input_shape=input_shape, **{"scale": "raw", **keywords})
    state = {f"{i}.{name}": value.detach().cpu().contiguous()
             for i, each in enumerate(modules) for name, value in each.state_dict().items()}
    model.load_state_dict(state)
    return model


def _module(layer: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The PyTorch module of a layer's table; `shapes` are those of its weights."""
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
    raise UsageError(f"to_torch: layer {kind!r} has no module in a Sequential of PyTorch")


def to_torch(model: Model) -> Any:
    import torch

    state = model.state_dict()
    modules: list[Any] = []
    layers = model.config["model"]["layers"]
    flat = len(model.input_shape or ()) == 1
    for i, layer in enumerate(layers):
        own = {name.split(".", 1)[1]: value.shape for name, value in state.items() if name.startswith(f"{i}.")}
        if layer["type"] == "batchnorm":
            make = torch.nn.BatchNorm1d if flat else torch.nn.BatchNorm2d
            module = make(own["running_mean"][0], layer.get("eps", 1e-5), layer.get("momentum", 0.1),
                          layer.get("affine", True))
        else:
            module = _module(layer, own)
        # Our Linear flattens by itself; in PyTorch a Flatten has to. It is kept inside, so that the names of
        # the weights stay.
        if layer["type"] == "linear" and not flat:
            if not any(type(each) is torch.nn.Flatten for each in modules):
                raise UsageError(f"to_torch: layer {i} (linear) flattens its input; put a Flatten before it")
            flat = True
        if layer["type"] == "flatten":
            flat = True
        modules.append(module)
    result = torch.nn.Sequential(*modules)
    result.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    return result.eval()
