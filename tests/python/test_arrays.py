"""Arrays of every kind go in where they lie, and what is wrong with one is said by its name."""

import array

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp


def test_arrays_are_read_where_they_lie(trained, data):
    x, y = data
    want = trained.predict_proba(x)
    before = rl._core.copied_bytes()
    trained.predict_proba(x)
    trained.predict_proba(memoryview(x))
    trained.evaluate(x, y)
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(trained.predict_proba(read_only), want)
    assert rl._core.copied_bytes() == before
    np.testing.assert_array_equal(trained.predict_proba(np.asfortranarray(x)), want)
    assert rl._core.copied_bytes() == before + x.nbytes
    np.testing.assert_array_equal(trained.predict_proba(np.repeat(x, 2, axis=0)[::2]), want)
    np.testing.assert_array_equal(trained.predict_proba(x.tolist()), want)
    np.testing.assert_array_equal(trained.predict_proba(x.astype(np.float64)), want)


def test_answers_are_written_where_asked(trained, data):
    x, _ = data
    out = np.empty((len(x), 3), np.float32)
    assert trained.predict_proba(x, out) is out
    np.testing.assert_array_equal(out, trained.predict_proba(x))
    with pytest.raises(ValueError, match=r"out: got shape \(240, 2\), expected \(240, 3\)"):
        trained.predict_proba(x, np.empty((len(x), 2), np.float32))
    with pytest.raises(TypeError, match="out: got an array of float64, expected float32"):
        trained.predict_proba(x, np.empty((len(x), 3)))
    out.flags.writeable = False
    with pytest.raises(TypeError, match="out: got ndarray, expected an array that can be written"):
        trained.predict_proba(x, out)
    with pytest.raises(ValueError, match="row-major"):
        trained.predict_proba(x, np.empty((3, len(x)), np.float32).T)


@pytest.mark.parametrize("wrong, error, message", [
    (lambda x: x.astype(np.float16), TypeError, "x: got an array of float16, expected float32"),
    (lambda x: x.astype(np.complex64), TypeError, "x: got an array of complex64"),
    (lambda x: x.astype(np.int16), TypeError, "x: got an array of int16"),
    (lambda x: x.astype(str), TypeError, "x: got"),
    (lambda x: x[:, :4], ValueError, r"\[4\] each, but the model takes \[6\]"),
    (lambda x: x[0], ValueError, "takes"),
    (lambda x: x[:0], ValueError, "no samples"),
    (lambda x: np.float32(3), ValueError, "x: got a single number"),
    (lambda x: None, TypeError, "x: got NoneType"),
    (lambda x: "text", TypeError, "x: got str"),
    (lambda x: b"bytes", TypeError, "x: got bytes"),
    (lambda x: {"a": 1}, TypeError, "x: got dict"),
    (lambda x: x[None], ValueError, "takes"),
    (lambda x: np.where(x > 0, x, np.nan), ValueError, "missing"),
    (lambda x: np.where(x > 0, x, np.inf), ValueError, "infinite"),
])
def test_wrong_arrays(trained, data, wrong, error, message):
    with pytest.raises(error, match=message):
        trained.predict_proba(wrong(data[0]))


def test_wrong_targets(data):
    x, y = data
    for targets, error, message in (
            (y[:-1], ValueError, "x, y: got 240 samples and 239 targets"),
            (y + 1, ValueError, "none of the 3 classes"),
            (y.astype(str), TypeError, "y: got"),
            (None, TypeError, "y: got NoneType")):
        with pytest.raises(error, match=message):
            mlp().fit(x, targets)
    for validation, error, message in (
            ((x,), TypeError, "validation: got tuple"),
            (1.5, ValueError, "validation: got 1.5"),
            ((x, y[:-1]), ValueError, "validation: got 240 samples and 239"),
            ((x, "y"), TypeError, r"validation\[1\]: got str")):
        with pytest.raises(error, match=message):
            mlp().fit(x, y, validation=validation)


def test_other_types_of_numbers(data):
    x, y = blobs()
    for samples in (x.astype(np.float64), (x * 50).astype(np.int32), (x * 50).astype(np.int64),
                    np.clip(x * 50 + 100, 0, 255).astype(np.uint8)):
        for targets in (y, y.astype(np.int32), y.astype(np.uint8), list(map(int, y))):
            assert len(mlp().fit(samples, targets, epochs=1)) == 1
            break
    model = mlp(outputs=2)
    model.fit(x, y > 0, epochs=1)
    flat = memoryview(array.array("f", x.ravel().tolist())).cast("B").cast("f", x.shape)
    assert model.predict(flat).shape == (240,)


def test_random_arguments_never_crash(trained):
    random = np.random.default_rng(5)
    types = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, np.float16, np.complex128, bool]
    for _ in range(300):
        shape = tuple(random.integers(0, 8, random.integers(0, 5)))
        values = np.zeros(shape, types[random.integers(len(types))])
        values = values.T if random.integers(2) else values
        try:
            answer = trained.predict_proba(values)
        except (TypeError, ValueError):
            continue
        assert answer.shape == (values.shape[0], 3)
