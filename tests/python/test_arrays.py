"""Arrays of every kind are read in place, and an error names the argument that is wrong."""

import array

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp, placed


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
    with pytest.raises(TypeError, match="out: got an array of float64 on the CPU, expected float32 on the CPU"):
        trained.predict_proba(x, np.empty((len(x), 3)))
    out.flags.writeable = False
    with pytest.raises(TypeError, match="out: got an array that is read-only, expected one that can be written"):
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


class Interface:
    """An array that has __array_interface__ and nothing else."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Capsule:
    """An array that has DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Device:
    """Claims to be on a GPU; it must not be read here."""

    __cuda_array_interface__ = {"shape": (240, 6), "typestr": "<f4", "data": (64, False), "version": 3}
    shape = (240, 6)


def test_every_protocol_is_read_where_it_lies(trained, data):
    x, y = data
    want = trained.predict_proba(x)
    before = rl.copied_bytes()
    for same in (Interface(x), Capsule(x), memoryview(x)):
        np.testing.assert_array_equal(trained.predict_proba(same), want)
        np.testing.assert_array_equal(trained.compile(batch=240)(same), trained.compile(batch=240)(x))
        assert trained.evaluate(same, y) == trained.evaluate(x, y)
        model = mlp()
        model.fit(same, y, epochs=1)
        other = mlp()
        other.fit(x, y, epochs=1)
        np.testing.assert_array_equal(model.state_dict()["0.weight"], other.state_dict()["0.weight"])
    assert rl.copied_bytes() == before
    strided = np.repeat(x, 2, axis=0)[::2]
    np.testing.assert_array_equal(trained.predict_proba(Interface(strided)), want)
    assert rl.copied_bytes() == before + x.nbytes
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    np.testing.assert_array_equal(trained.predict_proba(unaligned), want)


def test_fit_reads_samples_where_they_lie(data):
    """A run sees a change of the array made during the run: nothing was copied."""
    x, y = data
    x = placed(x)
    before = rl.copied_bytes()
    clean = mlp()
    clean.fit(x, y, epochs=3, batch_size=24)
    seen = mlp()
    seen.fit(x, y, epochs=3, batch_size=24, callbacks=lambda epoch, logs: x.fill(0))
    assert rl.copied_bytes() == before
    assert (clean.state_dict()["0.weight"] != seen.state_dict()["0.weight"]).any()
    standardised = mlp(scale="standard")
    standardised.fit(data[0], y, epochs=1)
    assert rl.copied_bytes() == before + x.nbytes


def test_answers_alias_our_memory(trained, data):
    x, _ = data
    answer = trained.predict_proba(x)
    address = answer.ctypes.data
    assert np.asarray(answer).ctypes.data == address
    assert np.from_dlpack(answer).ctypes.data == address
    view = np.asarray(memoryview(answer))
    want = answer.copy()
    del answer
    trained.predict_proba(x * 0)
    np.testing.assert_array_equal(view, want)
    out = np.empty_like(want)
    handle = trained.compile(batch=240)
    assert handle(x, out) is out


def test_weights_can_be_views(data):
    x, y = data
    model = mlp()
    view = model.state_dict(copy=False)
    assert view["0.weight"].ctypes.data == model.state_dict(copy=False)["0.weight"].ctypes.data
    assert model.state_dict()["0.weight"].ctypes.data != view["0.weight"].ctypes.data
    model.predict(x)
    view["2.weight"][:] = 0
    view["2.bias"][:] = [0, 5, 0]
    model.weights_changed()
    assert (model.predict(x) == 1).all()
    weight = view["0.weight"]
    kept = weight.copy()
    del model, view
    mlp().fit(x, y, epochs=1)
    np.testing.assert_array_equal(weight, kept)


def test_arrays_of_other_devices_are_refused(trained, data):
    for call in (trained.predict_proba, trained.predict, trained.compile(batch=240)):
        with pytest.raises(ValueError, match="x: got an array on cuda:0, expected one on"):
            call(Device())
    with pytest.raises(ValueError, match="cuda:0"):
        mlp().fit(Device(), data[1], epochs=1)
    with pytest.raises(ValueError, match="cuda:0"):
        mlp().train_step(Device(), data[1])


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_other_frameworks(package, trained, data):
    x, _ = data
    module = pytest.importorskip(package)
    want = trained.predict_proba(x)
    theirs = module.numpy.asarray(x) if package == "jax" else module.from_numpy(x)
    before = rl.copied_bytes()
    np.testing.assert_array_equal(trained.predict_proba(theirs), want)
    np.testing.assert_array_equal(trained.compile(batch=240)(theirs), trained.compile(batch=240)(x))
    assert rl.copied_bytes() == before
    if package == "torch":
        answer = trained.predict_proba(theirs)
        assert module.from_dlpack(answer).data_ptr() == answer.ctypes.data
        with pytest.raises(TypeError, match="x: got an array of bfloat16"):
            trained.predict_proba(theirs.bfloat16())
    else:
        # jax takes memory that begins on a cache line as it is; any other it copies.
        from jax import dlpack

        np.testing.assert_array_equal(np.asarray(dlpack.from_dlpack(want)), want)


def test_tables_of_pandas(data):
    pandas = pytest.importorskip("pandas")
    x, y = data
    model = mlp()
    table = pandas.DataFrame(x.astype(np.float64), columns=list("abcdef"))
    want = model.predict_proba(x)
    np.testing.assert_array_equal(model.predict_proba(table), want)
    np.testing.assert_array_equal(model.predict_proba(table.astype("Float64")), want)
    mixed = pandas.DataFrame({"a": x[:, 0] > 0, "b": (9 * x[:, 1]).astype(np.int8), "c": x[:, 2], "d": x[:, 3].astype(float),
                              "e": pandas.array((9 * x[:, 4]).astype(np.int64), dtype="Int64"), "f": 0})
    np.testing.assert_array_equal(model.predict_proba(mixed), model.predict_proba(mixed.to_numpy(dtype=np.float64)))
    np.testing.assert_array_equal(model.predict_proba(mixed[["a", "b", "e", "f", "a", "b"]]),
                                  model.predict_proba(mixed[["a", "b", "e", "f", "a", "b"]].to_numpy(dtype=np.int64)))
    for targets in (pandas.Series(y), pandas.Series(y, dtype="Int64"), pandas.Series(y.astype(np.uint8))):
        assert model.evaluate(table, targets) == model.evaluate(x, y)
    one_each = mlp(loss="cross-entropy")
    assert one_each.evaluate(x, pandas.get_dummies(y)) == one_each.evaluate(x, y)
    mixed["e"] = mixed["e"].mask(mixed["a"])
    with pytest.raises(rl.DataError, match="missing"):
        model.fit(mixed, y)
    mixed["g"], mixed["h"] = "red", "blue"
    with pytest.raises(TypeError, match=r"x: got the column 'g' of .* and 1 more, expected numbers; pandas.get_dummies"):
        model.fit(mixed, y)
    with pytest.raises(TypeError, match="y: got an array of .*RidgelineClassifier takes words"):
        model.fit(table, pandas.Series(np.array(list("abc"))[y], dtype="category"))
