"""Callbacks of `Model.fit`.

A callback is a function of (epoch, logs), or an object of a class that derives from `Callback`. A run ends
in order when one returns False. One that sets `model.lr` changes the learning rate of the steps that follow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from ._history import History
    from ._model import Model

Logs = dict[str, float]


class Callback:
    """The base class, which does nothing; derive from it and override what you need."""

    def on_train_begin(self, model: Model) -> None:
        """Called before the first step."""

    def on_progress(self, progress: dict[str, Any]) -> bool | None:
        """Called every train.log_steps steps: step, steps, epoch, loss, accuracy, lr, samples_per_second."""
        return None

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        """Called after each epoch, from 1: loss, accuracy, lr and, with validation, val_loss and so on."""
        return None

    def on_train_end(self, history: History) -> None:
        """Called after the last step, whatever ended the run."""


AnyCallback = Union[Callback, Callable[[int, Logs], Union[bool, None]]]


_RISING = ("accuracy", "f1", "auc", "r2", "top5")  # the scores that are better when they are larger


class _Monitor(Callback):
    """Compares a score of each epoch with the best before it, which is `best`."""

    def __init__(self, monitor: str, min_delta: float = 0.0) -> None:
        self.monitor, self.min_delta = monitor, min_delta
        self.best: float | None = None
        self._model: Model | None = None

    def on_train_begin(self, model: Model) -> None:
        self.best, self._model = None, model

    def improved(self, logs: Logs) -> bool:
        """Whether the score of this epoch is better, by more than `min_delta`, than the best before."""
        if self.monitor not in logs:
            remedy = "; fit needs validation=..." if self.monitor.startswith("val_") and "val_loss" not in logs else ""
            raise KeyError(f"{type(self).__name__}: got monitor {self.monitor!r}, expected one of {', '.join(logs)}{remedy}")
        value = logs[self.monitor]
        sign = 1 if self.monitor.rsplit("_", 1)[-1] in _RISING else -1
        better = value == value and (self.best is None or sign * (value - self.best) > self.min_delta)
        if better:
            self.best = value
        return better


class EarlyStopping(_Monitor):
    """Ends the run when `monitor` has not been better by `min_delta` for `patience` epochs.

    The model keeps the last weights, or with `restore_best_weights` those of the best epoch.
    """

    def __init__(self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0,
                 restore_best_weights: bool = False) -> None:
        super().__init__(monitor, min_delta)
        self.patience, self.restore_best_weights = patience, restore_best_weights
        self.waited = 0
        self._weights: dict[str, Any] | None = None

    def on_train_begin(self, model: Model) -> None:
        super().on_train_begin(model)
        self.waited, self._weights = 0, None

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        if not self.improved(logs):
            self.waited += 1
            return self.waited < self.patience
        self.waited = 0
        if self.restore_best_weights:
            assert self._model is not None
            self._weights = self._model.state_dict()
        return True

    def on_train_end(self, history: History) -> None:
        if self._weights is not None:
            assert self._model is not None
            self._model.load_state_dict(self._weights)


class ModelCheckpoint(_Monitor):
    """Saves the model to `path` whenever `monitor` is better than in every epoch before."""

    def __init__(self, path: str | os.PathLike[str], monitor: str = "val_loss", min_delta: float = 0.0) -> None:
        super().__init__(monitor, min_delta)
        self.path = path

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        if self.improved(logs):
            assert self._model is not None
            self._model.save(self.path)
        return None


class LearningRate(Callback):
    """Sets the learning rate of each epoch to `schedule(epoch, rate)`, whatever the config's schedule says.

    Epochs count from 1, and `rate` is that of the epoch before (of the optimizer, for the first).
    """

    def __init__(self, schedule: Callable[[int, float], float]) -> None:
        self.schedule = schedule
        self._model: Model | None = None
        self._rate = 0.0

    def on_train_begin(self, model: Model) -> None:
        self._model = model
        self._rate = model.lr if model.lr is not None else 0.01
        model.lr = self._rate = self.schedule(1, self._rate)

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        assert self._model is not None
        self._model.lr = self._rate = self.schedule(epoch + 1, self._rate)
        return None


class ReduceOnPlateau(_Monitor):
    """Multiplies the learning rate by `factor` when `monitor` has not been better for `patience` epochs."""

    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 3, min_delta: float = 0.0,
                 min_lr: float = 0.0) -> None:
        super().__init__(monitor, min_delta)
        self.factor, self.patience, self.min_lr = factor, patience, min_lr
        self.waited = 0

    def on_train_begin(self, model: Model) -> None:
        super().on_train_begin(model)
        self.waited = 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        self.waited = 0 if self.improved(logs) else self.waited + 1
        if self.waited >= self.patience:
            assert self._model is not None
            self._model.lr = max(self.min_lr, logs["lr"] * self.factor)
            self.waited = 0
        return None


class JsonLogger(Callback):
    """Appends a line of JSON per epoch to a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def on_train_begin(self, model: Model) -> None:
        with open(self.path, "w", encoding="utf-8"):
            pass

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        import json

        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"epoch": epoch, **logs}) + "\n")
        return None


class NotebookDisplay(Callback):
    """Shows the curves and the last epochs below a notebook's cell during the run."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._history: Any = None

    def on_train_begin(self, model: Model) -> None:
        from IPython.display import display

        from ._history import History

        self._history = History()
        self._handle = display(self._history, display_id=True)

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        self._history.epochs.append({"epoch": epoch, **logs})
        self._history.seconds = logs.get("seconds", 0.0)
        if self._handle is not None:
            self._handle.update(self._history)
        return None

    def on_train_end(self, history: History) -> None:
        if self._handle is not None:
            self._handle.update(history)


class ProgressBar(Callback):
    """A tqdm progress bar; in a notebook it is tqdm's widget.

    `bar` is what makes it, if not tqdm.auto.tqdm: anything that is called with total= and unit=, and has n,
    update(), set_postfix() and close().
    """

    def __init__(self, bar: Callable[..., Any] | None = None) -> None:
        self._make = bar
        self._bar: Any = None

    def on_progress(self, progress: dict[str, Any]) -> bool | None:
        if self._bar is None:
            if self._make is None:
                from tqdm.auto import tqdm

                self._make = tqdm
            self._bar = self._make(total=progress["steps"], unit="step")
        self._bar.update(progress["step"] - self._bar.n)
        self._bar.set_postfix({key: f"{progress[key]:.4g}" for key in ("loss", "accuracy") if key in progress})
        return None

    def on_train_end(self, history: History) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
