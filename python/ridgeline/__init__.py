"""Trains and serves small neural networks at the limit of the hardware.

    import ridgeline as rl
    from ridgeline import nn

    model = rl.Model(nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), optimizer="adam")
    history = model.fit(x, y, validation=(x_test, y_test), epochs=5)
    labels = model.predict(x_test)

docs/python.md explains the package with examples. Neither PyTorch nor scikit-learn is imported before
something of theirs is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import callbacks, nn
from ._core import Predictor
from ._core import version as _version
from ._errors import DataError, DeviceError, Error, IoError, ModelError, NumericError, UsageError
from ._model import History, Model, from_torch, load

if TYPE_CHECKING:
    from .sklearn import RidgelineClassifier, RidgelineRegressor

__version__ = _version()

__all__ = [
    "DataError",
    "DeviceError",
    "Error",
    "History",
    "IoError",
    "Model",
    "ModelError",
    "NumericError",
    "Predictor",
    "RidgelineClassifier",
    "RidgelineRegressor",
    "UsageError",
    "__version__",
    "callbacks",
    "from_torch",
    "load",
    "nn",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes a second to import, so only those who use it wait for it.
    if name in ("RidgelineClassifier", "RidgelineRegressor"):
        from . import sklearn

        return getattr(sklearn, name)
    raise AttributeError(f"module 'ridgeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
