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

import os as _os
import sys as _sys
from typing import TYPE_CHECKING, Any

# TensorFlow loads another version of protobuf for the whole process. Symbols of that one would be bound where _core wants
# those of the version it was built with.
_flags = _sys.getdlopenflags()
if "tensorflow" in _sys.modules:
    _sys.setdlopenflags(_flags | _os.RTLD_DEEPBIND)
try:
    from . import _core
finally:
    _sys.setdlopenflags(_flags)

from . import callbacks, nn
from ._core import Predictor, copied_bytes
from ._core import version as _version
from ._errors import CommError, DataError, DeviceError, Error, IoError, ModelError, NumericError, UsageError
from ._arrays import DeviceArray
from ._history import History
from ._make import from_onnx, from_torch, load
from ._model import Model

if TYPE_CHECKING:
    from ._reports import Limit, Plan, Profile
    from .sklearn import RidgelineClassifier, RidgelineRegressor

__version__ = _version()

__all__ = [
    "CommError",
    "DataError",
    "DeviceArray",
    "DeviceError",
    "Error",
    "History",
    "IoError",
    "Limit",
    "Model",
    "ModelError",
    "NumericError",
    "Plan",
    "Predictor",
    "Profile",
    "RidgelineClassifier",
    "RidgelineRegressor",
    "UsageError",
    "__version__",
    "callbacks",
    "copied_bytes",
    "from_onnx",
    "from_torch",
    "load",
    "nn",
]


def _is_missing(package: str) -> bool:
    from importlib.machinery import PathFinder

    return _sys.modules[package] is None if package in _sys.modules else PathFinder.find_spec(package) is None


# `from ridgeline import *` and help() touch every name, and must not ask for a package that is not there.
if _is_missing("sklearn"):
    __all__[:] = [name for name in __all__ if not name.startswith("Ridgeline")]


def __getattr__(name: str) -> Any:
    # These are imported on first use: scikit-learn takes a second to import, reports take ten milliseconds.
    if name in ("RidgelineClassifier", "RidgelineRegressor"):
        from . import sklearn

        return getattr(sklearn, name)
    if name in ("Limit", "Plan", "Profile"):
        from . import _reports

        return getattr(_reports, name)
    raise AttributeError(f"module 'ridgeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
