"""Calls the callbacks of `Model.fit`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._history import History
from .callbacks import AnyCallback, Callback


class _Function(Callback):
    def __init__(self, function: Any) -> None:
        self._function = function

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> bool | None:
        answer: bool | None = self._function(epoch, logs)
        return answer


class _Printer(Callback):
    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> bool | None:
        shown = "  ".join(f"{key} {value:.4f}" for key, value in logs.items() if key not in ("lr", "seconds"))
        print(f"epoch {epoch}  {shown}", flush=True)
        return None


def as_callbacks(callbacks: AnyCallback | Iterable[AnyCallback] | None, verbose: bool) -> list[Callback]:
    """Returns the callbacks as objects, in order."""
    one = isinstance(callbacks, Callback) or callable(callbacks)
    if not one and callbacks is not None and not hasattr(callbacks, "__iter__"):
        raise TypeError(f"callbacks: got {type(callbacks).__name__}, expected functions or Callbacks")
    given: list[Any] = [callbacks] if one else list(callbacks or ())  # type: ignore[arg-type]
    result: list[Callback] = [_Printer()] if verbose else []
    for i, each in enumerate(given):
        if isinstance(each, Callback):
            result.append(each)
        elif isinstance(each, type):
            raise TypeError(f"callbacks[{i}]: got the class {each.__name__}, expected an object of it: {each.__name__}()")
        elif callable(each):
            result.append(_Function(each))
        else:
            raise TypeError(f"callbacks[{i}]: got {type(each).__name__}, expected a function or a Callback")
    return result


def _goes_on(answer: Any) -> bool:
    """Whether the run goes on after a callback's answer: False of Python or NumPy ends it."""
    return answer is not False and not (hasattr(answer, "dtype") and not answer)


def on_progress(callbacks: list[Callback]) -> Any:
    """Returns the function that the extension module calls at intervals; None if no callback needs it."""
    wanting = [each for each in callbacks if type(each).on_progress is not Callback.on_progress]
    if not wanting:
        return None

    def call(progress: dict[str, Any]) -> bool:
        return all([_goes_on(each.on_progress(progress)) for each in wanting])

    return call


def on_epoch(callbacks: list[Callback], history: History) -> Any:
    """Returns the function that the extension module calls after each epoch."""
    def call(epoch: dict[str, Any]) -> bool:
        validation = epoch.pop("validation", {})
        epoch.pop("step")
        number = int(epoch.pop("epoch"))
        logs = {**epoch, **{f"val_{key}": value for key, value in validation.items()}}
        history.epochs.append({"epoch": number, **logs})
        return all([_goes_on(each.on_epoch_end(number, logs)) for each in callbacks])

    return call
