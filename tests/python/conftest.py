"""What the tests of the Python package share."""

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn


def blobs(n=240, features=6, classes=3, seed=1):
    """Points around one centre a class."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = random.normal(0, 0.3, (n, features))
    x[np.arange(n), y] += 1
    return x.astype(np.float32), y.astype(np.int64)


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
