"""The scikit-learn estimators."""

import pickle

import numpy as np
import pytest

import ridgeline as rl

pytest.importorskip("sklearn", reason="needs scikit-learn: install python3-sklearn")

from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

QUICK = {"hidden_layer_sizes": (32,), "epochs": 60, "batch_size": 16, "learning_rate": 0.01, "random_state": 1,
         "device": "cpu", "threads": 1}


@parametrize_with_checks([rl.RidgelineClassifier(**QUICK), rl.RidgelineRegressor(**QUICK)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_classifier_of_words():
    x, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    scores = cross_val_score(make_pipeline(StandardScaler(), rl.RidgelineClassifier(**QUICK)), x, words, cv=3)
    assert scores.mean() > 0.9
    fitted = rl.RidgelineClassifier(**QUICK).fit(x, words)
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(x), fitted.predict_proba(x))
    np.testing.assert_array_equal(clone(fitted).fit(x, words).predict_proba(x), fitted.predict_proba(x))


def test_class_weights():
    x, y = load_iris(return_X_y=True)
    x, y = x[40:100], y[40:100]  # 10 of one class, 50 of the other
    noisy = x + np.random.default_rng(0).normal(0, 2, x.shape)
    found = {}
    for name, weight in {"equal": None, "ones": {0: 1, 1: 1}, "balanced": "balanced", "rare": {0: 100, 1: 1}}.items():
        fitted = rl.RidgelineClassifier(**{**QUICK, "epochs": 5, "class_weight": weight}).fit(noisy, y)
        found[name] = (fitted.predict(noisy) == 0).sum()
    assert found["equal"] == found["ones"] < found["balanced"] < found["rare"]
    with pytest.raises(ValueError, match="class_weight"):
        rl.RidgelineClassifier(**QUICK, class_weight="equal").fit(x, y)


def test_hidden_sizes():
    x, y = load_iris(return_X_y=True)
    one, same = (rl.RidgelineClassifier(**{**QUICK, "hidden_layer_sizes": sizes}).fit(x, y) for sizes in (8, [8]))
    np.testing.assert_array_equal(one.predict_proba(x), same.predict_proba(x))


def test_regressor_of_several_values():
    x, y = make_regression(200, 5, n_targets=2, random_state=0)
    fitted = rl.RidgelineRegressor(**QUICK).fit(x, y)
    assert fitted.score(x, y) > 0.95
    assert fitted.predict(x).shape == (200, 2)
