"""Models: building, training, answering, files."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp
from ridgeline import nn

TABLES = {"model": {"layers": [{"type": "linear", "out": 16}, {"type": "relu"}, {"type": "linear", "out": 3}]},
          "train": {"optimizer": {"type": "adam", "lr": 0.02}}, "run": {"device": "cpu", "threads": 1, "tune": False}}


def test_fit_learns_and_tells(data):
    x, y = data
    model = mlp()
    history = model.fit(x, y, validation=blobs(seed=2), epochs=6, batch_size=24)
    assert len(history) == 6 and history["epoch"] == [1, 2, 3, 4, 5, 6]
    assert history.steps == 60
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_accuracy"][-1] > 0.9
    assert set(history.history) >= {"loss", "accuracy", "lr", "val_loss", "val_f1"}
    assert (model.predict(x) == y).mean() > 0.9
    scores = model.evaluate(x, y)
    assert scores["accuracy"] == pytest.approx((model.predict(x) == y).mean())
    probabilities = model.predict_proba(x)
    assert probabilities.shape == (len(x), 3) and probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    loss = -np.log(probabilities[np.arange(len(y)), y]).mean()
    assert scores["loss"] == pytest.approx(loss, rel=1e-4)


def test_configs_are_models_too(data, tmp_path):
    x, y = data
    file = tmp_path / "net.toml"
    file.write_text(rl._model._config.to_toml(TABLES))
    for config in (TABLES, file, str(file)):
        model = rl.Model(config)
        model.fit(x, y + 4, epochs=6, batch_size=24)
        assert (model.predict(x) == y + 4).mean() > 0.9
        assert list(model.classes_) == [4, 5, 6]


def test_regression(data):
    x, _ = data
    value = 3 * x[:, 0] - 2
    model = rl.Model(nn.Sequential(nn.Linear(6, 1)), optimizer="adam", lr=0.1, device="cpu", tune=False)
    model.fit(x, value, epochs=60, batch_size=24)
    assert model.evaluate(x, value)["r2"] > 0.99
    assert model.predict(x).shape == (len(x),)
    np.testing.assert_allclose(model.state_dict()["0.weight"][0, 0], 3, atol=0.2)
    both = np.stack([value, -value], axis=1)
    two = rl.Model(nn.Sequential(nn.Linear(6, 2)), loss="mse", optimizer="adam", lr=0.1, device="cpu", tune=False)
    two.fit(x, both, epochs=5)
    assert two.predict(x).shape == (len(x), 2)
    with pytest.raises(rl.UsageError, match="predict_proba"):
        two.predict_proba(x)


def test_probabilities_of_labels(data):
    x, y = data
    labels = np.eye(3)[y]
    model = mlp(loss="binary-cross-entropy")
    model.fit(x, labels, epochs=20, batch_size=24)
    assert ((model.predict_proba(x) > 0.5) == labels).mean() > 0.9
    np.testing.assert_array_equal(model.predict_proba(x), model.outputs(x))


@pytest.mark.parametrize("scale", ["raw", "standard"])
def test_rows_with_a_one_are_classes(data, scale):
    x, y = data
    model, same = mlp(loss="cross-entropy", scale=scale), mlp(scale=scale)
    same.fit(x, y, validation=(x, y), epochs=2)
    for kind in (np.float32, np.float64, np.int64, np.uint8, bool):
        rows = np.eye(3, dtype=kind)[y]
        model = mlp(loss="cross-entropy", scale=scale)
        model.fit(x, rows, validation=(x, rows), epochs=2)
        np.testing.assert_array_equal(model.predict_proba(x), same.predict_proba(x))
        assert model.evaluate(x, rows) == same.evaluate(x, y)
    assert model.train_step(x, rows) == same.train_step(x, y)


def test_frozen_layers_and_schedules_by_name(data):
    model = mlp(freeze=[0], schedule="cosine")
    before = model.state_dict()
    rates = model.fit(*data, epochs=4)["lr"]
    model.train_step(*data)
    after = model.state_dict()
    assert rates == sorted(rates, reverse=True) and rates[-1] < 0.1 * rates[0]
    np.testing.assert_array_equal(after["0.weight"], before["0.weight"])
    assert (after["2.weight"] != before["2.weight"]).all()


def test_a_fit_goes_on_from_the_weights(data):
    x, y = data
    model = mlp()
    first = model.fit(x, y, epochs=1)
    second = model.fit(x, y, epochs=1)
    assert second["loss"][0] < first["loss"][0]
    before = model.predict_proba(x)
    model.fit(x, y, epochs=0)
    np.testing.assert_array_equal(model.predict_proba(x), before)


def test_files_pickles_and_copies(trained, data, tmp_path):
    x, _ = data
    want = trained.predict_proba(x)
    trained.save(tmp_path / "net.safetensors")
    for other in (rl.load(tmp_path / "net.safetensors", tune=False), pickle.loads(pickle.dumps(trained)),
                  copy.deepcopy(trained)):
        np.testing.assert_array_equal(other.predict_proba(x), want)
        assert other.input_shape == (6,) and list(other.classes_) == [0, 1, 2]
    untouched = copy.deepcopy(trained)
    untouched.load_state_dict({name: value * 0 for name, value in trained.state_dict().items()})
    np.testing.assert_array_equal(trained.predict_proba(x), want)
    with pytest.raises(FileNotFoundError):
        rl.load(tmp_path / "nowhere")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(rl.ModelError, match="bad.safetensors"):
        rl.load(tmp_path / "bad.safetensors")


def test_state_dict(trained, data):
    state = trained.state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "0.weight": (16, 6), "0.bias": (16,), "2.weight": (3, 16), "2.bias": (3,)}
    x, _ = data
    hidden = np.maximum(x @ state["0.weight"].T + state["0.bias"], 0)
    logits = hidden @ state["2.weight"].T + state["2.bias"]
    want = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(trained.predict_proba(x), want, atol=1e-5)
    model = mlp()
    with pytest.raises(ValueError, match=r"2\.bias is missing"):
        model.load_state_dict({name: value for name, value in state.items() if name != "2.bias"})
    with pytest.raises(ValueError, match=r"0\.weight is"):
        model.load_state_dict({**state, "0.weight": state["0.weight"].T.copy()})
    model.load_state_dict({name: value.astype(np.float64) for name, value in state.items()})
    np.testing.assert_array_equal(model.predict_proba(x), trained.predict_proba(x))


def test_callbacks_stop_and_raise(data):
    x, y = data
    seen = []
    history = mlp().fit(x, y, epochs=50, callbacks=lambda epoch, logs: seen.append(logs["loss"]) or epoch < 3)
    assert len(history) == 3 and seen == history["loss"]
    assert len(mlp().fit(x, y, epochs=50, callbacks=lambda epoch, logs: np.float32(epoch) < 3)) == 3

    class Broken(rl.callbacks.Callback):
        def on_epoch_end(self, epoch, logs):
            raise ZeroDivisionError("of the callback")

    model = mlp()
    before = model.predict_proba(x)
    with pytest.raises(ZeroDivisionError, match="of the callback"):
        model.fit(x, y, epochs=50, callbacks=[Broken()])
    assert (model.predict_proba(x) != before).any(), "the steps made are kept"
    stopping = rl.callbacks.EarlyStopping("val_loss", patience=2, min_delta=1e9)
    assert len(mlp().fit(x, y, validation=0.25, epochs=50, callbacks=[stopping])) == 3
    with pytest.raises(TypeError, match=r"callbacks\[0\]: got int"):
        mlp().fit(x, y, callbacks=[3])


@pytest.mark.parametrize("scale", ["raw", "standard"])
def test_callbacks_see_the_current_weights(data, tmp_path, scale):
    x, y = data
    model, undisturbed, short = mlp(scale=scale), mlp(scale=scale), mlp(scale=scale)
    losses = []

    def look(epoch, logs):
        losses.append(model.evaluate(x, y)["loss"])
        model.save(tmp_path / f"{epoch}.safetensors")
        assert copy.deepcopy(model).evaluate(x, y)["loss"] == losses[-1]

    model.fit(x, y, epochs=3, batch_size=24, callbacks=look)
    assert losses[0] > losses[1] > losses[2] == model.evaluate(x, y)["loss"]
    undisturbed.fit(x, y, epochs=3, batch_size=24)
    short.fit(x, y, epochs=1, batch_size=24)
    np.testing.assert_array_equal(model.predict_proba(x), undisturbed.predict_proba(x))
    np.testing.assert_array_equal(rl.load(tmp_path / "1.safetensors", tune=False).predict_proba(x), short.predict_proba(x))


def test_the_best_epoch_is_kept(data, tmp_path):
    """The rate grows until the run gets worse, so that the best epoch is not the last."""
    x, y = data
    model = mlp()
    stopping = rl.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    history = model.fit(x, y, validation=blobs(seed=2), epochs=60, batch_size=24, callbacks=[
        stopping, rl.callbacks.ModelCheckpoint(tmp_path / "best.safetensors"), rl.callbacks.LearningRate(lambda e, r: r * 2)])
    best = min(history["val_loss"])
    assert stopping.best == best == history["val_loss"][-3]
    for each in (model, rl.load(tmp_path / "best.safetensors", tune=False)):
        assert each.evaluate(*blobs(seed=2))["loss"] == pytest.approx(best, rel=1e-5)
    with pytest.raises(KeyError, match="ModelCheckpoint: got monitor 'val_loss', expected one of loss"):
        model.fit(x, y, epochs=1, callbacks=rl.callbacks.ModelCheckpoint(tmp_path / "other.safetensors"))


@pytest.mark.parametrize("change", [lambda model, x, y: model.fit(x, y), lambda model, x, y: model.train_step(x, y),
                                    lambda model, x, y: model.load_state_dict(model.state_dict())])
def test_callbacks_do_not_change_the_weights(data, change):
    model = mlp()
    with pytest.raises(rl.UsageError, match=r"fit\(\) is training the model"):
        model.fit(*data, callbacks=lambda epoch, logs: change(model, *data))
    model.fit(*data, epochs=1)


def test_ctrl_c_keeps_the_model(tmp_path):
    script = """
