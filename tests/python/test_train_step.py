"""Training in the caller's own loop, and callbacks that change the rate."""

import json

import numpy as np
import pytest

import ridgeline as rl
from conftest import mlp
from ridgeline import callbacks


def test_steps_are_those_of_fit(data):
    x, y = data
    fitted, stepped = (mlp(optimizer={"type": "adam", "lr": 0.02}) for _ in range(2))
    fitted._config["train"]["shuffle"] = False
    history = fitted.fit(x, y, epochs=2, batch_size=24)
    losses = [stepped.train_step(x[i:i + 24], y[i:i + 24])["loss"] for _ in range(2) for i in range(0, 240, 24)]
    for name, value in fitted.state_dict().items():
        np.testing.assert_allclose(stepped.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    assert np.mean(losses[10:]) == pytest.approx(history["loss"][1], rel=1e-4)
    assert stepped.evaluate(x, y) == pytest.approx(fitted.evaluate(x, y), rel=1e-3)


def test_steps_go_on_after_answers_and_begin_anew_after_fit(data):
    x, y = data
    model = mlp()
    first = model.train_step(x, y)
    assert 0 <= first["accuracy"] <= 1
    before = model.predict_proba(x)
    second = model.train_step(x, y)
    assert second["loss"] < first["loss"]
    assert (model.predict_proba(x) != before).any()
    model.fit(x, y, epochs=1)
    assert model.train_step(x, y)["loss"] < second["loss"]
    values = x[:, 0] * 2
    regressor = mlp(outputs=1, loss="mse", optimizer="sgd")
    untouched = regressor.state_dict()["0.weight"]
    assert set(regressor.train_step(x, values, lr=0.0)) == {"loss"}
    np.testing.assert_array_equal(regressor.state_dict()["0.weight"], untouched)
    regressor.train_step(x, values, lr=0.5)
    assert (regressor.state_dict()["0.weight"] != untouched).any()
    with pytest.raises(ValueError, match="x, y: got 240 samples and 239 targets"):
        model.train_step(x, y[:-1])
    with pytest.raises(ValueError, match="none of the 3 classes"):
        model.train_step(x, y + 3)
    with pytest.raises(rl.UsageError, match="train_step: the model has no weights"):
        rl.Model({"model": {"layers": [{"type": "linear", "out": 3}]}}).train_step(x, y)


def test_callbacks_change_the_rate(data, tmp_path):
    x, y = data
    model = mlp(optimizer="sgd", lr=0.5)

    def halve(epoch, logs):
        model.lr = model.lr / 2

    history = model.fit(x, y, epochs=3, batch_size=24, callbacks=halve)
    assert history["lr"] == [0.5, 0.25, 0.125]
    assert model.lr == 0.5, "the rate of a run ends with it"
    still = mlp(optimizer="sgd", lr=0.5)
    before = still.state_dict()["0.weight"]
    log = tmp_path / "log.jsonl"
    history = still.fit(x, y, epochs=2, callbacks=[callbacks.LearningRate(lambda epoch, rate: 0.0),
                                                   callbacks.JsonLogger(log)])
    np.testing.assert_array_equal(still.state_dict()["0.weight"], before)
    assert [json.loads(line)["lr"] for line in log.read_text().splitlines()] == [0, 0] == history["lr"]
    slower = callbacks.ReduceOnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)
    assert mlp(optimizer="sgd", lr=0.4).fit(x, y, epochs=4, callbacks=slower)["lr"] == [0.4, 0.4, 0.2, 0.1]
    with pytest.raises(ValueError, match="lr: got -1"):
        model.lr = -1


def test_bars_and_displays(data):
    x, y = data

    class Bar:
        made = []

        def __init__(self, total, unit):
            self.total, self.n, self.closed = total, 0, False
            self.made.append(self)

        def update(self, steps):
            self.n += steps

        def set_postfix(self, values):
            self.shown = values

        def close(self):
            self.closed = True

    model = mlp()
    model._config["train"]["log_steps"] = 5
    history = model.fit(x, y, epochs=2, batch_size=24, callbacks=callbacks.ProgressBar(Bar))
    bar, = Bar.made
    assert bar.n == bar.total == 20 and bar.closed and "loss" in bar.shown
    page = history._repr_html_()
    assert "<svg" in page and "<td>2</td>" in page and page.count("<tr>") == 3
    if pytest.importorskip("tqdm"):
        mlp().fit(x, y, epochs=1, callbacks=callbacks.ProgressBar())
    pytest.importorskip("IPython")
    mlp().fit(x, y, epochs=1, callbacks=callbacks.NotebookDisplay())
