"""Arrays in GPU memory, which `Model` and its handles return for samples in GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class _Queue(Protocol):
    """The object that has computed an array: a model or a handle."""

    def stream(self) -> int: ...
    def let_wait(self, stream: int) -> None: ...
    def synchronize(self) -> None: ...
    def download(self, address: int, shape: Sequence[int]) -> npt.NDArray[np.float32]: ...


class DeviceArray:
    """float32 numbers in GPU memory, which lives as long as this object or anything made from it.

    `torch.from_dlpack(array)`, `jax.dlpack.from_dlpack(array)` and `cupy.asarray(array)` are views of the same
    memory; the stream that they name waits for what is still being computed. `numpy()` copies to the host.
    """

    def __init__(self, memory: Any, address: int, shape: tuple[int, ...], gpu: int, queue: _Queue) -> None:
        self._memory = memory
        self._address = address
        self._queue = queue
        self.shape = shape
        self.device = f"cuda:{gpu}"

    dtype = "float32"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def data_ptr(self) -> int:
        """The address of the first number, like that of PyTorch's tensors."""
        return self._address

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        # -1: the consumer orders streams itself; None and 0 mean the default stream, whose name is 1.
        if stream != -1:
            self._queue.let_wait(stream or 1)
        keywords: dict[str, Any] = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._memory.__dlpack__(**{key: value for key, value in keywords.items() if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._memory.__dlpack_device__()
        return int(kind), int(index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "<f4", "data": (self._address, False), "version": 3,
                "strides": None, "stream": self._queue.stream()}

    def numpy(self) -> npt.NDArray[np.float32]:
        """Copies the numbers to a NumPy array on the host."""
        return self._queue.download(self._address, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("copy: got False, expected True or None: the numbers are in a GPU's memory")
        numbers = self.numpy()
        return numbers if dtype is None else numbers.astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype=float32, device={self.device!r})"
