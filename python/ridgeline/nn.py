"""Layers with PyTorch's names and arguments, `Sequential`, the chain of them, and `Graph` for nets that branch.

A layer here holds settings only; `ridgeline.Model` has the weights. Layers are called on nodes to make a graph:

    x = nn.Input((16,))
    y = nn.Linear(16, 3)(nn.ReLU()(nn.Linear(16, 16)(x)) + x)
    model = ridgeline.Model(nn.Graph(x, y))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._graph import Graph as Graph
from ._graph import Input as Input
from ._graph import Node as Node

Size = int | tuple[int, ...]


class Layer:
    """The settings of one layer. `config()` is its table in a config file."""

    type: str = ""

    def __init__(self, **settings: Any) -> None:
        # None selects the library's default.
        self._settings = {key: value for key, value in settings.items() if value is not None}

    def config(self) -> dict[str, Any]:
        """The layer as a table of docs/config.md."""
        return {"type": self.type, **self._settings}

    def takes(self) -> tuple[str, int, int] | None:
        """The weight that shows how many inputs the layer takes, its axis for them, and how many it was told; or None."""
        return None

    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample if this layer, as the first of a model, determines it."""
        return None

    def __call__(self, *inputs: Node) -> Node:
        """The layer as part of a `Graph`, reading these nodes."""
        least, most = (2, 64) if self.joins else (1, 1)
        if not least <= len(inputs) <= most:
            raise ValueError(f"{self!r}: got {len(inputs)} inputs, expected "
                             f"{'2 to 64' if self.joins else 'one'}")
        return Node(self, inputs)

    joins = False  # whether it takes several inputs

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self._settings.items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layer) and self.config() == other.config()

    __hash__ = object.__hash__


class LazyLinear(Layer):
    """y = x W^T + b, for any number of inputs; the input is flattened unless `per_step`."""

    type = "linear"

    def __init__(self, out_features: int, bias: bool = True, *, per_step: bool | None = None,
                 init: Any = None, bias_init: Any = None) -> None:
        super().__init__(out=out_features, bias=None if bias else False, per_step=per_step, init=init,
                         bias_init=bias_init)


class Linear(LazyLinear):
    """y = x W^T + b, from `in_features` to `out_features` numbers."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 per_step: bool | None = None, init: Any = None, bias_init: Any = None) -> None:
        super().__init__(out_features, bias, per_step=per_step, init=init, bias_init=bias_init)
        self.in_features = in_features

    def takes(self) -> tuple[str, int, int] | None:
        return "weight", 1, self.in_features

    def input_shape(self) -> tuple[int, ...] | None:
        return None if self._settings.get("per_step") else (self.in_features,)


class _Conv(Layer):
    def __init__(self, in_channels: int | None, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True, *,
                 init: Any = None, bias_init: Any = None) -> None:
        if isinstance(padding, str):
            padding = _padding(type(self).__name__, padding, kernel_size, dilation)
        super().__init__(out=out_channels, kernel=_size(kernel_size), stride=_unless(stride, 1),
                         padding=_unless(padding, 0), dilation=_unless(dilation, 1),
                         groups=_unless(groups, 1), bias=None if bias else False, init=init,
                         bias_init=bias_init)
        self.in_channels = in_channels
        self.groups = groups

    def takes(self) -> tuple[str, int, int] | None:
        return None if self.in_channels is None else ("weight", 1, self.in_channels // self.groups)


class Conv1d(_Conv):
    """A convolution over [channels, length]."""

    type = "conv1d"


class Conv2d(_Conv):
    """A convolution over [channels, height, width]."""

    type = "conv2d"


class _Pool(Layer):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__(kernel=_size(kernel_size), stride=None if stride is None else _size(stride),
                         padding=_unless(padding, 0))


class MaxPool1d(_Pool):
    """The largest number of each window of [channels, length]."""

    type = "maxpool1d"


class MaxPool2d(_Pool):
    """The largest number of each window of [channels, height, width]."""

    type = "maxpool2d"


class _AvgPool(Layer):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 count_include_pad: bool = True) -> None:
        super().__init__(kernel=_size(kernel_size), stride=None if stride is None else _size(stride),
                         padding=_unless(padding, 0), count_include_pad=None if count_include_pad else False)


class AvgPool1d(_AvgPool):
    """The mean of each window of [channels, length]."""

    type = "avgpool1d"


class AvgPool2d(_AvgPool):
    """The mean of each window of [channels, height, width]."""

    type = "avgpool2d"


class GlobalAvgPool(Layer):
    """The mean of each channel: PyTorch's AdaptiveAvgPool2d(1) and Flatten."""

    type = "global_avgpool"


