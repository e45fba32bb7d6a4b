"""What `Model.fit` calls while it trains.

A callback is a function of (epoch, logs), or an object of a class that derives from `Callback`. A run ends
in order when one returns False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from ._model import History, Model

Logs = dict[str, float]


class Callback:
    """Does nothing; derive from it and override what is needed."""

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


class EarlyStopping(Callback):
    """Ends the run when `monitor` has not been better by `min_delta` for `patience` epochs.

    The model keeps the last weights; the settings train.keep = "best" and train.patience keep the best ones.
    """

    def __init__(self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0) -> None:
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self._sign = -1.0 if monitor.rsplit("_", 1)[-1] in ("accuracy", "f1", "auc", "r2", "top5") else 1.0
        self.best = float("inf")
        self.waited = 0

    def on_train_begin(self, model: Model) -> None:
        self.best, self.waited = float("inf"), 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> bool | None:
        if self.monitor not in logs:
            raise KeyError(f"EarlyStopping: got monitor {self.monitor!r}, expected one of {', '.join(logs)}")
        value = self._sign * logs[self.monitor]
        if value < self.best - self.min_delta:
            self.best, self.waited = value, 0
            return True
        self.waited += 1
        return self.waited < self.patience


class ProgressBar(Callback):
    """A bar of tqdm, which must be installed; in a notebook it is tqdm's widget."""

    def __init__(self) -> None:
        self._bar: Any = None

    def on_progress(self, progress: dict[str, Any]) -> bool | None:
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=progress["steps"], unit="step")
        self._bar.update(progress["step"] - self._bar.n)
        self._bar.set_postfix({key: f"{progress[key]:.4g}" for key in ("loss", "accuracy") if key in progress})
        return None

    def on_train_end(self, history: History) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
