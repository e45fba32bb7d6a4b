"""The network of a `Model`: its config, weights, files and copies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from . import _config, _core, nn
from ._errors import UsageError
from ._inputs import as_count, as_loss, as_shape, as_weight

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

# Names of files that are no safetensors files, and who writes those.
_FORMATS = {".onnx": "to_onnx writes ONNX", **dict.fromkeys((".pt", ".pth"), "torch.save(model.to_torch().state_dict(), path) writes PyTorch's"),
            ".npz": "numpy.savez(path, **model.state_dict()) writes NumPy's",
            **dict.fromkeys((".pkl", ".pickle", ".joblib"), "pickle takes models too"),
            **dict.fromkeys((".h5", ".keras", ".hdf5"), "Keras' files are not written")}

_RUN = ("device", "threads", "precision", "deterministic", "tune")


class Control:
    """What callbacks of a run change, which the extension module reads, and what it gives them."""

    lr: float | None = None
    model: Callable[[], _core.Model] | None = None  # while a callback runs: a copy with the current weights


class Network:
    """The layers, settings and weights of a `Model`."""

    def __init__(self, network: nn.Sequential | nn.Graph | Sequence[nn.Layer] | Mapping[str, Any] | str | os.PathLike[str], *,
                 input_shape: int | Sequence[int] | None = None, loss: Any = None, optimizer: Any = None,
                 lr: float | None = None, schedule: Any = None, clip_norm: float | None = None,
                 augment: Mapping[str, Any] | None = None, scale: str | None = None,
                 freeze: int | str | Sequence[int | str] | None = None, seed: int | None = None,
                 device: str | None = None, threads: int | None = None, precision: str | None = None,
                 deterministic: bool | None = None, tune: bool | None = None) -> None:
        self._core: _core.Model | None = None
        self._trained = False
        self._sequential: nn.Sequential | nn.Graph | None = None
        self._control: Control | None = None  # of a fit that goes on
        self._steps: _core.StepTrainer | None = None  # of train_step
        self._columns: list[str] | None = None  # of the table that it was trained on
        self._newer = False  # the weights of _steps are newer than those of _core
        self._shared: dict[str, Any] | None = None  # PyTorch's parameters that lie in our memory
        self._version = 0
        self._lock = threading.RLock()  # held by what uses _steps
        if isinstance(network, (list, tuple)):
            network = nn.Sequential(*network)
        if isinstance(network, (nn.Sequential, nn.Graph)):
            self._sequential = network
            self._config = _config.check({"model": {"layers": network.config()}})
            scale = scale or "raw"
        elif isinstance(network, Mapping):
            self._config = _config.check(network)
        elif isinstance(network, (str, os.PathLike)):
            self._config = _config.read(network)
        else:
            raise TypeError(f"network: got {type(network).__name__}, expected a ridgeline.nn.Sequential or "
                            "Graph, a config dict or the path of a TOML file (from_torch takes PyTorch's modules)")
        train, run = self._config["train"], self._config["run"]
        if isinstance(schedule, str):
            schedule = {"type": schedule}
        freeze = [freeze] if isinstance(freeze, (int, str)) else freeze
        for key, value in (("loss", as_loss(loss)), ("schedule", schedule), ("clip_norm", clip_norm), ("freeze", freeze),
                           ("seed", seed)):
            if value is not None:
                train[key] = value
        if optimizer is not None:
            if not isinstance(optimizer, (str, Mapping)):
                raise TypeError(f"optimizer: got {optimizer!r}, expected a name, or a dict such as "
                                "{'type': 'adam', 'lr': 1e-3}")
            train["optimizer"] = {"type": optimizer} if isinstance(optimizer, str) else dict(optimizer)
        if lr is not None:
            train["optimizer"] = {**train.get("optimizer", {"type": "sgd"}), "lr": lr}
        if self._sequential is not None and self._sequential.layers[-1].type == "sigmoid" and \
                self._loss() == "binary-cross-entropy":
            raise UsageError("loss: the binary cross-entropy applies the sigmoid itself: leave out the last layer, Sigmoid()")
        if scale is not None:
            self._config["data"]["scale"] = self._config["data"]["target_scale"] = scale
        if augment is not None:
            self._config["data"]["augment"] = dict(augment)
            if self._raw or (self._sequential is not None and scale is None):
                raise UsageError("augment: got samples that are not scaled, expected images of bytes with scale=\"unit\" or "
                                 "\"standard\"")
        self._check_freeze()
        for key, value in zip(_RUN, (device, threads, precision, deterministic, tune), strict=True):
            if value is not None:
                run[key] = value
        if input_shape is None and self._sequential is not None:
            input_shape = self._sequential.input_shape()
        self._input_shape = None if input_shape is None else as_shape(input_shape, "input_shape")
        if self._input_shape is not None and self._raw:
            self._build(self._input_shape)

    @property
    def config(self) -> dict[str, Any]:
        """The config as nested dicts; a copy."""
        return _config.check(self._config)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one sample; None until it is known."""
        return tuple(self._core.input_shape()) if self._core is not None else self._input_shape

    @property
    def classes_(self) -> Array:
        """The classes by output: integers, or words if the data had words. Empty for values."""
        import numpy

        names = self._ready("classes_").classes()
        try:
            return numpy.array([int(name) for name in names], dtype=numpy.int64)
        except ValueError:
            return numpy.array(names)

    @property
    def freeze(self) -> list[int | str]:
        """The layers that keep their weights, by number or type; may be set, for the training that follows.

        `train_step` of a model that scales its samples follows with the next `fit`.
        """
        return list(self._config["train"].get("freeze") or [])

    @freeze.setter
    def freeze(self, layers: int | str | Sequence[int | str] | None) -> None:
        self._need_idle("freeze")
        if self._core is not None:
            self._ready("freeze")  # the weights of train_step, which begins anew
        before = self._config["train"].get("freeze")
        self._config["train"]["freeze"] = [layers] if isinstance(layers, (int, str)) else list(layers or [])
        try:
            self._check_freeze()
        except UsageError:
            self._config["train"]["freeze"] = before
            raise
        self._steps = None
        if self._core is not None and self._sequential is not None and self._raw:  # train_step takes the network's config
            weights = self._core.weights(True)
            self._build(tuple(self._core.input_shape()))
            self._core.set_weights(weights)

    def summary(self) -> None:
        """Prints each layer with the shape of its output and the number of its parameters."""
        from ._reports import layer_table

        core = self._ready("summary")
        print(layer_table(tuple(core.input_shape()), core.layers()))

    def count_params(self) -> int:
        """The number of parameters: the numbers that are trained."""
        return sum(parameters for *_, parameters in self._ready("count_params").layers())

    def __repr__(self) -> str:
        layers = ", ".join(str(layer.get("type")) for layer in self._config["model"].get("layers", []))
        shape = self.input_shape
        state = "trained" if self._trained else "untrained"
        return f"Model({layers}; input {'not known yet' if shape is None else shape}; {state})"

    # --------------------------------------------------------------------------------- files, weights

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .safetensors file that `ridgeline infer` and PyTorch's library read too."""
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix in _FORMATS:
            raise ValueError(f"path: got {os.fspath(path)!r}, expected the name of a .safetensors file; {_FORMATS[suffix]}")
        self._ready("save").save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "auto", threads: int = 0,
             tune: bool = True) -> Self:
        """Loads the model of a file, or of the folder of a run, whichever program made it."""
        if not os.path.exists(path):
            raise FileNotFoundError(2, "no such model", os.fspath(path))
        return cls._of(_core.Model.load(os.fspath(path), device, threads, tune),
                       {"device": device, "threads": threads, "tune": tune})

    def state_dict(self, *, copy: bool = True) -> dict[str, Array]:
        """The weights by PyTorch's names for an nn.Sequential of the same layers.

        With copy=False the arrays are views of the model's memory, which they keep alive. Whoever writes to them
        calls `weights_changed` afterwards, and `fit` gives the model other memory.
        """
        return dict(self._ready("state_dict").weights(copy))

    def weights_changed(self) -> None:
        """Reports that arrays of state_dict(copy=False) were written to."""
        self._ready("weights_changed").weights_changed()
        self._steps = None

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Loads weights by these names: NumPy arrays, PyTorch tensors, or other arrays.

        With strict=False weights that are missing keep what they are, and names that the model does not have are left
        out: part of another model's weights can be taken.
        """
        self._need_idle("load_state_dict")
        core = self._ready("load_state_dict")
        if not isinstance(state, Mapping):
            raise TypeError(f"state: got {type(state).__name__}, expected a dict of arrays by the names of state_dict()")
        own = {} if strict else dict(core.weights(True))
        given = {name: as_weight(value, name) for name, value in state.items() if strict or name in own}
        if not strict and not given:
            raise UsageError(f"state: got none of the model's weights, expected some of {', '.join(own)}")
        core.set_weights(list({**own, **given}.items()))
        self._steps = None

    def to_torch(self, *, share: bool = False) -> Any:
        """Returns a PyTorch module with the same layers and weights.

        It takes samples as the layers see them, which a warning says of a model that scales them first. With share=True
        its parameters are this model's own memory: what either trains, the other computes with.
        """
        from ._torch_graph import to_torch

        self._warn_of_scaling("to_torch: the module")
        return to_torch(self, share)

    @overload
    def to_onnx(self, path: None = None, *, opset: int = 17, half_weights: bool = False) -> bytes: ...

    @overload
    def to_onnx(self, path: str | os.PathLike[str], *, opset: int = 17, half_weights: bool = False) -> None: ...

    def to_onnx(self, path: str | os.PathLike[str] | None = None, *, opset: int = 17,
                half_weights: bool = False) -> bytes | None:
        """Writes an ONNX file, or returns its bytes if there is no `path`.

        Scaling of samples and the softmax of a classifier are part of it; a warning names what is not.
        """
        file, warnings = self._ready("to_onnx").to_onnx(opset, half_weights)
        if path is not None:
            with open(path, "wb") as onnx:
                onnx.write(file)
        for line in warnings:
            import warnings as python_warnings

            python_warnings.warn(f"to_onnx: {line}", stacklevel=2)
        return file if path is None else None

    def __getstate__(self) -> dict[str, Any]:
        left_out = {"_core": None, "_steps": None, "_control": None, "_newer": False, "_shared": None, "_lock": None}
        core = None if self._core is None else self._ready("pickle")
        return {**self.__dict__, **left_out, "file": None if core is None else core.to_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        file = state.pop("file")
        self.__dict__.update(state)
        self._lock = threading.RLock()
        run = self._config["run"]
        self._core = None if file is None else _core.Model.from_bytes(
            file, run.get("device", "auto"), run.get("threads", 0), run.get("tune", True))

    # ----------------------------------------------------------------------------------------- inside

    @classmethod
    def _of(cls, core: _core.Model, run: dict[str, Any]) -> Self:
        model = cls.__new__(cls)
        model._core, model._trained, model._sequential = core, True, None
        model._control, model._steps, model._shared, model._newer, model._version = None, None, None, False, 0
        model._lock, model._columns = threading.RLock(), None
        model._config = _config.from_toml(core.config())
        if str(model._config["data"].get("train")).endswith(".onnx"):  # the file scales samples itself, if it does
            model._config["data"].setdefault("scale", "raw")
        model._config["run"].update(run)
        model._input_shape = tuple(core.input_shape())
        return model

    def _warn_of_scaling(self, what: str) -> None:
        if not self._raw:
            import warnings

            warnings.warn(f"{what} takes samples that are already scaled, as this model scales them (scale="
                          f"{self._config['data'].get('scale', 'standard')!r})", stacklevel=3)

    @property
    def _raw(self) -> bool:
        return self._config["data"].get("scale") in ("raw", "none")

    def _loss(self) -> str | None:
        loss = self._config["train"].get("loss")
        return loss.get("type") if isinstance(loss, Mapping) else loss

    def _need_idle(self, what: str) -> None:
        if self._control is not None:
            raise UsageError(f"{what}: fit() is training the model: wait until it has returned, or train a copy.deepcopy")

    def _ready(self, what: str) -> _core.Model:
        if self._control is not None and self._control.model is not None:
            self._take(self._control.model())
            self._control.model = None  # the weights stay the same until the callback returns
        if self._core is None:
            raise UsageError(f"{what}: the model has no weights yet: call fit() first, or give input_shape "
                             "and scale=\"raw\"")
        with self._lock:
            if self._newer and self._steps is not None:
                self._steps.give_weights(self._core)
                self._newer = False
        if self._shared is not None:
            version = sum(each._version for each in self._shared.values())
            if version != self._version:
                self._core.weights_changed()
                self._steps = None
                self._version = version
        return self._core

    def _take(self, core: _core.Model) -> None:
        """Takes the model of a run, or of its steps so far. Memory shared with a PyTorch module gets its weights."""
        self._steps, self._newer, self._trained = None, False, True
        if self._shared is None or self._core is None:
            self._core = core
        else:
            self._core.set_weights(core.weights())

    def _check_freeze(self) -> None:
        """Checks `freeze` by the layers of a `Sequential` or `Graph`; the library checks that of a config."""
        tables = self._config["model"].get("layers", []) if self._sequential is not None else []
        types = {table.get("type"): None for table in tables}
        for each in self._config["train"].get("freeze") or [] if tables else []:
            path = str(each).split(".") if each not in types else ["0"]  # "3.0" is a layer inside a block
            if not all(part.isdigit() for part in path) or int(path[0]) >= len(tables):
                raise UsageError(f"freeze: got {each!r}, expected layers by number, 0 to {len(tables) - 1}, or by type: "
                                 f"{', '.join(map(repr, types))}")

    def _build(self, shape: tuple[int, ...]) -> None:
        shape = self._channels_first(shape)
        config = {**self._config, "data": {}}
        run = self._config["run"]
        self._core = _core.Model.create(_config.to_toml(config), shape, run.get("device", "auto"),
                                        run.get("threads", 0), run.get("tune", True))
        if self._sequential is None:
            return
        self._check_takes()

    def _channels_first(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample for a `Sequential` that begins with a convolution, which takes channels first."""
        first = self._sequential.layers[0] if isinstance(self._sequential, nn.Sequential) else None
        channels = first.in_channels if isinstance(first, nn.Conv2d) else None
        if channels is None or len(shape) != 3 or shape[0] == channels or shape[2] != channels:
            return shape
        if channels != 1:
            raise ValueError(f"layer 0 (conv2d): got samples {list(shape)}, expected {channels} channels first: "
                             "x.transpose(0, 3, 1, 2)")
        return (1, *shape[:2])

    def _check_takes(self) -> None:
        """Compares what the layers were told that they take with what comes to them."""
        assert self._core is not None and self._sequential is not None
        shapes = {name: value.shape for name, value in self._core.weights()}
        for i, layer in enumerate(self._sequential.layers):
            taken = layer.takes()
            if taken is None:
                continue
            weight, axis, told = taken
            as_count(told, f"layer {i} ({layer.type}): inputs", 1)
            if (comes := shapes[f"{i}.{weight}"][axis]) != told:
                before = [table[2] for table in self._core.layers() if table[0] == str(i - 1)]
                remedy = "; nn.Select() before it takes the last timestep, per_step=True each" \
                    if layer.type == "linear" and before and len(before[0]) == 2 and before[0][-1] == told else ""
                self._core = None
                raise ValueError(f"layer {i} ({layer.type}): got {told} inputs, expected {comes}, which is what comes "
                                 f"to it{remedy}")
