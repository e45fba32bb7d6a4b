"""Converts the arguments of `Model` to arrays that the extension module accepts."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
_TYPES = "float32, float64, uint8, bool, int32 or int64"


def as_count(value: Any, name: str, least: int) -> int:
    """A whole number that is not below `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, expected a whole number") from None
    if count < least:
        raise ValueError(f"{name}: got {count}, expected at least {least}")
    return count


def as_rate(rate: Any) -> float:
    """A learning rate."""
    if isinstance(rate, str) or not hasattr(rate, "__float__"):
        raise TypeError(f"lr: got {rate!r}, expected a number")
    if not 0 <= float(rate) < float("inf"):
        raise ValueError(f"lr: got {rate}, expected a number that is finite and not below 0")
    return float(rate)


def columns_of(table: Any) -> list[str] | None:
    """The names of a table's columns; None for an array."""
    return [str(name) for name in table.columns] if hasattr(table, "columns") else None


def check_columns(table: Any, known: list[str] | None, name: str) -> None:
    """Refuses a table whose columns are not those that the model was trained on, in their order."""
    got = columns_of(table)
    if known is None or got is None or got == known:
        return
    missing, more = [each for each in known if each not in got], [each for each in got if each not in known]
    what = f"without {missing[0]!r}" if missing else f"with {more[0]!r}" if more else "in another order"
    raise ValueError(f"{name}: got columns {what}, expected those that the model was trained on: {', '.join(known)}")


def as_weights(weights: Any, name: str) -> Any:
    """How much each sample counts: floats, or None. The extension module compares their number with the samples'."""
    if weights is None:
        return None
    weights = on_host(as_array(weights, name))
    shape = shape_of(weights, name)
    if len(shape) not in (1, 2) or shape[1:] not in ((), (1,)):
        raise ValueError(f"{name}: got shape {shape}, expected one weight a sample")
    return as_numpy(weights).astype("float32") if is_integer(weights) else weights


_LOSSES = {"crossentropy": "cross-entropy", "sparsecategoricalcrossentropy": "cross-entropy",
           "categoricalcrossentropy": "cross-entropy", "crossentropyloss": "cross-entropy",
           "binarycrossentropy": "binary-cross-entropy", "bce": "binary-cross-entropy",
           "bcewithlogits": "binary-cross-entropy", "bcewithlogitsloss": "binary-cross-entropy",
           "meansquarederror": "mse", "mseloss": "mse", "meanabsoluteerror": "mae", "l1": "mae", "l1loss": "mae",
           "huberloss": "huber", "pinball": "quantile",
           **{name: name for name in ("mse", "mae", "huber", "quantile")}}


def as_loss(loss: Any) -> Any:
    """A loss by the library's name; Keras' and PyTorch's names for the same mean it too."""
    if isinstance(loss, Mapping) and "type" in loss:
        return {**loss, "type": as_loss(loss["type"])}
    return _LOSSES.get(loss.lower().replace("_", "").replace("-", ""), loss) if isinstance(loss, str) else loss


def as_shape(shape: Any, name: str) -> tuple[int, ...]:
    """The shape of one sample; a single number is that of a row."""
    extents = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    return tuple(as_count(each, name, 1) for each in extents)


def as_array(value: Any, name: str) -> Any:
    """Converts lists and the like to NumPy arrays; arrays are returned unchanged."""
    if isinstance(value, (memoryview, bytearray)):
        return value
    if any(hasattr(value, each) for each in _PROTOCOLS):
        if hasattr(value, "filled") and getattr(value, "mask", None) is not None and value.mask.any():
            raise TypeError(f"{name}: got an array with a mask, expected plain numbers; use .filled()")
        return _of_numbers(value.detach() if getattr(value, "requires_grad", False) else value, name)
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        import numpy

        try:
            made = numpy.asarray(value)
        except ValueError as error:
            remedy = "; samples of several lengths are padded to one" if "inhomogeneous" in str(error) else ""
            raise ValueError(f"{name}: got {type(value).__name__}, expected an array: {error}{remedy}") from None
        if made.dtype == object and hasattr(value, "isna"):
            made = _of_pandas(value, name)
        return _of_numbers(made, name)
    raise TypeError(f"{name}: got {type(value).__name__}, expected an array (NumPy, PyTorch, DLPack, a list)"
                    f"{_remedy_of_type(value)}")


def _of_pandas(table: Any, name: str) -> Any:
    """The numbers of a table or column of pandas that NumPy takes for objects: of several types, or with pandas.NA."""
    types = list(zip(table.columns, table.dtypes, strict=True)) if hasattr(table, "columns") else [(name, table.dtype)]
    words = [f"{column!r} of {dtype}" for column, dtype in types if dtype.kind not in "biuf"]
    if words and hasattr(table, "columns"):
        raise TypeError(f"{name}: got the column {words[0]}{f' and {len(words) - 1} more' * (len(words) > 1)}, expected "
                        "numbers; pandas.get_dummies turns words into columns of zeros and ones")
    if words or len(types) == 0:
        return table.to_numpy()
    if all(dtype.kind in "biu" for _, dtype in types) and not table.isna().to_numpy().any():
        return table.to_numpy(dtype="int64")
    return table.to_numpy(dtype="float64", na_value=float("nan"))


def _remedy_of_type(value: Any) -> str:
    """How to give what is no array."""
    if hasattr(value, "toarray"):  # a sparse matrix
        return "; use .toarray()"
    if hasattr(value, "tensors"):  # PyTorch's TensorDataset
        return "; use .tensors"
    if hasattr(value, "__iter__") and not isinstance(value, (str, bytes, dict, set)):
        return "; batches go to train_step, one after another"
    return ""


def _of_numbers(array: Any, name: str) -> Any:
    dtype = getattr(array, "dtype", None)
    if str(dtype) == "torch.bool":  # which DLPack of PyTorch 1 does not know
        return array.view(sys.modules["torch"].uint8)
    kind = getattr(dtype, "kind", "f")  # NumPy's arrays have it; what others hold the extension module looks at
    if kind not in "fiubc" or getattr(dtype, "byteorder", "=") == ">":
        remedy = "; number them by np.unique(y, return_inverse=True)[1]; RidgelineClassifier takes words" \
            if kind in "UOT" and name == "y" else ""
        if kind in "fiuO" and not remedy:
            remedy = "; use .astype('float32')"
        raise TypeError(f"{name}: got an array of {dtype}, expected {_TYPES}{remedy}")
    return array


def check_samples(x: Any, shape: Sequence[int] | None, name: str) -> int:
    """Checks samples against the shape that a model takes, if it is known, and counts them."""
    got = shape_of(x, name)
    if not got:
        raise ValueError(f"{name}: got a single number, expected an array [samples, ...]")
    if shape is not None and not _same_but_ones(got[1:], tuple(shape)):
        raise ValueError(f"{name}: got shape {got}, whose samples are {_text(got[1:])} each, but the model takes "
                         f"{_text(shape)}{_remedy(got, tuple(shape), name)}")
    return got[0]


def _same_but_ones(got: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether samples of one shape lie in memory as those of the other: extents of 1, as of the one channel of grey
    images, may be left out or stand elsewhere."""
    return [each for each in got if each != 1] == [each for each in shape if each != 1]


def as_samples(x: Any, shape: Sequence[int] | None) -> Any:
    """Samples in the shape that a model takes, which may differ in extents of 1 alone; nothing is copied."""
    if shape is None or shape_of(x, "x")[1:] == tuple(shape):
        return x
    x = x if hasattr(x, "reshape") else as_numpy(x)
    return x.reshape((len(x), *shape))


def _remedy(got: tuple[int, ...], shape: tuple[int, ...], name: str) -> str:
    """How to give samples the model's shape, if they have the right number of elements."""
    if _same_but_ones(got, shape):
        return f"; a single sample is {name}[None]"
    if len(shape) == 3 and got[1:] == (shape[1], shape[2], shape[0]):
        return f"; channels come first: {name}.transpose(0, 3, 1, 2)"
    if math.prod(got[1:]) == math.prod(shape):
        return f"; use {name}.reshape(len({name}), {', '.join(map(str, shape))})"
    return ""


def _text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def check_targets(y: Any, samples: int, outputs: int, classes: bool, name: str, both: str) -> None:
    """Checks that targets are those of so many samples and fit a model of so many outputs."""
    got = shape_of(y, name)
    count = got[0] if got else 1
    if count != samples:
        raise ValueError(f"{both}: got {samples} samples and {count} targets, expected as many of both")
    columns = 1
    for extent in got[1:]:
        columns *= extent
    if not is_integer(y) and not classes and columns != outputs:
        raise ValueError(f"{name}: got {columns} values a sample, expected {outputs}, one for each output of the model; "
                         "classes are integers: y.astype(int)")
    if not classes or not is_integer(y):
        return
    if columns != 1:
        raise ValueError(f"{name}: got shape {got}, expected ({count},): integers are classes, one a sample; rows of "
                         'zeros and ones need loss="cross-entropy" (one class a sample) or "binary-cross-entropy"')
    numbers = as_numpy(y).reshape(-1)
    wrong = (numbers < 0) | (numbers >= outputs)
    if wrong.any():
        at = int(wrong.argmax())
        remedy = "; two classes take two outputs, or loss=\"binary-cross-entropy\"" if outputs == 1 else ""
        raise ValueError(f"{name}: got {int(numbers[at])} for sample {at}, none of the {outputs} classes, expected 0 to "
                         f"{outputs - 1}{remedy}")


def as_classes(y: Any, outputs: int | None, name: str) -> Any:
    """The classes of rows that have a one at the place of the class and zeros elsewhere; other targets unchanged."""
    shape = shape_of(y, name)
    if len(shape) != 2 or shape[1] < 2 or shape[1] != (outputs or shape[1]):
        return y
    rows = as_numpy(y)
    wrong = (rows.max(axis=1) != 1) | ((rows != 0).sum(axis=1) != 1) if len(rows) else rows[:, 0]
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"{name}: got {rows[at].tolist()} for sample {at}, expected a class, or a one for it and zeros for "
                         'the others; several labels a sample need loss="binary-cross-entropy"')
    return rows.argmax(axis=1)


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
    if isinstance(value, (memoryview, bytearray)):
        value = as_numpy(value)
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
    return as_numpy(y).dtype.kind in "iub"


def as_triple(validation: Any) -> tuple[Any, Any, Any]:
    """Returns the arrays of `validation`: samples, targets and weights, which may be None."""
    if isinstance(validation, (tuple, list)) and len(validation) in (2, 3):
        return validation[0], validation[1], validation[2] if len(validation) == 3 else None
    raise TypeError(f"validation: got {type(validation).__name__}, expected (x, y), (x, y, sample_weight) or a fraction "
                    "as a float")


def split(arrays: Sequence[Any], fraction: float, seed: int) -> tuple[list[Any], list[Any]]:
    """Arrays of the samples to train on, and of a fraction of them to validate with. An array may be None."""
    import numpy

    if not 0 < fraction < 1:
        raise ValueError(f"validation: got {fraction}, expected a fraction between 0 and 1")
    arrays = [None if each is None else as_numpy(on_host(each)) for each in arrays]
    count = len(arrays[0])
    for each, what in zip(arrays[1:], ("targets", "weights"), strict=True):
        if each is not None and len(each) != count:
            raise ValueError(f"x, y: got {count} samples and {len(each)} {what}, expected as many of both")
    order = numpy.random.default_rng(seed).permutation(count)
    taken = max(1, round(fraction * count))
    if taken >= count:
        raise ValueError(f"validation: got {fraction} of {count} samples, expected a fraction that leaves some to train on")
    rest, part = numpy.sort(order[taken:]), numpy.sort(order[:taken])
    return [None if each is None else each[rest] for each in arrays], [None if each is None else each[part] for each in arrays]
