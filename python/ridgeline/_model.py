"""`Model`: a network that trains on arrays, is saved to files and predicts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from . import _config, _core
from ._calls import as_callbacks, on_epoch, on_progress
from ._core import Predictor
from ._errors import UsageError
from ._history import History
from ._inputs import (as_array, as_classes, as_count, as_numpy, as_rate, as_samples, as_triple, as_weights,
                      check_columns, check_samples, check_targets, columns_of, is_integer, is_on_gpu, on_host, shape_of, split)
from ._network import Control, Network
from .callbacks import AnyCallback

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ._reports import Limit, Plan, Profile

    Array = npt.NDArray[Any]


class Model(Network):
    """A network and how to train it.

    `network` is a `ridgeline.nn.Sequential` or `Graph`, or a config: a dict of the tables of docs/config.md, or the
    path of its TOML file. The keywords set keys of the config:

    - `input_shape`: of one sample. A `Sequential` that begins with `Linear` knows it; otherwise `fit` sees it.
    - `loss`: "cross-entropy", "mse", "mae", "huber", "binary-cross-entropy", "quantile", or a table. Left out,
      integer targets are classes (cross-entropy) and floats are values (mse).
    - `optimizer`: "sgd", "adam", "adamw", or a table such as {"type": "adam", "lr": 1e-3}; `lr` sets its rate.
    - `clip_norm`: gradients are scaled down to at most this norm, all together.
    - `augment`: {"shift": 2, "flip": True} moves images of bytes at random by up to so many pixels, and mirrors them;
      it needs scale="unit" or "standard".
    - `scale`: what happens to samples first: "raw" (nothing), "standard" or "unit". The default of a
      `Sequential` is "raw", as in PyTorch, and that of a config what docs/config.md says ("standard").
    - `freeze`: layers that keep their weights, by number or type, as in [0, "conv2d"].
    - `seed`; `device` ("auto", "cpu", "cuda", "cuda:1"), `threads`, `precision`, `deterministic`, `tune`.

    Calls from several threads follow one another; copies (`copy.deepcopy`) compute at once.
    """

    # --------------------------------------------------------------------------------------- training

    def fit(self, x: Any = None, y: Any = None, *,
            validation: tuple[Any, Any] | tuple[Any, Any, Any] | float | None = None,
            sample_weight: Any = None, epochs: int | None = None, batch_size: int | None = None, shuffle: bool | None = None,
            callbacks: AnyCallback | Iterable[AnyCallback] | None = None,
            out: str | os.PathLike[str] | None = None, verbose: bool = False) -> History:
        """Trains on samples x [n, ...] and targets y [n] or [n, outputs], and returns what happened.

        A model that has weights is trained further, with the optimizer's state new. Without `x` the data are
        those that the config names. `validation` is (x, y) or (x, y, sample_weight), or the fraction of the samples
        to take for it, and is evaluated after each epoch. `sample_weight` [n] says how much each sample counts: a
        step minimises the mean of weight times loss. Without `shuffle` the samples are taken in their order. `callbacks` are functions of (epoch, logs) or
        `ridgeline.callbacks.Callback`s; one that returns False ends the run, and one that evaluates or saves the
        model sees its current weights. Ctrl-C ends a run too: the model keeps the steps made, and
        KeyboardInterrupt is raised. `out` is a folder for checkpoints and metrics.
        """
        self._need_idle("fit")
        if str(self._config["data"].get("train")).endswith(".onnx"):
            raise UsageError("fit: the model is that of an ONNX file, and predicts; to train its layers: new = Model({'model': "
                             "model.config['model']}, input_shape=model.input_shape, scale='raw'), then "
                             "new.load_state_dict(model.state_dict())")
        config = {section: dict(table) for section, table in self._config.items()}
        if epochs is not None:
            config["train"]["epochs"] = as_count(epochs, "epochs", 0)
        if batch_size is not None:
            config["train"]["batch"] = as_count(batch_size, "batch_size", 1)
        if shuffle is not None:
            config["train"]["shuffle"] = bool(shuffle)
        data: list[Any] = [None, None, None]
        others: list[Any] = [None, None, None]
        start = None
        if x is None:
            if sample_weight is not None:
                raise ValueError("sample_weight: got weights, expected none without x: the config names the data")
            if validation is not None:
                raise ValueError("validation: got arrays, expected none without x: the config names the data")
            self._need_data(y)
        else:
            columns = columns_of(x)
            data = [as_array(x, "x"), on_host(as_array(y, "y")), as_weights(sample_weight, "sample_weight")]
            if isinstance(validation, Real) and not isinstance(validation, Integral):
                data, others = split(data, float(validation), int(config["train"].get("seed", 1)))
            elif validation is not None:
                more_x, more_y, weights = as_triple(validation)
                check_columns(more_x, columns, "validation[0]")
                others = [as_array(more_x, "validation[0]"), on_host(as_array(more_y, "validation[1]")),
                          as_weights(weights, "validation[2]")]
            self._name_no_data(config)
            start = self._start(data[0], data[1])
            data[1], others[1] = self._targets(data[1], config), self._targets(others[1], config, "validation[1]")
            data[0], samples = self._check(data[0], data[1], "x", "y", "x, y")
            if others[0] is not None:
                others[0], _ = self._check(others[0], others[1], "validation[0]", "validation[1]", "validation")
            if samples > 0:
                config["train"]["batch"] = min(int(config["train"].get("batch", 128)), samples)
        history = History()
        called = as_callbacks(callbacks, verbose)
        self._control = Control()
        try:
            for each in called:
                each.on_train_begin(self)
            core, figures, raised = _core.train(
                _config.to_toml(config), tuple(data), tuple(others), start,
                os.fspath(out) if out is not None else "", on_progress(called), on_epoch(called, history),
                self._control)
            self._take(core)
            self._columns = None if x is None else columns_of(x)
            history.steps = int(figures["steps"])
            history.seconds = figures["seconds"]
            history.samples_per_second = figures["samples_per_second"]
            history.limit = figures.get("limit")
        finally:
            self._control = None
            for each in called:
                each.on_train_end(history)
        if raised is not None:
            raise raised
        return history

    def train_step(self, x: Any, y: Any, *, lr: float | None = None, sample_weight: Any = None) -> dict[str, float]:
        """Makes one training step on a batch, for your own loop, and returns its loss and accuracy.

        The loss is the mean over the batch, of weight times loss with `sample_weight` [n]. The optimizer's state goes on from call to call, until `fit` or `load_state_dict` gives the model other
        weights. `lr` is the rate of this step; left out it is `Model.lr`. Each size of a batch is planned once.
        """
        x, y, weights = as_array(x, "x"), on_host(as_array(y, "y")), as_weights(sample_weight, "sample_weight")
        with self._lock:
            self._need_idle("train_step")
            if self._steps is None:
                core = self._start(x, y)
                if core is None:
                    raise UsageError("train_step: the model has no weights yet: call fit() first, or give scale=\"raw\"")
                run = self._config["run"]
                self._steps = _core.StepTrainer(core, run.get("device", "auto"), run.get("threads", 0),
                                                run.get("tune", True))
            y = self._targets(y, self._config)
            x, _ = self._check(x, y, "x", "y", "x, y")
            loss, accuracy = self._steps.step(x, y, weights, self.lr if lr is None else as_rate(lr))
            self._newer = self._trained = True
        return {"loss": loss} if accuracy is None else {"loss": loss, "accuracy": accuracy}

    @property
    def lr(self) -> float | None:
        """The learning rate of the optimizer, which may be set.

        A callback that sets it changes the rate of the steps that follow, whatever the schedule says, until `fit`
        returns. None: the optimizer's default.
        """
        if self._control is not None and self._control.lr is not None:
            return self._control.lr
        rate = self._config["train"].get("optimizer", {}).get("lr")
        return None if rate is None else float(rate)

    @lr.setter
    def lr(self, rate: float) -> None:
        rate = as_rate(rate)
        if self._control is not None:
            self._control.lr = rate
            return
        train = self._config["train"]
        train["optimizer"] = {**train.get("optimizer", {"type": "sgd"}), "lr": rate}

    # -------------------------------------------------------------------------------------- answering

    def predict(self, x: Any) -> Array:
        """Returns the class of each sample, as it was among the targets; or the values, [n] or [n, outputs].

        With the loss "binary-cross-entropy" the values are the probabilities of the labels.
        """
        core = self._ready("predict")
        x = self._samples(x)
        if not core.classes():
            values = core.predict(x)
            return values if is_on_gpu(x) or values.shape[1] != 1 else values[:, 0]
        classes: Array = self.classes_[core.predict_classes(x)]
        return classes

    def predict_proba(self, x: Any, out: Any = None) -> npt.NDArray[np.float32]:
        """Returns the probability of each class, [n, classes], written to `out` if that is given.

        With the loss "binary-cross-entropy" it is that of each label, [n, labels]. For samples on the GPU that the
        model computes on, the answers stay there: a `DeviceArray`.
        """
        core = self._ready("predict_proba")
        if not core.classes() and self._loss() != "binary-cross-entropy":
            raise UsageError("predict_proba: the model gives values, not classes; use predict()")
        return core.predict(self._samples(x), out)

    def outputs(self, x: Any, out: Any = None) -> npt.NDArray[np.float32]:
        """Returns the network's outputs, [n, outputs]: probabilities of classes, or values.

        For samples on a GPU it returns a `DeviceArray`, as predict_proba does.
        """
        return self._ready("outputs").predict(self._samples(x), out)

    def evaluate(self, x: Any, y: Any, *, sample_weight: Any = None) -> dict[str, float]:
        """The loss and every score that fits: accuracy, f1, auc, top5 of classes; mse, mae, r2 of values.

        With `sample_weight` [n] all are weighted means.
        """
        core = self._ready("evaluate")
        check_columns(x, self._columns, "x")
        x, y = as_array(x, "x"), self._targets(on_host(as_array(y, "y")), self._config)
        x, _ = self._check(x, y, "x", "y", "x, y")
        return core.evaluate(x, y, as_weights(sample_weight, "sample_weight"))

    def __call__(self, x: Any) -> npt.NDArray[np.float32]:
        """Returns `outputs(x)`."""
        return self.outputs(x)

    def compile(self, batch: int = 1, *, threads: int = 1) -> Predictor:
        """Returns a handle that is planned for calls of at most `batch` samples, with its own weights.

        `handle(x, out=None)` gives [n, outputs], probabilities of classes or values, for float32 samples (uint8 of a
        model of pixels). Each thread needs a handle of its own; those of one thread each compute at once.
        """
        run = self._config["run"]
        return Predictor(self._ready("compile"), as_count(batch, "batch", 1), run.get("device", "auto"),
                         as_count(threads, "threads", 1), run.get("tune", True))

    # ----------------------------------------------------------------------------- plans and profiles

    def plan(self, x: Any = None, y: Any = None, *, batch_size: int | None = None) -> Plan:
        """Returns the kernels of a training step on samples like x and y, why they were chosen, memory and limit."""
        from ._reports import Plan

        text, document, _ = self._report(x, y, batch_size, None)
        return Plan(text, document)

    def profile(self, x: Any = None, y: Any = None, *, batch_size: int | None = None,
                seconds: float = 2.0) -> Profile:
        """Runs the kernels of a training step for about `seconds`: time, roof and share of each."""
        from ._reports import Profile

        if not seconds > 0:
            raise ValueError(f"seconds: got {seconds}, expected a number above 0")
        return Profile(*self._report(x, y, batch_size, seconds))

    def limit(self, x: Any = None, y: Any = None, *, batch_size: int | None = None) -> Limit:
        """Returns the least time that a training step on samples like x and y can take on this machine."""
        limit = self.plan(x, y, batch_size=batch_size).limit
        if limit is None:
            raise UsageError("limit: the ceilings of this machine could not be measured")
        return limit

    # ----------------------------------------------------------------------------------------- inside

    def _start(self, x: Any, y: Any) -> _core.Model | None:
        """Returns the model from which a run continues; None: it initialises its own weights."""
        if self._core is None and self._raw:
            self._build(shape_of(x, "x")[1:])
        if self._core is None or self._trained or self._loss() is not None:
            return None if self._core is None else self._ready("fit")
        # The kind of targets is not set: floats are values.
        if not is_integer(y) and self._core.classes():
            weights = self._core.weights()
            self._config["train"]["loss"] = "mse"
            self._build(tuple(self._core.input_shape()))
            assert self._core is not None
            self._core.set_weights(weights)
        return self._core

    def _targets(self, y: Any, config: _config.Config, name: str = "y") -> Any:
        """Returns targets in the type of the loss: the library takes integers as classes."""
        loss = self._loss()
        if loss == "cross-entropy" and y is not None and self._sequential is not None:
            return as_classes(y, None if self._core is None else self._core.outputs(), name)
        if y is None or loss in (None, "cross-entropy") or not is_integer(y):
            return y
        if config["data"].get("target_kind") == "classes":
            return y
        return as_numpy(y).astype("float32")

    def _samples(self, x: Any) -> Any:
        check_columns(x, self._columns, "x")
        x = as_array(x, "x")
        if self._core is not None and self._sequential is not None:
            x = self._flat(x, "x")
            check_samples(x, self._core.input_shape(), "x")
            x = as_samples(x, self._core.input_shape())
        return x

    def _flat(self, x: Any, name: str) -> Any:
        """Samples of any shape as rows, for a model whose first layer flattens them."""
        if self._sequential is None or self._sequential.layers[0].type != "flatten" or self._core is None:
            return x
        row, got = tuple(self._core.input_shape()), shape_of(x, name)
        return as_samples(x, row) if len(row) == 1 and len(got) > 2 and math.prod(got[1:]) == row[0] else x

    def _check(self, x: Any, y: Any, x_name: str, y_name: str, both: str) -> tuple[Any, int]:
        """Checks arrays by what the layers of a `Sequential` or `Graph` say; a config's data may be of many kinds.

        Returns the samples in the shape that the model takes, and their number.
        """
        core = self._core if self._sequential is not None else None
        shape = None if core is None else core.input_shape()
        x = self._flat(x, x_name)
        samples = check_samples(x, shape, x_name)
        if core is not None and self._loss() != "quantile":
            check_targets(y, samples, core.outputs(), bool(core.classes()), y_name, both)
        return as_samples(x, shape), samples

    def _need_data(self, y: Any) -> None:
        """Throws unless the config names the data, which it must without samples."""
        if y is not None or not any(key in self._config["data"] for key in ("name", "train")):
            raise TypeError("x: got None, expected an array of samples: the model's config names no data")

    def _name_no_data(self, config: _config.Config) -> None:
        config["data"] = {key: value for key, value in config["data"].items() if key not in ("name", "train")}

    def _report(self, x: Any, y: Any, batch_size: int | None, seconds: float | None) -> tuple[str, str, str]:
        config = {section: dict(table) for section, table in self._config.items()}
        if batch_size is not None:
            config["train"]["batch"] = as_count(batch_size, "batch_size", 1)
        if x is None:
            self._need_data(y)
        else:
            x, y = on_host(as_array(x, "x")), on_host(as_array(y, "y"))
            self._name_no_data(config)
            y = self._targets(y, config)
            samples = (shape_of(x, "x") or (0,))[0]
            config["train"]["batch"] = min(config["train"].get("batch", 128), max(1, samples))
        return _core.report(_config.to_toml(config), x, y, seconds)
