"""Array arguments of every sort: exceptions at worst, never a crash."""

import numpy as np
import pytest

from conftest import mlp

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra import numpy as hnp  # noqa: E402

ANY = hnp.arrays(hnp.scalar_dtypes() | hnp.nested_dtypes(max_itemsize=64),
                 hnp.array_shapes(min_dims=0, max_dims=9, min_side=0, max_side=7))
LIKELY = hnp.arrays(st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_]),
                    st.tuples(st.integers(0, 5), st.sampled_from([6, 6, 6, 1, 0, 7])))


@st.composite
def arrays(draw):
    """An array, or a view of one: transposed, reversed, strided, read-only, in the other byte order."""
    array = draw(ANY | LIKELY)
    how = draw(st.sampled_from(["plain", "plain", "transposed", "reversed", "strided", "read-only", "swapped", "buffer"]))
    if how == "transposed":
        return array.T
    if how == "reversed" and array.ndim:
        return array[::-1]
    if how == "strided" and array.ndim:
        return array[::2]
    if how == "read-only":
        array.flags.writeable = False
    if how == "swapped":
        return array.astype(array.dtype.newbyteorder())
    if how == "buffer":
        try:
            return memoryview(array)
        except (ValueError, TypeError, NotImplementedError):
            pass
    return array


@pytest.fixture(scope="module")
def handle(trained):
    return trained.compile(batch=5)


OPTIONS = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@OPTIONS
@given(x=arrays())
def test_predict(trained, handle, x):
    for call in (trained.predict_proba, trained.predict, handle):
        try:
            answer = call(x)
        except (TypeError, ValueError):
            continue
        assert len(answer) == np.asarray(x).shape[0]


@OPTIONS
@given(out=arrays())
def test_out(trained, handle, out):
    x = np.zeros((5, 6), np.float32)
    for call in (trained.predict_proba, handle):
        try:
            call(x, out)
        except (TypeError, ValueError):
            continue
        view = np.asarray(out)
        assert view.shape == (5, 3) and view.dtype == np.float32 and view.flags.writeable


@settings(OPTIONS, max_examples=60)
@given(x=arrays(), y=arrays())
def test_train(x, y):
    model = mlp()
    for call in (lambda: model.train_step(x, y), lambda: model.evaluate(x, y), lambda: model.fit(x, y, epochs=1),
                 lambda: model.load_state_dict({"0.weight": x, "0.bias": y})):
        try:
            call()
        except (TypeError, ValueError, ArithmeticError):
            continue
