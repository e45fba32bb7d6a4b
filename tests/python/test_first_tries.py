"""What people try first, with the habits of Keras, PyTorch and scikit-learn: it works, or the error says what does."""

import threading

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp
from ridgeline import nn

QUICK = {"device": "cpu", "threads": 1, "tune": False}


def images(*layers, **keywords):
    return rl.Model(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), **QUICK, **keywords)


def test_grey_images_come_in_any_shape_of_one_channel():
    random = np.random.default_rng(0)
    grey, y = random.random((40, 8, 8), np.float32), random.integers(0, 2, 40)
    expected = images(input_shape=(1, 8, 8)).predict_proba(grey[:, None])
    for x in (grey, grey[:, None], grey[..., None], memoryview(grey)):
        known, unknown = images(input_shape=(1, 8, 8)), images()
        np.testing.assert_array_equal(known.predict_proba(x), expected)
        before = rl.copied_bytes()
        assert len(known.fit(x, y, epochs=1)) == len(unknown.fit(x, y, epochs=1)) == 1
        assert known.evaluate(x, y)["loss"] == pytest.approx(unknown.evaluate(x, y)["loss"], rel=1e-5)
        assert rl.copied_bytes() == before or not isinstance(x, np.ndarray) or x.flags.c_contiguous
    with pytest.raises(ValueError, match=r"a single sample is x\[None\]"):
        known.predict(grey[0])
    one = rl.Model(nn.Sequential(nn.Linear(1, 1)), loss="mse", **QUICK)  # a feature may be a column or a row
    assert len(one.fit(np.ones(10, np.float32), np.ones(10, np.float32), epochs=1)) == 1


def test_channels_come_first():
    colour = np.zeros((10, 8, 9, 3), np.uint8)
    model = rl.Model(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(2)), **QUICK)
    with pytest.raises(ValueError, match=r"got samples \[8, 9, 3\], expected 3 channels first: x.transpose\(0, 3, 1, 2\)"):
        model.fit(colour, np.zeros(10, int))
    assert len(model.fit(colour.transpose(0, 3, 1, 2), np.arange(10) % 2, epochs=1)) == 1


def test_lists_of_layers(data):
    for network in ([nn.Linear(6, 3)], nn.Sequential([nn.Linear(6, 3)])):
        model = rl.Model(network, **QUICK)
        np.testing.assert_array_equal(model(data[0]), model.outputs(data[0]))
    flat = rl.Model([nn.Flatten(), nn.Linear(6, 3)], **QUICK)
    np.testing.assert_array_equal(flat(data[0].reshape(-1, 2, 3)), flat(data[0]))
    assert len(flat.fit(data[0].reshape(-1, 3, 2), data[1], epochs=1)) == 1
    with pytest.raises(ValueError, match=r"samples are \[7\] each, but the model takes \[6\]"):
        flat(np.zeros((3, 7), np.float32))


@pytest.mark.parametrize("theirs, ours", [("sparse_categorical_crossentropy", "cross-entropy"), ("CrossEntropyLoss", "cross-entropy"),
                                          ("binary_crossentropy", "binary-cross-entropy"), ("bce", "binary-cross-entropy"),
                                          ("BCEWithLogitsLoss", "binary-cross-entropy"), ("mean_squared_error", "mse"),
                                          ("L1Loss", "mae"), ("Huber", "huber"), ({"type": "BCE"}, "binary-cross-entropy")])
def test_losses_by_other_names(theirs, ours):
    made = mlp(loss=theirs).config["train"]["loss"]
    assert (made["type"] if isinstance(made, dict) else made) in (ours, str(theirs)) and mlp(loss=theirs)._loss().lower() == ours
    with pytest.raises(rl.UsageError, match="known: cross-entropy"):
        mlp(loss="entropy")


def test_settings_of_training_are_keywords(data):
    assert mlp(clip_norm=0.5).config["train"]["clip_norm"] == 0.5
    still = mlp(optimizer="sgd", lr=1.0, clip_norm=1e-9)
    before = still.state_dict()["0.weight"]
    still.train_step(*data)
    np.testing.assert_allclose(still.state_dict()["0.weight"], before, atol=1e-8)
    moved = images(scale="unit", augment={"shift": 1, "flip": True})
    assert moved.config["data"]["augment"] == {"shift": 1, "flip": True}
    with pytest.raises(rl.UsageError, match='augment: got samples that are not scaled, expected .* scale="unit"'):
        images(augment={"shift": 1})
    x = np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8), np.uint8)
    assert len(moved.fit(x, np.arange(20) % 2, epochs=1)) == 1


