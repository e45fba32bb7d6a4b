"""What is wrong with an argument is said by its name, what came and what was expected."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp
from ridgeline import nn


@pytest.mark.parametrize("change, error, message", [
    (lambda x, y: (x, np.array(list("abc"))[y]), TypeError, "y: got an array of <U1, expected float32.*takes words"),
    (lambda x, y: (x, y + 1), ValueError, "y: got 3 for sample 2, none of the 3 classes, expected 0 to 2"),
    (lambda x, y: (x, y - 1), ValueError, "y: got -1 for sample 0, none of the 3 classes"),
    (lambda x, y: (x, y.astype(float)), ValueError, "y: got 1 values a sample, expected 3, .*classes are integers"),
    (lambda x, y: (x, np.eye(3, dtype=int)[y]), ValueError, r"y: got shape \(240, 3\), expected \(240,\)"),
    (lambda x, y: (x[:, :5], y), ValueError, r"x: got shape \(240, 5\).*but the model takes \[6\]"),
    (lambda x, y: (x[:, 0], y), ValueError, r"x: got shape \(240,\)"),
    (lambda x, y: (x[:-1], y), ValueError, "x, y: got 239 samples and 240 targets"),
    (lambda x, y: (np.ma.masked_less(x, 0), y), TypeError, "x: got an array with a mask"),
    (lambda x, y: (x.astype(">f4"), y), TypeError, "x: got an array of >f4, expected float32"),
    (lambda x, y: (x.astype(object), y), TypeError, "x: got an array of object, expected float32.*; use .astype"),
    (lambda x, y: ([[1, 2], [3]], y), ValueError, "x: got list, expected an array"),
    (lambda x, y: ((row for row in x), y), TypeError, "x: got generator, expected an array"),
    (lambda x, y: (x, None), TypeError, "y: got NoneType, expected an array"),
    (lambda x, y: (None, y), TypeError, "x: got None, expected an array"),
    (lambda x, y: (np.where(x > 0, x, np.nan), y), ValueError, "^the training arrays: field 'inputs'.*missing"),
])
def test_arrays(data, change, error, message):
    with pytest.raises(error, match=message):
        mlp().fit(*change(*data))
    if "training arrays" not in message and "None" not in message:
        for call in (mlp().evaluate, mlp().train_step):
            if "values a sample" in message and call.__name__ == "evaluate":
                continue  # a classifier compares classes
            with pytest.raises(error, match=message):
                call(*change(*data))


@pytest.mark.parametrize("keywords, error, message", [
    ({"epochs": -1}, ValueError, "epochs: got -1, expected at least 0"),
    ({"epochs": 1.5}, TypeError, "epochs: got 1.5, expected a whole number"),
    ({"batch_size": 0}, ValueError, "batch_size: got 0, expected at least 1"),
    ({"batch_size": "a"}, TypeError, "batch_size: got 'a', expected a whole number"),
    ({"validation": 1}, TypeError, "validation: got int"),
    ({"validation": 0.999}, ValueError, "validation: got 0.999 of 240 samples, expected a fraction that leaves some"),
    ({"callbacks": 3}, TypeError, "callbacks: got int"),
    ({"callbacks": [rl.callbacks.EarlyStopping]}, TypeError, r"callbacks\[0\]: got the class EarlyStopping, expected an obj"),
    ({"validation": (blobs()[0][:, :3], blobs()[1])}, ValueError, r"validation\[0\]: got shape \(240, 3\)"),
    ({"validation": (blobs()[0], blobs()[1] + 7)}, ValueError, r"validation\[1\]: got 7 for sample 0"),
])
def test_keywords_of_fit(data, keywords, error, message):
    with pytest.raises(error, match=message):
        mlp().fit(*data, **keywords)


@pytest.mark.parametrize("call, error, message", [
    (lambda: rl.Model(nn.Sequential(nn.Linear(6, 3)), optimizer=3), TypeError, "optimizer: got 3, expected a name"),
    (lambda: rl.Model(nn.Sequential(nn.LazyLinear(3)), input_shape=(0,)), ValueError, "input_shape: got 0"),
    (lambda: rl.Model(nn.Sequential(nn.LazyLinear(3)), input_shape="6"), TypeError, "input_shape: got '6'"),
    (lambda: mlp().train_step(*blobs(), lr=-1), ValueError, "lr: got -1, expected"),
    (lambda: mlp().train_step(*blobs(), lr="fast"), TypeError, "lr: got 'fast', expected a number"),
    (lambda: mlp().compile(0), ValueError, "batch: got 0, expected at least 1"),
    (lambda: mlp().compile("a"), TypeError, "batch: got 'a', expected a whole number"),
    (lambda: mlp().compile(threads=0), ValueError, "threads: got 0, expected at least 1"),
    (lambda: mlp().compile()(None), TypeError, "x: got NoneType, expected an array"),
    (lambda: mlp().load_state_dict([1]), TypeError, "state: got list, expected a dict"),
    (lambda: mlp(outputs=1).fit(*blobs()), ValueError, "expected 0 to 0; two classes take two outputs, or loss=.binary"),
    (lambda: mlp().plan(), TypeError, "x: got None, expected an array"),
    (lambda: mlp().profile(*blobs(), seconds=-1), ValueError, "seconds: got -1, expected a number above 0"),
    (lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU), TypeError, r"layer 1: got the class ReLU, expected an object of it: ReLU"),
    (lambda: nn.Sequential(nn.ReLU(), [nn.Linear(6, 3)]), TypeError, r"layer 1: got list, .*; write Sequential\(\*layers\)"),
    (lambda: nn.Softmax(dim=1), AttributeError, "the loss applies it, and predict_proba gives probabilities"),
    (lambda: nn.Nonsense, AttributeError, "no attribute 'Nonsense'$"),
    (lambda: rl.Model(nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), loss="binary-cross-entropy"), ValueError,
     r"applies the sigmoid itself: leave out the last layer"),
    (lambda: rl.Model(nn.Sequential(nn.LSTM(3, 8), nn.Linear(8, 2)), input_shape=(5, 3)), ValueError,
     r"layer 1 \(linear\): got 8 inputs, expected 40, .*nn.Select\(\) before it takes the last timestep"),
    (lambda: mlp().save("net.onnx"), ValueError, r"path: got 'net.onnx', expected .*to_onnx writes ONNX"),
    (lambda: rl.from_onnx(b"\x08"), TypeError, "path: got bytes, expected the path of a file"),
    (lambda: mlp().fit(zip(*blobs())), TypeError, "x: got zip, expected an array .*batches go to train_step"),
    (lambda: mlp().fit(*blobs(), callbacks=rl.callbacks.EarlyStopping()), KeyError,
     "EarlyStopping: got monitor 'val_loss', expected one of loss, .*fit needs validation"),
    (lambda: mlp(loss="cross-entropy").fit(blobs()[0], np.full((240, 3), 1 / 3)), ValueError,
     r"y: got \[0.33.* for sample 0, expected a class, or a one for it and zeros for the others"),
    (lambda: mlp(loss="cross-entropy").fit(*blobs(), validation=(blobs()[0], np.ones((240, 3)))), ValueError,
     r"validation\[1\]: got \[1.0, 1.0, 1.0\] for sample 0"),
])
def test_other_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("change, remedy", [
    (lambda x: x[0], r"x\[None\]"),
    (lambda x: x.transpose(0, 2, 3, 1), r"x\.transpose\(0, 3, 1, 2\)"),
    (lambda x: x.reshape(4, -1), r"x\.reshape\(len\(x\), 3, 8, 8\)"),
])
def test_a_shape_that_can_be_mended(change, remedy):
    x = np.zeros((4, 3, 8, 8), np.float32)
    model = rl.Model(nn.Sequential(nn.Conv2d(3, 2, 3), nn.LazyLinear(2)), input_shape=(3, 8, 8), device="cpu", tune=False)
    with pytest.raises(ValueError, match=r"x: got shape .* but the model takes \[3, 8, 8\]; .*" + remedy):
        model.predict(change(x))
    namespace = {"x": change(x)}
    model.predict(eval(remedy.replace("\\", ""), namespace))


def test_what_is_taken(data):
    x, y = data
    assert len(mlp().fit(x, y, validation=np.float32(0.25), epochs=np.int64(1), callbacks=None)) == 1
    assert rl.Model(nn.Sequential(nn.LazyLinear(3)), input_shape=6, device="cpu", tune=False).predict(x).shape == (240,)
    assert mlp().fit(x, np.eye(3)[y], epochs=1)["loss"][0] > 0, "rows of floats are values"
    assert mlp().fit(np.ma.array(x), y, epochs=1).steps > 0, "nothing is masked"
    assert repr(mlp().compile(4)) == "Predictor(batch=4, input_shape=(6,), outputs=3)"


def test_weights_may_be_any_buffer():
    model = rl.Model(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), device="cpu", tune=False)
    state = model.state_dict()
    model.load_state_dict({name: memoryview(value) for name, value in state.items()})
    with pytest.raises(ValueError, match=r"0\.weight is"):
        model.load_state_dict({**state, "0.weight": bytearray(8)})


def test_remedies_are_those_of_python(data, tmp_path):
    """The library's own name flags of the command-line tool."""
    mlp().fit(*data, epochs=1, out=tmp_path / "run")
    with pytest.raises(rl.UsageError, match=r"^out: .*run: holds another run; remove it, or choose another folder$"):
        mlp().fit(*data, epochs=1, out=tmp_path / "run")
    with pytest.raises(rl.DeviceError, match=r'use device="cpu"'):
        mlp(device="cuda:7").predict(data[0])
