"""Code that the tests of the Python package share."""

import os
import sys

import numpy as np
import pytest

# RIDGELINE_WITHOUT="torch,sklearn" has the tests run as if these packages were not installed.
for name in filter(None, os.environ.get("RIDGELINE_WITHOUT", "").split(",")):
    sys.modules[name] = None

import ridgeline as rl  # noqa: E402
from ridgeline import nn  # noqa: E402


def placed(array):
    """A copy that does not end just before the end of a page, where fit() would copy it once more."""
    memory = np.empty(array.nbytes + 2 * 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    if (start + memory.ctypes.data + array.nbytes - 1) % 4096 >= 4096 - 64:
        start += 128
    copy = memory[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def blobs(n=240, features=6, classes=3, seed=1):
    """Points around one centre per class."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = random.normal(0, 0.3, (n, features))
    x[np.arange(n), y] += 1
    return placed(x.astype(np.float32)), y.astype(np.int64)


def mlp(inputs=6, outputs=3, **keywords):
    """A small classifier that plans quickly."""
    options = {"optimizer": "adam", "lr": 0.02, "device": "cpu", "threads": 1, "tune": False, **keywords}
    return rl.Model(nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs)), **options)


@pytest.fixture(scope="session")
def data():
    return blobs()


@pytest.fixture(scope="session")
def trained(data):
    model = mlp()
    model.fit(*data, epochs=6, batch_size=24)
    return model
