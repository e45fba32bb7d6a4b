"""Modules for what `to_torch` gives that torch.nn has none for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Select(torch.nn.Module):  # type: ignore[misc]
    """One timestep of [samples, timesteps, features]."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Any) -> Any:
        return x[:, self.at]


class Transpose(torch.nn.Module):  # type: ignore[misc]
    """Axis i of a sample is its axis axes[i]."""

    def __init__(self, axes: Sequence[int]) -> None:
        super().__init__()
        self.axes = tuple(axes)

    def forward(self, x: Any) -> Any:
        return x.permute(0, *(axis + 1 for axis in self.axes))


class Reshape(torch.nn.Module):  # type: ignore[misc]
    """Samples in another shape."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Any) -> Any:
        return x.reshape(len(x), *self.shape)


class Slice(torch.nn.Module):  # type: ignore[misc]
    """The places from `start` up to `end` of an axis of a sample."""

    def __init__(self, axis: int, start: int, end: int | None) -> None:
        super().__init__()
        self.axis, self.places = axis + 1 if axis >= 0 else axis, slice(start, end)

    def forward(self, x: Any) -> Any:
        index = [slice(None)] * x.ndim
        index[self.axis] = self.places
        return x[tuple(index)]


class Residual(torch.nn.Sequential):  # type: ignore[misc]
    """Layers, and what comes added to what they give; `shortcut` has those that it passes first."""

    def __init__(self, layers: Sequence[Any], shortcut: Sequence[Any]) -> None:
        super().__init__(*layers)
        self.count = len(layers)
        if shortcut:
            self.add_module("shortcut", torch.nn.Sequential(*shortcut))

    def forward(self, input: Any) -> Any:
        children: Any = self._modules
        y = input
        for i in range(self.count):
            y = children[str(i)](y)
        return y + (children["shortcut"](input) if "shortcut" in children else input)


class FlatLinear(torch.nn.Linear):  # type: ignore[misc]
    """A Linear of all numbers of a sample, whatever its shape."""

    def forward(self, input: Any) -> Any:
        return super().forward(input.flatten(1))


class Rnn(torch.nn.RNN):  # type: ignore[misc]
    """The timesteps alone, without the last state."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx)[0]


class Gru(torch.nn.GRU):  # type: ignore[misc]
    """The timesteps alone, without the last state."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx)[0]


class Lstm(torch.nn.LSTM):  # type: ignore[misc]
    """The timesteps alone, without the last state."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx)[0]
