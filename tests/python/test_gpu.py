"""Arrays in GPU memory: what can be seen without a GPU, and, where there is one, PyTorch's, CuPy's and JAX's."""

import numpy as np
import pytest

import ridgeline as rl
from conftest import blobs, mlp


class Memory:
    """What nanobind gives for GPU memory."""

    def __dlpack__(self, **keywords):
        return keywords

    def __dlpack_device__(self):
        return 2, 3


class Queue:
    """The stream of a model that computes on a GPU."""

    def __init__(self):
        self.waited = []

    def stream(self):
        return 77

    def let_wait(self, stream):
        self.waited.append(stream)

    def synchronize(self):
        raise AssertionError("the host waits for no consumer")

    def download(self, address, shape):
        return np.full(shape, address, np.float32)


def test_consumers_name_the_stream_that_waits():
    queue = Queue()
    array = rl.DeviceArray(Memory(), 4096, (2, 3), 3, queue)
    assert array.__dlpack_device__() == (2, 3) and array.device == "cuda:3"
    # 1 names the default stream; with -1 the consumer orders streams itself.
    for stream, waited in ((None, [1]), (0, [1]), (1, [1]), (2, [2]), (123456, [123456]), (-1, [])):
        queue.waited.clear()
        array.__dlpack__(stream=stream)
        assert queue.waited == waited
    assert array.__dlpack__(stream=-1, max_version=(1, 0), copy=False) == {"max_version": (1, 0), "copy": False}
    interface = array.__cuda_array_interface__
    assert interface["stream"] == 77 and interface["data"] == (4096, False) and interface["shape"] == (2, 3)
    assert len(array) == 2 and array.ndim == 2 and array.data_ptr() == 4096 and "cuda:3" in repr(array)
    np.testing.assert_array_equal(np.asarray(array), np.full((2, 3), 4096, np.float32))
    assert np.asarray(array, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy: got False"):
        array.__array__(copy=False)


def on_gpu():
    """PyTorch, where it and this package have a GPU."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: install python3-torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    try:
        mlp(device="cuda").predict(blobs()[0])
    except rl.DeviceError as error:
        pytest.skip(f"needs a build with CUDA: {error}")
    return torch


def test_tensors_stay_on_the_gpu():
    torch = on_gpu()
    x, y = blobs()
    there = torch.from_numpy(x).cuda()
    model = mlp(device="cuda")
    before = rl.copied_bytes()
    model.fit(there, torch.from_numpy(y).cuda(), epochs=8, batch_size=24)
    assert rl.copied_bytes() == before
    answers = torch.from_dlpack(model.predict_proba(there))
    assert answers.is_cuda
    np.testing.assert_allclose(answers.cpu().numpy(), model.predict_proba(x), atol=1e-5)
    out = torch.empty_like(answers)
    assert model.predict_proba(there, out) is out and torch.equal(out, answers)
    handle = model.compile(batch=len(x))
    assert torch.allclose(torch.from_dlpack(handle(there)), answers, atol=1e-5)
    kept = torch.from_dlpack(handle(there[:5]))
    del handle, model, answers
    assert torch.isfinite(kept).all()


def test_streams_order_work_both_ways():
    """Samples are still being written when we are called, and answers are read while we may still compute."""
    torch = on_gpu()
    model = mlp(inputs=512, device="cuda")
    expected = torch.from_dlpack(model.outputs(torch.ones(4096, 512, device="cuda"))).clone()
    torch.cuda.synchronize()
    for _ in range(20):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            busy = torch.rand(4096, 4096, device="cuda")
            for _ in range(4):
                busy = busy @ busy
                busy /= busy.norm()
            x = torch.ones(4096, 512, device="cuda") + 0 * busy[:, :512]
            answers = torch.from_dlpack(model.outputs(x)) * 1
        stream.synchronize()
        assert torch.allclose(answers, expected, atol=1e-5)


def test_arrays_of_cupy_and_jax():
    on_gpu()
    x, _ = blobs()
    model = mlp(device="cuda")
    expected = model.predict_proba(x)
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    np.testing.assert_allclose(cupy.asnumpy(cupy.asarray(model.predict_proba(cupy.asarray(x)))), expected, atol=1e-5)
    jax = pytest.importorskip("jax", reason="needs JAX")
    if jax.default_backend() == "gpu":
        answers = jax.dlpack.from_dlpack(model.predict_proba(jax.numpy.asarray(x)))
        np.testing.assert_allclose(np.asarray(answers), expected, atol=1e-5)
