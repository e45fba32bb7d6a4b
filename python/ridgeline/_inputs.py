"""Converts the arguments of `Model` to arrays that the extension module accepts."""

from __future__ import annotations

from typing import Any

_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")


def as_array(value: Any, name: str) -> Any:
    """Converts lists and the like to NumPy arrays; arrays are returned unchanged."""
    if isinstance(value, (memoryview, bytearray)):
        return value
    if any(hasattr(value, each) for each in _PROTOCOLS):
        return value.detach() if getattr(value, "requires_grad", False) else value
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        import numpy

        made = numpy.asarray(value)
        if made.dtype.kind not in "fiub":
            raise TypeError(f"{name}: got values of {made.dtype}, expected numbers")
        return made
    raise TypeError(f"{name}: got {type(value).__name__}, expected an array (NumPy, PyTorch, DLPack, a list)")


def on_host(value: Any) -> Any:
    """Returns the array, copied to the host if it is on a GPU: targets are examined there."""
    if value is None or not is_on_gpu(value):
        return value
    for method in ("cpu", "get"):  # PyTorch's and CuPy's
        if hasattr(value, method):
            return getattr(value, method)()
    return as_numpy(value)


def as_numpy(value: Any) -> Any:
    """Returns a NumPy array over the same memory, if that is host memory."""
    import numpy

    if isinstance(value, (memoryview, bytearray)) or hasattr(value, "__array__"):
        return numpy.asarray(value)
    return numpy.asarray(value) if hasattr(value, "__array_interface__") else numpy.from_dlpack(value)


def is_on_gpu(value: Any) -> bool:
    """Whether an array is in the memory of a CUDA GPU."""
    if isinstance(value, memoryview) or hasattr(value, "__array_interface__"):
        return False
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) in (2, 13)
    # PyTorch's tensors on a CPU raise here.
    return hasattr(type(value), "__cuda_array_interface__") and hasattr(value, "__cuda_array_interface__")


def as_weight(value: Any, name: str) -> Any:
    """A weight by its name. A counter has no dimension, and the extension takes arrays only."""
    value = on_host(as_array(value, name))
    return value.reshape(1) if len(value.shape) == 0 else value


def shape_of(value: Any, name: str) -> tuple[int, ...]:
    """Returns the shape of anything that `as_array` returns."""
    if hasattr(value, "shape"):
        return tuple(int(each) for each in value.shape)
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        if hasattr(value, protocol):
            return tuple(int(each) for each in getattr(value, protocol)["shape"])
    if hasattr(value, "__dlpack__"):
        return tuple(as_numpy(on_host(value)).shape)
    try:
        return tuple(memoryview(value).shape or ())
    except TypeError:
        raise TypeError(f"{name}: got {type(value).__name__}, expected an array with a shape") from None


def is_integer(y: Any) -> bool:
    """Whether the numbers are integers or booleans: classes."""
    if hasattr(y, "dtype"):
        return any(each in str(y.dtype) for each in ("int", "bool"))
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        if hasattr(y, protocol):
            return str(getattr(y, protocol)["typestr"])[1] in "iub"
    return memoryview(y).format not in ("e", "f", "d")


def as_pair(validation: Any) -> tuple[Any, Any]:
    """Returns the two arrays of `validation`."""
    if isinstance(validation, (tuple, list)) and len(validation) == 2:
        return validation[0], validation[1]
    raise TypeError(f"validation: got {type(validation).__name__}, expected (x, y) or a fraction as a float")


def split(x: Any, y: Any, fraction: float, seed: int) -> tuple[Any, Any, Any, Any]:
    """Samples to train on, and a fraction of them to validate with."""
    import numpy

    if not 0 < fraction < 1:
        raise ValueError(f"validation: got {fraction}, expected a fraction between 0 and 1")
    x, y = as_numpy(on_host(x)), as_numpy(y)
    order = numpy.random.default_rng(seed).permutation(len(x))
    taken = max(1, round(fraction * len(x)))
    rest, part = numpy.sort(order[taken:]), numpy.sort(order[:taken])
    return x[rest], y[rest], x[part], y[part]
