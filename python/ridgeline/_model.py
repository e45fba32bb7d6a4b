"""`Model`: a network that trains on arrays, keeps itself in files and answers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _config, _core, nn
from ._core import Predictor
from ._errors import UsageError
from .callbacks import AnyCallback, Callback

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_RUN = ("device", "threads", "precision", "deterministic", "tune")


class History:
    """What a call of `fit` did, epoch by epoch.

    history["loss"] is a list with a number an epoch; `history.epochs` a list of dicts. `steps`, `seconds`,
    `samples_per_second` and `limit` (the fraction of what this machine can do, or None) are of the whole call.
    """

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []
        self.steps = 0
        self.seconds = 0.0
        self.samples_per_second = 0.0
        self.limit: float | None = None

    def __getitem__(self, name: str) -> list[float]:
        if not any(name in epoch for epoch in self.epochs):
            names = sorted({key for epoch in self.epochs for key in epoch})
            raise KeyError(f"history: got {name!r}, expected one of {', '.join(names)}")
        return [epoch[name] for epoch in self.epochs if name in epoch]

    def __len__(self) -> int:
        return len(self.epochs)

    @property
    def history(self) -> dict[str, list[float]]:
        """All series by name, as Keras has them."""
        return {key: self[key] for key in (self.epochs[-1] if self.epochs else {})}

    def __repr__(self) -> str:
        if not self.epochs:
            return "History(no epochs)"
        last = ", ".join(f"{key} {value:.4g}" for key, value in self.epochs[-1].items() if key != "epoch")
        return f"History({len(self.epochs)} epochs, {self.steps} steps; last: {last})"


class Model:
    """A network and how to train it.

    `network` is a `ridgeline.nn.Sequential`, a config (a dict of the tables of docs/config.md, or the path of
    its TOML file), or one of the layers' tables. The keywords set keys of the config:

    - `input_shape`: of one sample. A `Sequential` that begins with `Linear` knows it; otherwise `fit` sees it.
    - `loss`: "cross-entropy", "mse", "mae", "huber", "binary-cross-entropy", "quantile", or a table. Left out,
      integer targets are classes (cross-entropy) and floats are values (mse).
    - `optimizer`: "sgd", "adam", "adamw", or a table such as {"type": "adam", "lr": 1e-3}; `lr` sets its rate.
    - `scale`: what happens to samples first: "raw" (nothing), "standard" or "unit". The default of a
      `Sequential` is "raw", as in PyTorch, and that of a config what docs/config.md says ("standard").
    - `seed`; `device` ("auto", "cpu", "cuda", "cuda:1"), `threads`, `precision`, `deterministic`, `tune`.

    Calls from several threads follow one another; copies (`copy.deepcopy`) compute at once.
    """

    def __init__(self, network: nn.Sequential | Mapping[str, Any] | str | os.PathLike[str], *,
                 input_shape: Sequence[int] | None = None, loss: Any = None, optimizer: Any = None,
                 lr: float | None = None, schedule: Any = None, scale: str | None = None,
                 seed: int | None = None, device: str | None = None, threads: int | None = None,
                 precision: str | None = None, deterministic: bool | None = None,
                 tune: bool | None = None) -> None:
        self._core: _core.Model | None = None
        self._trained = False
        self._sequential: nn.Sequential | None = None
        if isinstance(network, nn.Sequential):
            self._sequential = network
            self._config = _config.check({"model": {"layers": network.config()}})
            scale = scale or "raw"
        elif isinstance(network, Mapping):
            self._config = _config.check(network)
        elif isinstance(network, (str, os.PathLike)):
            self._config = _config.read(network)
        else:
            raise TypeError(f"network: got {type(network).__name__}, expected a ridgeline.nn.Sequential, a "
                            "config dict or the path of a TOML file (from_torch takes PyTorch's modules)")
        train, run = self._config["train"], self._config["run"]
        for key, value in (("loss", loss), ("schedule", schedule), ("seed", seed)):
            if value is not None:
                train[key] = value
        if optimizer is not None:
            train["optimizer"] = {"type": optimizer} if isinstance(optimizer, str) else dict(optimizer)
        if lr is not None:
            train["optimizer"] = {**train.get("optimizer", {"type": "sgd"}), "lr": lr}
        if scale is not None:
            self._config["data"]["scale"] = self._config["data"]["target_scale"] = scale
        for key, value in zip(_RUN, (device, threads, precision, deterministic, tune), strict=True):
            if value is not None:
                run[key] = value
        if input_shape is None and self._sequential is not None:
            input_shape = self._sequential.input_shape()
        self._input_shape = None if input_shape is None else tuple(int(each) for each in input_shape)
        if self._input_shape is not None and self._raw:
            self._build(self._input_shape)

    # ------------------------------------------------------------------------------------- training

    def fit(self, x: Any = None, y: Any = None, *, validation: tuple[Any, Any] | float | None = None,
            epochs: int | None = None, batch_size: int | None = None,
            callbacks: AnyCallback | Iterable[AnyCallback] = (),
            out: str | os.PathLike[str] | None = None, verbose: bool = False) -> History:
        """Trains on samples x [n, ...] and targets y [n] or [n, outputs], and returns what happened.

        A model that has weights is trained further, with the optimizer's state new. Without `x` the data are
        those that the config names. `validation` is (x, y), or the fraction of the samples to take for it, and
        is evaluated after each epoch. `callbacks` are functions of (epoch, logs) or
        `ridgeline.callbacks.Callback`s; one that returns False ends the run. Ctrl-C ends it too: the model
        keeps the steps made, and KeyboardInterrupt is raised. `out` is a folder for checkpoints and metrics.
        """
        config = {section: dict(table) for section, table in self._config.items()}
        if epochs is not None:
            config["train"]["epochs"] = epochs
        validation_x: Any = None
        validation_y: Any = None
        start = None
        if x is None:
            if validation is not None:
                raise ValueError("validation: got arrays, expected none without x: the config names the data")
        else:
            x, y = _array(x, "x"), _array(y, "y")
            if isinstance(validation, float):
                x, y, validation_x, validation_y = _split(x, y, validation, int(config["train"].get("seed", 1)))
            elif validation is not None:
                validation_x, validation_y = (_array(each, f"validation[{i}]") for i, each in
                                              enumerate(_pair(validation)))
            config["data"] = {key: value for key, value in config["data"].items() if key not in ("name", "train")}
            y, validation_y = self._targets(y, config), self._targets(validation_y, config)
            start = self._start(x, y)
            size = batch_size if batch_size is not None else config["train"].get("batch", 128)
            if len(x) > 0:
                config["train"]["batch"] = min(int(size), len(x))
        if x is None and batch_size is not None:
            config["train"]["batch"] = batch_size
        history = History()
        called = _callbacks(callbacks, verbose)
        for each in called:
            each.on_train_begin(self)
        core, figures, raised = _core.train(
            _config.to_toml(config), x, y, validation_x, validation_y, start,
            os.fspath(out) if out is not None else "", _on_progress(called), _on_epoch(called, history))
        self._core, self._trained = core, True
        history.steps = int(figures["steps"])
        history.seconds = figures["seconds"]
        history.samples_per_second = figures["samples_per_second"]
        history.limit = figures.get("limit")
        for each in called:
            each.on_train_end(history)
        if raised is not None:
            raise raised
        return history

    def evaluate(self, x: Any, y: Any) -> dict[str, float]:
        """The loss and every score that fits: accuracy, f1, auc, top5 of classes; mse, mae, r2 of values."""
        core = self._ready("evaluate")
        return core.evaluate(_array(x, "x"), self._targets(_array(y, "y"), self._config))

    # ------------------------------------------------------------------------------------ answering

    def predict(self, x: Any) -> Array:
        """The class of each sample, as it was among the targets; or the values, [n] or [n, outputs]."""
        core = self._ready("predict")
        x = _array(x, "x")
        if not core.classes():
            values = core.predict(x)
            return values[:, 0] if values.shape[1] == 1 else values
        classes: Array = self.classes_[core.predict_classes(x)]
        return classes

    def predict_proba(self, x: Any, out: Any = None) -> npt.NDArray[np.float32]:
        """The probability of each class, [n, classes], written to `out` if that is given."""
        core = self._ready("predict_proba")
        if not core.classes():
            raise UsageError("predict_proba: the model gives values, not classes; use predict()")
        return core.predict(_array(x, "x"), out)

    def outputs(self, x: Any, out: Any = None) -> npt.NDArray[np.float32]:
        """What the network says, [n, outputs]: probabilities of classes, or values."""
        return self._ready("outputs").predict(_array(x, "x"), out)

    def compile(self, batch: int = 1, *, threads: int = 1) -> Predictor:
        """A handle that is planned for calls of at most `batch` samples, with weights of its own.

        `handle(x, out=None)` gives [n, outputs], probabilities of classes or values, for float32 samples (uint8 of a
        model of pixels). Each thread needs a handle of its own; those of one thread each compute at once.
        """
        run = self._config["run"]
        return Predictor(self._ready("compile"), batch, run.get("device", "auto"), threads, run.get("tune", True))

    @property
    def classes_(self) -> Array:
        """The classes by output: integers, or words where the data had words. Empty for values."""
        import numpy

        names = self._ready("classes_").classes()
        try:
            return numpy.array([int(name) for name in names], dtype=numpy.int64)
        except ValueError:
            return numpy.array(names)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one sample; None until it is known."""
        return tuple(self._core.input_shape()) if self._core is not None else self._input_shape

    # ------------------------------------------------------------------------------- files, weights

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .safetensors file that `ridgeline infer` and PyTorch's library read too."""
        self._ready("save").save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto", threads: int = 0,
             tune: bool = True) -> Model:
        """The model of a file, or of the folder of a run, whichever program made it."""
        if not os.path.exists(path):
            raise FileNotFoundError(2, "no such model", os.fspath(path))
        return cls._of(_core.Model.load(os.fspath(path), device, threads, tune),
                       {"device": device, "threads": threads, "tune": tune})

    def state_dict(self) -> dict[str, Array]:
        """Copies of the weights by PyTorch's names for an nn.Sequential of the same layers."""
        return dict(self._ready("state_dict").weights())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes weights by these names: NumPy arrays, PyTorch tensors, or anything of the kind."""
        core = self._ready("load_state_dict")
        core.set_weights([(name, _weight(value, name)) for name, value in state.items()])

    def to_torch(self) -> Any:
        """An nn.Sequential of PyTorch with the same layers and weights. Samples must be prepared already."""
        from ._torch import to_torch

        return to_torch(self)

    @property
    def config(self) -> dict[str, Any]:
        """The config as nested dicts; a copy."""
        return _config.check(self._config)

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key != "_core"}
        state["file"] = None if self._core is None else self._core.to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        file = state.pop("file")
        self.__dict__.update(state)
        run = self._config["run"]
        self._core = None if file is None else _core.Model.from_bytes(
            file, run.get("device", "auto"), run.get("threads", 0), run.get("tune", True))

    def __repr__(self) -> str:
        layers = ", ".join(str(layer.get("type")) for layer in self._config["model"].get("layers", []))
        shape = self.input_shape
        state = "trained" if self._trained else "untrained"
        return f"Model({layers}; input {'not known yet' if shape is None else shape}; {state})"

    # -------------------------------------------------------------------------------------- inside

    @classmethod
    def _of(cls, core: _core.Model, run: dict[str, Any]) -> Model:
        model = cls.__new__(cls)
        model._core, model._trained, model._sequential = core, True, None
        model._config = _config.from_toml(core.config())
        model._config["run"].update(run)
        model._input_shape = tuple(core.input_shape())
        return model

    @property
    def _raw(self) -> bool:
        return self._config["data"].get("scale") in ("raw", "none")

    def _ready(self, what: str) -> _core.Model:
        if self._core is None:
            raise UsageError(f"{what}: the model has no weights yet: call fit() first, or give input_shape "
                             "and scale=\"raw\"")
        return self._core

    def _build(self, shape: tuple[int, ...]) -> None:
        config = {**self._config, "data": {}}
        run = self._config["run"]
        self._core = _core.Model.create(_config.to_toml(config), shape, run.get("device", "auto"),
                                        run.get("threads", 0), run.get("tune", True))
        if self._sequential is None:
            return
        shapes = {name: value.shape for name, value in self._core.weights()}
        for i, layer in enumerate(self._sequential):
            taken = layer.takes()
            if taken is not None and shapes[f"{i}.{taken[0]}"][1] != taken[1]:
                self._core = None
                raise ValueError(f"layer {i} ({layer.type}): got {taken[1]} inputs, expected "
                                 f"{shapes[f'{i}.{taken[0]}'][1]}, which is what comes to it")

    def _loss(self) -> str | None:
        loss = self._config["train"].get("loss")
        return loss.get("type") if isinstance(loss, Mapping) else loss

    def _targets(self, y: Any, config: _config.Config) -> Any:
        """Targets in the type that the loss wants: integers are classes to the library."""
        loss = self._loss()
        if y is None or loss in (None, "cross-entropy") or not _is_integer(y):
            return y
        if config["data"].get("target_kind") == "classes":
            return y
        import numpy

        return numpy.asarray(y).astype(numpy.float32)

    def _start(self, x: Any, y: Any) -> _core.Model | None:
        """The model that a run goes on from; None: it begins with weights of its own."""
        if self._core is None and self._raw:
            self._build(tuple(x.shape[1:]))
        if self._core is None or self._trained or self._loss() is not None:
            return self._core
        # Nobody has said what the targets are: floats are values.
        if not _is_integer(y) and self._core.classes():
            weights = self._core.weights()
            self._config["train"]["loss"] = "mse"
            self._build(tuple(self._core.input_shape()))
            assert self._core is not None
            self._core.set_weights(weights)
        return self._core


def load(path: str | os.PathLike[str], *, device: str = "auto", threads: int = 0, tune: bool = True) -> Model:
    """The model of a file, or of the folder of a run."""
    return Model.load(path, device=device, threads=threads, tune=tune)


def from_torch(module: Any, *, input_shape: Sequence[int] | None = None, **keywords: Any) -> Model:
    """A model with the layers of a PyTorch module (an nn.Sequential of known modules) and copies of its weights.

    `input_shape` is needed unless the first layer with weights is a Linear; `keywords` are those of `Model`.
    """
    from ._torch import from_torch

    return from_torch(module, input_shape, keywords)


def _array(value: Any, name: str) -> Any:
    """Lists and the like become NumPy arrays; arrays stay what they are."""
    if hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
        return value.detach() if getattr(value, "requires_grad", False) else value
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        import numpy

        made = numpy.asarray(value)
        if made.dtype.kind not in "fiub":
            raise TypeError(f"{name}: got values of {made.dtype}, expected numbers")
        return made
    if isinstance(value, (memoryview, bytearray)):
        import numpy

        return numpy.asarray(value)
    raise TypeError(f"{name}: got {type(value).__name__}, expected an array (NumPy, PyTorch, DLPack, a list)")


def _weight(value: Any, name: str) -> Any:
    value = _array(value, name)
    # A counter has no dimension, and the extension takes arrays only.
    return value.reshape(1) if len(value.shape) == 0 else value


def _is_integer(y: Any) -> bool:
    name = str(y.dtype)
    return any(each in name for each in ("int", "bool"))


def _pair(validation: Any) -> tuple[Any, Any]:
    if isinstance(validation, (tuple, list)) and len(validation) == 2:
        return validation[0], validation[1]
    raise TypeError(f"validation: got {type(validation).__name__}, expected (x, y) or a fraction as a float")


def _split(x: Any, y: Any, fraction: float, seed: int) -> tuple[Any, Any, Any, Any]:
    import numpy

    if not 0 < fraction < 1:
        raise ValueError(f"validation: got {fraction}, expected a fraction between 0 and 1")
    x, y = numpy.asarray(x), numpy.asarray(y)
    order = numpy.random.default_rng(seed).permutation(len(x))
    taken = max(1, round(fraction * len(x)))
    rest, part = numpy.sort(order[taken:]), numpy.sort(order[:taken])
    return x[rest], y[rest], x[part], y[part]


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


def _callbacks(callbacks: AnyCallback | Iterable[AnyCallback], verbose: bool) -> list[Callback]:
    given = [callbacks] if isinstance(callbacks, Callback) or callable(callbacks) else list(callbacks)
    result: list[Callback] = [_Printer()] if verbose else []
    for i, each in enumerate(given):
        if isinstance(each, Callback):
            result.append(each)
        elif callable(each):
            result.append(_Function(each))
        else:
            raise TypeError(f"callbacks[{i}]: got {type(each).__name__}, expected a function or a Callback")
    return result


def _on_progress(callbacks: list[Callback]) -> Any:
    wanting = [each for each in callbacks if type(each).on_progress is not Callback.on_progress]
    if not wanting:
        return None

    def call(progress: dict[str, Any]) -> bool:
        return all([each.on_progress(progress) is not False for each in wanting])

    return call


def _on_epoch(callbacks: list[Callback], history: History) -> Any:
    def call(epoch: dict[str, Any]) -> bool:
        validation = epoch.pop("validation", {})
        epoch.pop("step")
        number = int(epoch.pop("epoch"))
        logs = {**epoch, **{f"val_{key}": value for key, value in validation.items()}}
        history.epochs.append({"epoch": number, **logs})
        return all([each.on_epoch_end(number, logs) is not False for each in callbacks])

    return call
