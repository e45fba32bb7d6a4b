"""Weights of samples: in fit, train_step, evaluate and the estimators."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp
from ridgeline import nn

COUNTS = np.random.default_rng(5).integers(0, 4, 240)
WEIGHTS = (COUNTS * (240 / COUNTS.sum())).astype(np.float32)  # the mean is 1: a step is that on the repeated samples


def targets(loss, x, y):
    if loss == "cross-entropy":
        return y
    if loss == "binary-cross-entropy":
        return (x[:, :3] > 0.5).astype(np.float32)
    return x[:, :3] * 2 + x[:, 3:6]


@pytest.mark.parametrize("loss", ["cross-entropy", "mse", "mae", "huber", "binary-cross-entropy",
                                  {"type": "cross-entropy", "weights": [1, 2, 3], "smoothing": 0.1}])
def test_weights_are_repeated_samples(data, loss):
    x, y = data
    y = targets(loss if isinstance(loss, str) else loss["type"], x, y)
    weighted, repeated, plain = (mlp(loss=loss, optimizer="sgd", lr=0.2, seed=3) for _ in range(3))
    if isinstance(loss, dict):  # classes are weighted before samples, in the mean of each batch
        weighted, repeated = (mlp(loss={**loss, "weights": [1, 1, 1]}, optimizer="sgd", lr=0.2, seed=3) for _ in range(2))
    x_repeated, y_repeated = x.repeat(COUNTS, axis=0), y.repeat(COUNTS, axis=0)
    history = weighted.fit(x, y, sample_weight=WEIGHTS, epochs=5, batch_size=240)
    expected = repeated.fit(x_repeated, y_repeated, epochs=5, batch_size=len(x_repeated))
    plain.fit(x, y, epochs=5, batch_size=240)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)
    for name, value in repeated.state_dict().items():
        np.testing.assert_allclose(weighted.state_dict()[name], value, rtol=1e-3, atol=1e-5)
    assert (weighted.state_dict()["0.weight"] != plain.state_dict()["0.weight"]).any()
    scores = weighted.evaluate(x, y, sample_weight=COUNTS)
    assert scores == pytest.approx(weighted.evaluate(x_repeated, y_repeated), rel=1e-4)
    assert scores["loss"] != pytest.approx(weighted.evaluate(x, y)["loss"], rel=1e-5)


def test_equal_weights_change_nothing(data):
    plain, ones = mlp(), mlp()
    plain.fit(*data, epochs=2, batch_size=24)
    ones.fit(*data, sample_weight=np.ones(240), epochs=2, batch_size=24)
    for name, value in plain.state_dict().items():
        np.testing.assert_allclose(ones.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    assert ones.evaluate(*data, sample_weight=[2] * 240) == pytest.approx(ones.evaluate(*data), rel=1e-5)


def test_a_step_minimises_the_mean_of_weight_times_loss(data):
    x, y = data
    weights = np.linspace(0, 5, 50)
    for precision, bound in (("fp32", 1e-5), ("bf16", 2e-2)):
        model = mlp(precision=precision)
        losses = -np.log(model.predict_proba(x[:50])[np.arange(50), y[:50]])
        step = model.train_step(x[:50], y[:50], sample_weight=weights)
        assert step["loss"] == pytest.approx((weights * losses).mean(), rel=bound)
    before = model.state_dict()["0.weight"]
    model.train_step(x[:50], y[:50], lr=0.1)
    assert (model.state_dict()["0.weight"] != before).any()


def by_definition(loss, z, random):
    """Targets, the losses of samples, and the gradients of these by the outputs z."""
    n, out = z.shape
    if loss == "cross-entropy":
        y = random.integers(0, out, n)
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return y, -np.log(p[np.arange(n), y]), p - np.eye(out)[y]
    y = random.random((n, out)).astype(np.float32)
    y = np.round(y) if loss == "binary-cross-entropy" else y
    d = z - y
    each, slope = {"mse": (d * d, 2 * d), "mae": (abs(d), np.sign(d)),
                   "huber": (np.where(abs(d) <= 1, d * d / 2, abs(d) - 0.5), np.clip(d, -1, 1)),
                   "binary-cross-entropy": (np.logaddexp(0, z) - z * y, 1 / (1 + np.exp(-z)) - y)}[loss]
    return y, each.mean(1), slope / out


@pytest.mark.parametrize("precision, bound", [("fp64", 1e-14), ("fp32", 1e-5)])
@pytest.mark.parametrize("loss", ["cross-entropy", "mse", "mae", "huber", "binary-cross-entropy"])
def test_losses_and_gradients_by_their_definition(loss, precision, bound):
    random = np.random.default_rng(2)
    for n, out in ((1, 2), (5, 3), (33, 17), (65, 10)):
        model = rl.Model(nn.Sequential(nn.Linear(4, out, bias=False)), loss=loss, optimizer="sgd", lr=1.0, tune=False,
                         threads=1, device="cpu", precision=precision)
        x, weights = random.normal(size=(n, 4)).astype(np.float32), random.uniform(0.2, 4, n).astype(np.float32)
        before = model.state_dict()["0.weight"].astype(float)
        y, losses, slopes = by_definition(loss, x.astype(float) @ before.T, random)
        step = model.train_step(x, y, sample_weight=weights)
        assert step["loss"] == pytest.approx((weights * losses).mean(), rel=bound)
        gradient = (slopes * weights[:, None] / n).T @ x.astype(float)
        scale = (abs(slopes) * weights[:, None] / n).T @ abs(x)
        assert (abs(before - model.state_dict()["0.weight"] - gradient) <= bound * (scale + abs(before))).all()


def test_scaled_samples_and_float_data(data):
    x, y = data
    config = {"model": {"layers": [{"type": "linear", "out": 1}]}, "train": {"loss": "mse"},
              "run": {"device": "cpu", "tune": False}}
    outlier = x[:, 0].copy()
    outlier[:20] += 100
    weights = np.ones(240)
    weights[:20] = 0
    model = rl.Model(config, optimizer="adam", lr=0.05)  # scales samples and targets
    model.fit(x, outlier, sample_weight=weights, epochs=150, batch_size=60)
    assert model.evaluate(x, outlier, sample_weight=weights)["mae"] < 0.1 < model.evaluate(x, outlier)["mae"]


def test_validation_has_weights_too(data):
    x, y = data
    model = mlp()
    history = model.fit(x[:200], y[:200], validation=(x[200:], y[200:], COUNTS[200:]), epochs=1)
    assert history["val_loss"][0] == pytest.approx(
        model.evaluate(x[200:], y[200:], sample_weight=COUNTS[200:])["loss"], rel=1e-5)
    unweighted = model.evaluate(x[200:], y[200:])["loss"]
    assert history["val_loss"][0] != pytest.approx(unweighted, rel=1e-5)
    assert len(mlp().fit(x, y, sample_weight=WEIGHTS, validation=0.2, epochs=1)["val_loss"]) == 1


@pytest.mark.parametrize("weights, error, words", [
    (np.ones(239), ValueError, "x, y: got 240 samples and 239 weights, expected as many of both"),
    (np.ones((240, 2)), ValueError, r"sample_weight: got shape \(240, 2\), expected one weight a sample"),
    (-np.ones(240), ValueError, "got the weight -1, expected finite numbers from 0 on"),
    (np.full(240, np.nan), ValueError, "got the weight nan"),
    (np.zeros(240), ValueError, "all weights are 0"),
    (["heavy"] * 240, TypeError, "sample_weight: got an array of <U5"),
    (3.0, TypeError, "sample_weight: got float, expected an array"),
])
def test_wrong_weights_are_named(data, trained, weights, error, words):
    for call in (mlp().fit, mlp().train_step, trained.evaluate):
        with pytest.raises(error, match=words):
            call(*data, sample_weight=weights)


def test_weights_need_samples():
    with pytest.raises(ValueError, match="sample_weight: got weights, expected none without x"):
        mlp().fit(sample_weight=np.ones(3))
    with pytest.raises(TypeError, match=r"expected \(x, y\), \(x, y, sample_weight\) or a fraction"):
        mlp().fit(*blobs(), validation=(1, 2, 3, 4))


def test_estimators_take_weights():
    pytest.importorskip("sklearn", reason="needs scikit-learn: install python3-sklearn")
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    x, y = blobs()
    wrong = np.where(np.arange(240) < 80, (y + 1) % 3, y)
    weights = (np.arange(240) >= 80) * 7.0
    options = {"hidden_layer_sizes": (16,), "epochs": 30, "learning_rate": 0.02, "random_state": 0, "device": "cpu", "threads": 1}
    fitted = rl.RidgelineClassifier(**options).fit(x, wrong, sample_weight=weights)
    assert fitted.score(x, y) > 0.95
    assert fitted.score(x, wrong, sample_weight=weights) > 0.95 > fitted.score(x, wrong)
    search = GridSearchCV(Pipeline([("net", rl.RidgelineClassifier(**options))]), {"net__dropout": [0.0, 0.1]}, cv=2)
    assert search.fit(x, wrong, net__sample_weight=weights).predict(x).shape == (240,)
    regressor = rl.RidgelineRegressor(**options).fit(x, x[:, 0] + 50 * (weights == 0), sample_weight=weights)
    assert abs(regressor.predict(x) - x[:, 0]).mean() < 0.5
    with pytest.raises(TypeError, match="fit: got the keyword 'weights', expected sample_weight"):
        rl.RidgelineClassifier(**options).fit(x, y, weights=weights)
    with pytest.raises(ValueError, match="sample_weight"):
        rl.RidgelineClassifier(**options).fit(x, y, sample_weight=weights[:5])


def test_layers_of_graphs_and_steps_of_torch_weights(data):
    torch = pytest.importorskip("torch", reason="needs PyTorch: install python3-torch")
    x, y = data
    given = nn.Input((6,))
    model = rl.Model(nn.Graph(given, nn.Linear(6, 3)(nn.ReLU()(nn.Linear(6, 6)(given)) + given)), tune=False, device="cpu")
    before = rl.copied_bytes()
    one = model.train_step(x, y, sample_weight=torch.from_numpy(WEIGHTS))
    assert one["loss"] > 0 and rl.copied_bytes() == before