import os, signal, sys, threading
sys.path.insert(0, %r)
from conftest import blobs, mlp
x, y = blobs(); model = mlp(); before = model.predict_proba(x)
threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model.fit(x, y, epochs=1000000)
except KeyboardInterrupt:
    assert (model.predict_proba(x) != before).any()
    assert model.evaluate(x, y)["accuracy"] > 0.9
    print("interrupted")
""" % str(__file__).rsplit("/", 1)[0]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr


def test_signals_are_handled_between_batches():
    """A handler that raises, as that of Ctrl-C does, ends a long predict before its last sample."""
    import signal

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    layers = rl.nn.Sequential(rl.nn.Linear(6, 256), rl.nn.ReLU(), rl.nn.Linear(256, 256), rl.nn.ReLU(), rl.nn.Linear(256, 3))
    model = rl.Model(layers, input_shape=(6,), scale="raw", device="cpu", tune=False)
    x, out = np.ones((400_000, 6), np.float32), np.empty((400_000, 3), np.float32)
    model.outputs(x[:1])
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(50):
            out.fill(np.nan)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                model.outputs(x, out)
                signal.pause()
            except Stop:
                pass
            if np.isfinite(out[0]).all() and np.isnan(out[-1]).all():
                break
        else:
            pytest.fail("no call was ended between its first batch and its last")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert np.isfinite(model.outputs(x[:300])).all()


def test_signals_end_an_evaluation():
    import signal
    import time

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    layers = rl.nn.Sequential(rl.nn.Linear(6, 256), rl.nn.ReLU(), rl.nn.Linear(256, 256), rl.nn.ReLU(), rl.nn.Linear(256, 3))
    model = rl.Model(layers, device="cpu", threads=1, tune=False)
    x, y = np.ones((400_000, 6), np.float32), np.zeros(400_000, int)
    model.evaluate(x[:1000], y[:1000])
    begin = time.process_time()
    whole = model.evaluate(x, y)
    taken = time.process_time() - begin
    before = signal.signal(signal.SIGPROF, stop)
    begin = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, taken / 10)
        with pytest.raises(Stop):
            model.evaluate(x, y)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert time.process_time() - begin < taken / 2
    assert model.evaluate(x, y) == whole


def test_a_forked_child_is_refused(trained, data):
    """Threads do not survive a fork: an error, never a hang."""
    import os

    trained.predict_proba(data[0])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            trained.predict_proba(data[0])
            os.write(write, b"computed")
        except rl.UsageError as error:
            os.write(write, b"refused" if "forked" in str(error) else b"other")
        finally:
            os._exit(0)
    assert os.read(read, 100) == b"refused"
    os.waitpid(child, 0)
    trained.predict_proba(data[0])


def test_layers_are_checked(data):
    with pytest.raises(ValueError, match=r"layer 2 \(linear\): got 17 inputs, expected 16"):
        rl.Model(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(17, 3)), device="cpu")
    with pytest.raises(TypeError, match="layer 1: got str"):
        nn.Sequential(nn.ReLU(), "linear")
    with pytest.raises(TypeError, match="network: got int"):
        rl.Model(3)
    with pytest.raises(ValueError, match="section 'modle'"):
        rl.Model({"modle": {}})
    with pytest.raises(rl.UsageError, match="no weights yet"):
        rl.Model(TABLES).predict(data[0])
    with pytest.raises(rl.UsageError, match="optimiser|optimizer"):
        mlp(optimizer={"type": "adan"}, lr=None)


def test_a_prepared_call_allocates_nothing(trained, data):
    handle, x, out = trained.compile(batch=1), data[0][:1], np.empty((1, 3), np.float32)
    for _ in range(100):
        handle(x, out)
    before = sys.getallocatedblocks()
    for _ in range(5000):
        handle(x, out)
    assert sys.getallocatedblocks() - before < 20


def test_compile(trained, data):
    x, _ = data
    handle = trained.compile(batch=1)
    want = trained.predict_proba(x[:1])
    np.testing.assert_allclose(handle(x[:1]), want, atol=1e-6)
    out = np.empty((1, 3), np.float32)
    assert handle(x[:1], out) is out
    np.testing.assert_allclose(out, want, atol=1e-6)
    assert (handle.batch, handle.input_shape, handle.outputs) == (1, (6,), 3)
    several = trained.compile(batch=8)
    for n in (1, 7, 8):
        np.testing.assert_allclose(several(x[:n]), trained.predict_proba(x[:n]), atol=1e-6)
    with pytest.raises(ValueError, match=r"x: got shape \(9, 6\), expected at most \(8, 6\)"):
        several(x[:9])
    with pytest.raises(ValueError, match=r"x: got shape \(1, 5\)"):
        several(x[:1, :5])
    with pytest.raises(TypeError, match="x: got an array of float64, expected float32"):
        several(x[:1].astype(np.float64))


def test_handles_in_threads(trained, data):
    x, _ = data
    from concurrent.futures import ThreadPoolExecutor

    want = trained.predict_proba(x)
    handles = [trained.compile(batch=len(x)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda handle: [handle(x) for _ in range(50)][-1], handles):
            np.testing.assert_allclose(answer, want, atol=1e-6)
        for answer in pool.map(lambda _: trained.predict_proba(x), range(20)):
            np.testing.assert_array_equal(answer, want)


def test_summary(capsys):
    model = rl.Model(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Residual(nn.Conv2d(4, 4, 1)), nn.LazyLinear(10)),
                     input_shape=(1, 8, 8), device="cpu", tune=False)
    model.summary()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["input", "(1,", "8,", "8)"]
    assert lines[2] == ["0", "conv2d", "(4,", "6,", "6)", "40"]
    assert lines[3][-1] == "8", "running statistics are not trained"
    assert lines[-2] == ["3", "linear", "(10,)", "1,450"] and lines[-1] == ["total", "1,518"]
    assert model.count_params() == 40 + 8 + 20 + 1450
    with pytest.raises(rl.UsageError, match="summary: the model has no weights yet"):
        rl.Model(nn.Sequential(nn.LazyLinear(3))).summary()


def test_a_model_that_is_not_finite_is_not_written(data, tmp_path):
    model, file = mlp(), tmp_path / "model.safetensors"
    model.fit(*data, epochs=1)
    model.save(file)
    kept, state = file.read_bytes(), model.state_dict()
    state["2.bias"][1] = np.nan
    model.load_state_dict(state)
    with pytest.raises(rl.NumericError, match="model.safetensors.*'2.bias' has 1 weight that is not finite"):
        model.save(file)
    assert file.read_bytes() == kept
    with pytest.raises(rl.ModelError, match="'2.bias' has 1 weight that is not finite"):
        model.to_onnx()


def test_a_history_is_a_mapping(data):
    history = mlp().fit(*data, validation=0.25, epochs=2)
    assert "val_loss" in history and "val_lss" not in history
    assert dict(history) == history.history and list(history)[:2] == ["epoch", "loss"]
    with pytest.raises(KeyError, match="got 'val_lss', expected one of epoch, loss"):
        history["val_lss"]


def test_callbacks_end_even_if_the_run_fails(data):
    ended = []

    class Ending(rl.callbacks.Callback):
        def on_train_end(self, history):
            ended.append(history)

    x, y = data
    with pytest.raises(rl.NumericError):
        mlp(optimizer={"type": "sgd", "lr": 1e30}, lr=None).fit(x, y, epochs=50, callbacks=Ending())
    assert len(ended) == 1


def test_names(trained):
    assert rl.__version__.count(".") == 2
    for name in rl.__all__:
        if not name.startswith("Ridgeline"):
            assert getattr(rl, name) is not None
    assert "linear, relu, linear" in repr(trained)
    with pytest.raises(AttributeError, match="nonsense"):
        rl.nonsense