class AdaptiveAvgPool2d(GlobalAvgPool):
    """The mean of each channel; `output_size` is 1."""

    def __init__(self, output_size: Size = 1) -> None:
        if output_size not in (1, (1, 1)):
            raise ValueError(f"AdaptiveAvgPool2d: output_size: got {output_size!r}, expected 1")
        super().__init__()


class Flatten(Layer):
    """Flattens a sample to one dimension. Linear does it by itself."""

    type = "flatten"


class Dropout(Layer):
    """Zero with probability `p` when training; the rest is scaled by 1/(1-p)."""

    type = "dropout"

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class Identity(Dropout):
    """What comes, unchanged."""

    def __init__(self) -> None:
        super().__init__(0.0)


class ReLU(Layer):
    """max(x, 0)."""

    type = "relu"


class Tanh(Layer):
    """tanh(x)."""

    type = "tanh"


class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    type = "sigmoid"


class GELU(Layer):
    """x Phi(x), the exact form with erf."""

    type = "gelu"


class SiLU(Layer):
    """x sigmoid(x)."""

    type = "silu"


class Softplus(Layer):
    """log(1 + exp(x))."""

    type = "softplus"


class Hardswish(Layer):
    """x min(max(x + 3, 0), 6) / 6."""

    type = "hardswish"


class LeakyReLU(Layer):
    """x, or negative_slope x below 0."""

    type = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__(slope=negative_slope)


class ELU(Layer):
    """x, or alpha (exp(x) - 1) below 0."""

    type = "elu"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class _ShapeNorm(Layer):
    def __init__(self, normalized_shape: Size | None, eps: float, elementwise_affine: bool) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        dims = None if self.normalized_shape is None else len(self.normalized_shape)
        super().__init__(dims=dims, eps=eps, affine=None if elementwise_affine else False)

    def takes(self) -> tuple[str, int, int] | None:
        if self.normalized_shape is None or "affine" in self._settings:
            return None
        return "weight", len(self.normalized_shape) - 1, self.normalized_shape[-1]


