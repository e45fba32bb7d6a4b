"""A bridge to PyTorch: `Module` makes a model part of a larger PyTorch network, with gradients.

    import ridgeline.torch

    block = ridgeline.torch.Module(model)            # an nn.Module; its parameters are torch tensors
    net = torch.nn.Sequential(encoder, block, head)  # trains with any loss and optimizer of PyTorch
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from . import _core

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["Module"]

# torch.compile leaves out what this decorates, and compiles what is around it. PyTorch 1 has no compiler.
_not_compiled: Any = getattr(getattr(torch, "compiler", None), "disable", lambda function: function)


class _Pass(torch.autograd.Function):  # type: ignore[misc]
    """One forward pass; the backward pass computes it again with the same dropout."""

    @staticmethod
    def forward(ctx: Any, x: Any, module: Module, *weights: Any) -> Any:
        ctx.module, ctx.training, ctx.step = module, module.training, module._step
        ctx.save_for_backward(x, *weights)
        return module._forward(x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, *weights = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dx, grads = ctx.module._backward(x, dy.contiguous(), weights, wanted[0], wanted[2:], ctx.step, ctx.training)
        return (dx, None, *grads)


class Module(torch.nn.Module):  # type: ignore[misc]
    """A model as a PyTorch module. It returns the output of the model's last layer, before any softmax.

    The parameters are views of memory that this module's plans read where it lies, with the names of
    `Model.state_dict()`; they begin as the model's weights. It computes in float32, or float64 for a model with
    precision="fp64", on the model's device; on a GPU in order with PyTorch's current stream. Each size of a batch is
    planned once for forward and once for backward. Samples must be prepared already.
    """

    def __init__(self, model: Model, *, device: str | None = None, threads: int | None = None,
                 tune: bool | None = None) -> None:
        super().__init__()
        run = model.config["run"]
        self._options: dict[str, Any] = {"device": device or run.get("device", "auto"),
                         "threads": run.get("threads", 0) if threads is None else threads,
                         "tune": run.get("tune", True) if tune is None else tune}
        model._warn_of_scaling("ridgeline.torch.Module")
        self._function = _core.Function(model._ready("ridgeline.torch.Module"), **self._options)
        self._model = copy.deepcopy(model)
        self._lock = threading.Lock()
        self._step = 0
        self._addresses: list[tuple[str, int]] = []
        self._trained: list[str] = []
        for name, array, trained in self._function.weights():
            tensor = torch.from_dlpack(array) if self._function.gpu() >= 0 else torch.from_numpy(array)
            owner, key = self._place(name)
            if trained:
                owner.register_parameter(key, torch.nn.Parameter(tensor))
                self._trained.append(name)
            else:
                owner.register_buffer(key, tensor)
            self._addresses.append((name, tensor.data_ptr()))
        self.input_shape = tuple(self._function.input_shape())
        self.dtype = torch.float64 if self._function.double() else torch.float32
        gpu = self._function.gpu()
        self.device = torch.device("cpu") if gpu < 0 else torch.device("cuda", gpu)

    def to_model(self) -> Model:
        """Returns a `ridgeline.Model` with the current weights."""
        model = copy.deepcopy(self._model)
        model.load_state_dict({name: value.detach().cpu() for name, value in self.state_dict().items()})
        return model

    @_not_compiled  # type: ignore[untyped-decorator]
    def forward(self, x: Any) -> Any:
        """Returns the last layer's outputs for samples x [n, ...]: [n, outputs]."""
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x: got {type(x).__name__}, expected a torch.Tensor")
        if x.dtype != self.dtype:
            raise TypeError(f"x: got {x.dtype}, expected {self.dtype}")
        if x.device != self.device:
            raise ValueError(f"x: got a tensor on {x.device}, expected one on {self.device}")
        if tuple(x.shape[1:]) != self.input_shape or x.shape[0] < 1:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected (n, {', '.join(map(str, self.input_shape))}) "
                             "with n at least 1")
        tensors = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, address in self._addresses:
            if tensors[name].data_ptr() != address:
                raise ValueError(f"{name}: got a tensor of other memory, expected the module's own: it computes in "
                                 f"{self.dtype} on {self.device}, and is made anew for another type or device")
        if self.training:
            self._step += 1
        return _Pass.apply(x.contiguous(), self, *(tensors[name] for name in self._trained))

    def extra_repr(self) -> str:
        return f"{self._model!r}, device={str(self.device)!r}"

    def __reduce__(self) -> Any:
        return _restore, (self.to_model(), self._options, self.training, self._step)

    def _place(self, name: str) -> tuple[Any, str]:
        """The child that holds a weight, made if need be: "3.0.weight" is weight of child 0 of child 3."""
        *path, key = name.split(".")
        owner: Any = self
        for each in path:
            if each not in owner._modules:
                owner.add_module(each, torch.nn.Module())
            owner = owner._modules[each]
        return owner, key

    def _ordered(self, work: Any) -> None:
        """Runs work in order with PyTorch's current stream; the stream waits for what it has asked for."""
        with self._lock:
            if self.device.type == "cpu":
                work()
                return
            stream = torch.cuda.current_stream(self.device).cuda_stream
            self._function.wait_for(stream)
            work()
            self._function.let_wait(stream)

    def _forward(self, x: Any) -> Any:
        y = torch.empty((x.shape[0], self._function.outputs()), dtype=self.dtype, device=self.device)
        self._ordered(lambda: self._function.forward(x.data_ptr(), x.shape[0], y.data_ptr(), self._step,
                                                     self.training))
        return y

    def _backward(self, x: Any, dy: Any, weights: list[Any], wants_x: bool, wanted: tuple[bool, ...], step: int,
                  training: bool) -> tuple[Any, list[Any]]:
        dx = torch.empty_like(x) if wants_x else None
        of = {name: torch.empty_like(weight) if wants else None
              for name, weight, wants in zip(self._trained, weights, wanted, strict=True)}
        places = [of.get(name) for name, _ in self._addresses]
        grads = [0 if each is None else each.data_ptr() for each in places]
        self._ordered(lambda: self._function.backward(x.data_ptr(), dy.data_ptr(), x.shape[0],
                                                      0 if dx is None else dx.data_ptr(), grads, step, training))
        return dx, [of[name] for name in self._trained]


def _restore(model: Model, options: dict[str, Any], training: bool, step: int) -> Module:
    module = Module(model, **options)
    module.train(training)
    module._step = step
    return module
