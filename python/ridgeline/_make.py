"""Models from files and from networks of other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _core
from ._model import Model


def load(path: str | os.PathLike[str], *, device: str = "auto", threads: int = 0, tune: bool = True) -> Model:
    """Loads the model of a file, or of the folder of a run."""
    return Model.load(path, device=device, threads=threads, tune=tune)


def from_torch(module: Any, *, input_shape: Sequence[int] | None = None, share: bool = False,
               **keywords: Any) -> Model:
    """A model with the layers of a PyTorch module and its weights.

    The module is an nn.Sequential of known modules, or any module that torch.fx can trace into known ones, with sums,
    products and concatenations between them. The weights are copied; with share=True the module's parameters become
    this model's own memory instead, so that what either trains, the other computes with. `input_shape` is needed
    unless the first layer with weights is a Linear; `keywords` are those of `Model`.
    """
    from ._torch_graph import from_torch

    return from_torch(module, input_shape, share, keywords)


def from_onnx(path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None, classes: bool = False,
              device: str = "auto", threads: int = 0, tune: bool = True) -> Model:
    """The model of an ONNX file.

    `input_shape` (of one sample) is needed where the file leaves it open. `classes`: the outputs are logits of
    classes; a file that ends in a softmax has them anyway.
    """
    if isinstance(path, bytes):
        raise TypeError("path: got bytes, expected the path of a file; write them to one first")
    if not os.path.exists(path):
        raise FileNotFoundError(2, "no such file", os.fspath(path))
    core = _core.Model.from_onnx(os.fspath(path), list(input_shape or ()), classes, device, threads, tune)
    return Model._of(core, {"device": device, "threads": threads, "tune": tune})
