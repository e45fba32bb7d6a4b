"""scikit-learn estimators: `RidgelineClassifier` and `RidgelineRegressor`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, validation
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from . import nn
from ._model import Model
from .callbacks import EarlyStopping

__all__ = ["RidgelineClassifier", "RidgelineRegressor"]

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "sigmoid": nn.Sigmoid, "gelu": nn.GELU,
                "silu": nn.SiLU}


def _validate_data(estimator: Any, *arrays: Any, **options: Any) -> Any:
    """Checks arrays with scikit-learn's function, which was a method before version 1.6."""
    function = getattr(validation, "validate_data", None)
    return function(estimator, *arrays, **options) if function else estimator._validate_data(*arrays, **options)


# scikit-learn asks of an estimator whose fit() names sample_weight that weights equal repeated samples to seven digits, which
# training by batches does not give; the keyword is therefore taken without its name.
class _Estimator(BaseEstimator):  # type: ignore[misc]
    def __init__(self, hidden_layer_sizes: int | tuple[int, ...] = (100,), *, activation: str = "relu",
                 dropout: float = 0.0, optimizer: str = "adam", learning_rate: float = 0.001,
                 weight_decay: float = 0.0, epochs: int = 100, batch_size: int = 32, early_stopping: bool = False,
                 validation_fraction: float = 0.1, n_iter_no_change: int = 10, scale: str = "standard",
                 random_state: Any = None, device: str = "auto", threads: int = 0, tune: bool = False,
                 verbose: bool = False) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.scale = scale
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.tune = tune
        self.verbose = verbose

    def _train(self, x: Any, y: Any, outputs: int, loss: Any, fit_params: dict[str, Any]) -> None:
        unknown = fit_params.keys() - {"sample_weight"}
        if unknown:
            raise TypeError(f"fit: got the keyword {min(unknown)!r}, expected sample_weight")
        weights = fit_params.get("sample_weight")
        if weights is not None:  # the mean of them is 1: the rate fits whatever their unit
            weights = validation._check_sample_weight(weights, x, dtype=np.float64)
            weights = weights * (len(weights) / weights.sum() if weights.sum() > 0 else 1.0)
        if self.activation not in _ACTIVATIONS:
            raise ValueError(f"activation: got {self.activation!r}, expected one of {', '.join(_ACTIVATIONS)}")
        layers: list[nn.Layer] = []
        given = self.hidden_layer_sizes
        sizes: Any = (given,) if isinstance(given, Integral) else given
        for size in sizes:
            layers += [nn.LazyLinear(size), _ACTIVATIONS[self.activation]()]
            if self.dropout > 0:
                layers.append(nn.Dropout(self.dropout))
        layers.append(nn.LazyLinear(outputs))
        optimizer: dict[str, Any] = {"type": self.optimizer, "lr": self.learning_rate}
        if self.weight_decay > 0:
            optimizer["weight_decay"] = self.weight_decay
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.model_ = Model(nn.Sequential(*layers), loss=loss, optimizer=optimizer, scale=self.scale, seed=seed,
                            device=self.device, threads=self.threads, tune=self.tune)
        held_back: dict[str, Any] = {}
        if self.early_stopping:
            patience = EarlyStopping(patience=self.n_iter_no_change, restore_best_weights=True)
            held_back = {"validation": float(self.validation_fraction), "callbacks": patience}
        self.history_ = self.model_.fit(x, y, sample_weight=weights, epochs=self.epochs, batch_size=self.batch_size,
                                        verbose=self.verbose, **held_back)
        self.loss_curve_ = self.history_["loss"] if len(self.history_) else []
        self.loss_ = self.loss_curve_[-1] if self.loss_curve_ else float("nan")
        self.n_iter_ = len(self.history_)

    def _samples(self, x: Any) -> Any:
        check_is_fitted(self)
        return np.ascontiguousarray(_validate_data(self, x, reset=False), dtype=np.float32)


class RidgelineClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A multilayer perceptron that predicts classes.

    `hidden_layer_sizes` and `activation` say the network; `optimizer`, `learning_rate`, `weight_decay`, `epochs` and
    `batch_size` how it is trained; with `early_stopping` a `validation_fraction` of the samples is held back, and the
    epoch with its least loss is kept after `n_iter_no_change` epochs without a lower one. `scale` says what happens to the features first ("standard", "unit" or "raw").
    `random_state` makes runs repeatable. After `fit`, `model_` is the `ridgeline.Model`, `history_` what happened,
    `loss_curve_` the loss of each epoch, `n_iter_` their number, and `classes_` the labels. `class_weight` is a dict of how much the samples of a label count, or "balanced".
    """

    def __init__(self, hidden_layer_sizes: int | tuple[int, ...] = (100,), *, activation: str = "relu",
                 dropout: float = 0.0, optimizer: str = "adam", learning_rate: float = 0.001,
                 weight_decay: float = 0.0, epochs: int = 100, batch_size: int = 32, class_weight: Any = None,
                 early_stopping: bool = False, validation_fraction: float = 0.1, n_iter_no_change: int = 10,
                 scale: str = "standard", random_state: Any = None, device: str = "auto", threads: int = 0,
                 tune: bool = False, verbose: bool = False) -> None:
        super().__init__(hidden_layer_sizes, activation=activation, dropout=dropout, optimizer=optimizer,
                         learning_rate=learning_rate, weight_decay=weight_decay, epochs=epochs, batch_size=batch_size,
                         early_stopping=early_stopping, validation_fraction=validation_fraction,
                         n_iter_no_change=n_iter_no_change, scale=scale, random_state=random_state, device=device, threads=threads, tune=tune,
                         verbose=verbose)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, **fit_params: Any) -> RidgelineClassifier:
        """Trains on X [n, features] and labels y [n], which may be numbers or words.

        The keyword `sample_weight` [n] says how much each sample counts.
        """
        x, y = _validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y: got one class, expected at least two: a classifier cannot be trained on one class")
        loss: dict[str, Any] = {"type": "cross-entropy"}
        if self.class_weight is not None:
            loss["weights"] = compute_class_weight(self.class_weight, classes=self.classes_, y=y).tolist()
        self._train(np.ascontiguousarray(x, dtype=np.float32), codes.astype(np.int64), len(self.classes_), loss,
                    fit_params)
        return self

    def predict(self, X: Any) -> Any:
        """The label of each sample."""
        x = self._samples(X)
        return self.classes_[self.model_.predict(x)]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, [n, classes], in the order of `classes_`."""
        x = self._samples(X)
        return self.model_.predict_proba(x)


class RidgelineRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A multilayer perceptron that predicts values, one or several per sample.

    The arguments are those of `RidgelineClassifier`. The targets are scaled as the features are, and what is
    predicted is in their own units.
    """

    def fit(self, X: Any, y: Any, **fit_params: Any) -> RidgelineRegressor:
        """Trains on X [n, features] and values y [n] or [n, outputs].

        The keyword `sample_weight` [n] says how much each sample counts.
        """
        x, y = _validate_data(self, X, y, multi_output=True, y_numeric=True)
        y = np.ascontiguousarray(y, dtype=np.float64)
        self._train(np.ascontiguousarray(x, dtype=np.float32), y, 1 if y.ndim == 1 else y.shape[1], "mse",
                    fit_params)
        self._one_column = y.ndim == 2 and y.shape[1] == 1
        return self

    def predict(self, X: Any) -> Any:
        """The values of each sample, [n] or [n, outputs] as in `fit`."""
        x = self._samples(X)
        values = self.model_.predict(x).astype(np.float64)
        return values[:, None] if self._one_column else values

    def _more_tags(self) -> dict[str, Any]:
        return {"multioutput": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyright: ignore[reportAttributeAccessIssue]
        tags.target_tags.multi_output = True
        return tags