class LayerNorm(_ShapeNorm):
    """Normalises each sample over its last dimensions, whose extents are `normalized_shape`; None: over all of them."""

    type = "layernorm"

    def __init__(self, normalized_shape: Size | None = None, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class RMSNorm(_ShapeNorm):
    """Divides each sample by the root of its mean square over its last dimensions (`normalized_shape`; None: all)."""

    type = "rmsnorm"

    def __init__(self, normalized_shape: Size | None = None, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class BatchNorm(Layer):
    """Normalises each channel over the batch, as many channels as come."""

    type = "batchnorm"

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(eps=eps, momentum=momentum, affine=None if affine else False)


class BatchNorm1d(BatchNorm):
    """Normalises each of `num_features` channels over the batch."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(eps, momentum, affine)
        self.num_features = num_features

    def takes(self) -> tuple[str, int, int] | None:
        return "running_mean", 0, self.num_features


class BatchNorm2d(BatchNorm1d):
    """Normalises each of `num_features` channels of images over the batch."""


class GroupNorm(Layer):
    """Normalises each sample by `num_groups` groups of its `num_channels` neighbouring channels (None: as many as come)."""

    type = "groupnorm"

    def __init__(self, num_groups: int, num_channels: int | None = None, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(groups=num_groups, eps=eps, affine=None if affine else False)
        self.num_channels = num_channels

    def takes(self) -> tuple[str, int, int] | None:
        if self.num_channels is None or "affine" in self._settings:
            return None
        return "weight", 0, self.num_channels


class _Recurrent(Layer):
    def __init__(self, input_size: int | None, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = True, dropout: float = 0.0, bidirectional: bool = False,
                 **settings: Any) -> None:
        if not batch_first:
            raise ValueError(f"{type(self).__name__}: batch_first: got False, expected True: samples come first here")
        super().__init__(hidden=hidden_size, layers=_unless(num_layers, 1),
                         bidirectional=bidirectional or None, dropout=dropout or None,
                         bias=None if bias else False, **settings)
        self.input_size = input_size

    def takes(self) -> tuple[str, int, int] | None:
        return None if self.input_size is None else ("weight_ih_l0", 1, self.input_size)


class RNN(_Recurrent):
    """Elman's recurrent layer over [timesteps, input_size]; it gives every timestep, of which `Select` takes the last.

    `input_size` None: as many as come.
    """

    type = "rnn"

    def __init__(self, input_size: int | None, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = True, dropout: float = 0.0,
                 bidirectional: bool = False) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         activation=None if nonlinearity == "tanh" else nonlinearity)


class GRU(_Recurrent):
    """Gated recurrent units over [timesteps, input_size]; it gives every timestep, of which `Select` takes the last.

    `input_size` None: as many as come.
    """

    type = "gru"


class LSTM(_Recurrent):
    """Long short-term memory over [timesteps, input_size]; it gives every timestep, of which `Select` takes the last.

    `input_size` None: as many as come.
    """

    type = "lstm"


class Select(Layer):
    """One timestep of a sequence, [timesteps, features] to [features]."""

    type = "select"

    def __init__(self, at: int = -1) -> None:
        super().__init__(at=at)


class Reshape(Layer):
    """Reshapes each sample; one extent may be -1, which is inferred."""

    type = "reshape"

    def __init__(self, *shape: int) -> None:
        super().__init__(shape=list(shape))


class Transpose(Layer):
    """Axis i of the result is axis axes[i] of the sample."""

    type = "transpose"

    def __init__(self, *axes: int) -> None:
        super().__init__(axes=list(axes))


class Slice(Layer):
    """The positions from `start` up to, not including, `end` of an axis of the sample."""

    type = "slice"

    def __init__(self, axis: int = 0, start: int = 0, end: int | None = None) -> None:
        super().__init__(axis=_unless(axis, 0), start=_unless(start, 0), end=end)


class Pad(Layer):
    """Pads the sample; pairs are in PyTorch's order, the last axis first."""

    type = "pad"

    def __init__(self, padding: Size, value: float = 0.0) -> None:
        super().__init__(padding=_size(padding), value=value or None)


class Upsample(Layer):
    """Enlarges images or signals by a factor; `mode` is "nearest" or "bilinear"."""

    type = "upsample"

    def __init__(self, scale_factor: Size, mode: str = "nearest") -> None:
        super().__init__(factor=_size(scale_factor), mode=None if mode == "nearest" else mode)


class Embedding(Layer):
    """A vector for each symbol; the first layer of a model whose samples are codes."""

    type = "embedding"

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__(vocabulary=num_embeddings, out=embedding_dim)


class _Join(Layer):
    joins = True


class Add(_Join):
    """The sum of its inputs, element by element; a + b of two nodes is the same."""

    type = "add"


class Multiply(_Join):
    """The product of its inputs, element by element; a * b of two nodes is the same."""

    type = "multiply"


class Mean(_Join):
    """The mean of its inputs, element by element."""

    type = "mean"


class Concat(_Join):
    """Its inputs one after the other along an axis of the sample; 0 is the channels of images."""

    type = "concat"

    def __init__(self, axis: int = 0) -> None:
        super().__init__(axis=_unless(axis, 0))


class Residual(Layer):
    """Adds the input to the output of the layers inside; `shortcut` has layers that the input passes first."""

    type = "residual"

    def __init__(self, *layers: Layer, shortcut: Iterable[Layer] = ()) -> None:
        _check(layers, "Residual")
        super().__init__(layers=[layer.config() for layer in layers],
                         shortcut=[layer.config() for layer in shortcut] or None)


class Sequential:
    """Layers, first to last; or one list of them."""

    def __init__(self, *layers: Layer | Iterable[Layer]) -> None:
        given: Any = layers[0] if len(layers) == 1 and isinstance(layers[0], (list, tuple)) else layers
        _check(given, "Sequential")
        self.layers: tuple[Layer, ...] = tuple(given)

    def config(self) -> list[dict[str, Any]]:
        """The layers as tables of docs/config.md."""
        return [layer.config() for layer in self.layers]

    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, if the first layer with weights determines it."""
        for layer in self.layers:
            shape = layer.input_shape()
            if shape is not None:
                return shape
            if layer.takes() is not None or layer.type not in _SHAPELESS:
                return None
        return None

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __getitem__(self, index: int) -> Layer:
        return self.layers[index]

    def __repr__(self) -> str:
        inside = "".join(f"  ({i}): {layer!r}\n" for i, layer in enumerate(self.layers))
        return f"Sequential(\n{inside})"


# Layers that keep the shape, so that a Linear after them still determines the input's.
_SHAPELESS = {"relu", "tanh", "sigmoid", "gelu", "silu", "softplus", "hardswish", "leaky_relu", "elu",
              "dropout", "flatten"}


def _check(layers: tuple[Layer, ...], where: str) -> None:
    for i, layer in enumerate(layers):
        if isinstance(layer, type) and issubclass(layer, Layer):
            raise TypeError(f"{where}: layer {i}: got the class {layer.__name__}, expected an object of it: "
                            f"{layer.__name__}(...)")
        if not isinstance(layer, Layer):
            remedy = f"; write {where}(*layers)" if isinstance(layer, (list, tuple)) else ""
            raise TypeError(f"{where}: layer {i}: got {type(layer).__name__}, "
                            f"expected a layer of ridgeline.nn (from_torch takes PyTorch's){remedy}")
    if not layers:
        raise ValueError(f"{where}: got no layers, expected at least one")


def _size(size: Size) -> int | list[int]:
    return list(size) if isinstance(size, (tuple, list)) else size


def _padding(layer: str, name: str, kernel: Size, dilation: Size) -> Size:
    """PyTorch's "valid" and "same", as the zeros on both sides."""
    if name not in ("same", "valid"):
        raise ValueError(f"{layer}: padding: got {name!r}, expected a number, \"same\" or \"valid\"")
    if name == "valid":
        return 0
    axes = max(len(each) for each in (kernel, dilation, (0,)) if isinstance(each, (tuple, list)))
    kernels, dilations = (each if isinstance(each, (tuple, list)) else (each,) * axes for each in (kernel, dilation))
    both = [step * (width - 1) for width, step in zip(kernels, dilations, strict=True)]
    if any(each % 2 for each in both):
        raise ValueError(f"{layer}: padding: got \"same\" with a window of even width, expected as many zeros on both sides")
    return tuple(each // 2 for each in both) if axes > 1 else both[0] // 2


def _unless(size: Size, default: int) -> int | list[int] | None:
    return None if size == default else _size(size)


_IN_LOSS = "{} is no layer here: the loss applies it, and predict_proba gives probabilities"
_ELSEWHERE = {**dict.fromkeys(("AdaptiveMaxPool1d", "AdaptiveMaxPool2d"), "{}(1) is a MaxPool of the whole extent, and Flatten()"),
              "Softmax": _IN_LOSS, "LogSoftmax": _IN_LOSS, "CrossEntropyLoss": '{} is Model(..., loss="cross-entropy")',
              "MSELoss": '{} is Model(..., loss="mse")', "L1Loss": '{} is Model(..., loss="mae")',
              "BCEWithLogitsLoss": '{} is Model(..., loss="binary-cross-entropy")',
              "BCELoss": 'use Model(..., loss="binary-cross-entropy"), without the last Sigmoid, for {}'}

if not TYPE_CHECKING:  # names that are not here stay errors for mypy

    def __dir__() -> list[str]:
        return sorted(name for name, value in globals().items()
                      if not name.startswith("_") and getattr(value, "__module__", "").startswith("ridgeline"))

    def __getattr__(name: str) -> Any:
        remedy = _ELSEWHERE.get(name, "").format(name)
        raise AttributeError(f"module 'ridgeline.nn' has no attribute {name!r}{remedy and ': '}{remedy}")
