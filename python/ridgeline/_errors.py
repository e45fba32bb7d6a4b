"""The exceptions of the package. Each message is one line that names the place and the remedy."""

from __future__ import annotations


class Error(Exception):
    """The base of all errors of the library; `kind` is its name there ("usage", "data", ...)."""

    kind = "usage"


class UsageError(Error, ValueError):
    """A setting or an argument is wrong."""

    kind = "usage"


class DataError(Error, ValueError):
    """The samples or targets are invalid."""

    kind = "data"


class ModelError(Error, ValueError):
    """A model file is damaged or not one of ours."""

    kind = "model"


class NumericError(Error, ArithmeticError):
    """The loss or the weights are no longer finite."""

    kind = "numeric"


class IoError(Error, OSError):
    """A file could not be read or written."""

    kind = "io"


class DeviceError(Error, RuntimeError):
    """The device does not exist, or failed."""

    kind = "device"


class CommError(Error, RuntimeError):
    """Ranks could not reach one another."""

    kind = "comm"


_CLASSES = {each.kind: each for each in
            (UsageError, DataError, ModelError, NumericError, IoError, DeviceError, CommError)}


# The library's remedies name flags of the command-line tool; these are the same in Python.
_REMEDIES = (("use --device cpu", 'use device="cpu"'), ("--out ", "out: "),
             (": continue it with --resume, replace it with --force, or choose another folder",
              "; remove it, or choose another folder"))


def make(kind: str, message: str) -> Error:
    """Returns the exception of a kind; the extension module calls it."""
    for flags, arguments in _REMEDIES:
        message = message.replace(flags, arguments)
    return _CLASSES.get(kind, Error)(message)