def test_fine_tuning_in_two_stages(data):
    x, y = data
    base, model = mlp(seed=1), mlp(seed=2, outputs=5, freeze=0)
    base.fit(x, y, epochs=2)
    body = {name: value for name, value in base.state_dict().items() if name.startswith("0.")}
    with pytest.raises(rl.UsageError, match="2.weight is missing"):
        model.load_state_dict(body)
    model.load_state_dict({**body, "head.weight": x}, strict=False)
    np.testing.assert_array_equal(model.state_dict()["0.weight"], body["0.weight"])
    with pytest.raises(rl.UsageError, match="got none of the model's weights"):
        model.load_state_dict({"head.weight": x}, strict=False)
    model.fit(x, y, epochs=1)
    model.train_step(x, y)
    np.testing.assert_array_equal(model.state_dict()["0.weight"], body["0.weight"])
    assert model.freeze == [0]
    model.freeze = []
    model.train_step(x, y)
    assert (model.state_dict()["0.weight"] != body["0.weight"]).any()
    model.freeze = ["0", "relu"]
    model.freeze = []
    for wrong in ("backbone", [7], ["0.weight"]):
        with pytest.raises(rl.UsageError, match="freeze: got .*, expected layers by number, 0 to 2, or by type: 'linear', 'relu'"):
            model.freeze = wrong
        with pytest.raises(rl.UsageError, match="freeze"):
            mlp(freeze=wrong)
    assert model.freeze == []


class Table:
    """What of pandas' DataFrame is looked at."""

    def __init__(self, x, columns):
        self.x, self.columns = x, columns

    def __array__(self, dtype=None, copy=None):
        return self.x


def test_columns_of_tables_are_remembered(data):
    x, y = data
    names = list("abcdef")
    model = mlp()
    model.fit(Table(x, names), y, epochs=2, batch_size=24, shuffle=False)
    np.testing.assert_array_equal(model.predict(Table(x, names)), model.predict(x))
    for columns, what in ((names[::-1], "in another order"), (list("abcdeg"), "without 'f'"), ([*names, "g"], "with 'g'")):
        for call in (model.predict, model.predict_proba, lambda table: model.evaluate(table, y)):
            with pytest.raises(ValueError, match=f"x: got columns {what}, expected those .* trained on: a, b, c, d, e, f"):
                call(Table(x, columns))
    with pytest.raises(ValueError, match=r"validation\[0\]: got columns in another order"):
        model.fit(Table(x, names), y, validation=(Table(x, names[::-1]), y))
    model.fit(x, y, epochs=1)
    model.predict(Table(x, names[::-1]))
    again = mlp()
    again.fit(x, y, epochs=2, batch_size=24, shuffle=False)
    again.fit(x, y, epochs=1)
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


def test_files_of_others(trained, tmp_path):
    for name in ("net.pt", "net.onnx", "net.npz", "net.h5", "net.pkl"):
        with pytest.raises(ValueError, match="expected the name of a .safetensors file; "):
            trained.save(tmp_path / name)
    assert trained.to_onnx(tmp_path / "net.onnx") is None
    assert (tmp_path / "net.onnx").read_bytes() == trained.to_onnx()


def test_samples_of_several_lengths():
    with pytest.raises(ValueError, match="samples of several lengths are padded to one"):
        mlp().fit([[1.0] * 6, [2.0] * 5], [0, 1])


def test_only_layers_are_listed():
    assert "Linear" in dir(nn) and not {"Any", "Iterable", "annotations", "TYPE_CHECKING"} & set(dir(nn))


def test_steps_of_several_threads_follow_each_other():
    x, y = blobs()
    together, alone = mlp(optimizer="sgd"), mlp(optimizer="sgd")
    expected = alone.train_step(x[:40], y[:40], lr=0.0)["loss"]
    losses, raised = [], []

    def work(first):
        try:
            for _ in range(40):
                losses.append((first, together.train_step(x[first:first + 40], y[first:first + 40], lr=0.0)["loss"]))
                together.predict(x[:3])
        except BaseException as error:  # reported below
            raised.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 40, 80)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not raised and len(losses) == 120
    assert {round(loss, 6) for first, loss in losses if first == 0} == {round(expected, 6)}
    assert together._steps.steps() == 120
