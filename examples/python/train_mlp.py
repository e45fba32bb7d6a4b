"""Two spirals: trains a classifier on arrays, with validation and early stopping, and keeps it in a file."""

import tempfile
from pathlib import Path

import numpy as np

import ridgeline as rl
from ridgeline import nn


def spirals(n, seed):
    random = np.random.default_rng(seed)
    label = random.integers(0, 2, n)
    turn = 3 * np.sqrt(random.random(n))
    angle = turn + np.pi * label
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) + random.normal(0, 0.05, (n, 2))
    return points.astype(np.float32), label


x, y = spirals(2000, seed=1)
test_x, test_y = spirals(500, seed=2)

model = rl.Model(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)),
                 optimizer="adam", lr=0.01, device="cpu", threads=1)
history = model.fit(x, y, validation=0.1, epochs=40, batch_size=50,
                    callbacks=rl.callbacks.EarlyStopping("val_loss", patience=10))
print(history)
print(model.evaluate(test_x, test_y))

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "spirals.safetensors")
    again = rl.load(Path(folder) / "spirals.safetensors", device="cpu")
    assert (again.predict(test_x) == model.predict(test_x)).all()
assert model.evaluate(test_x, test_y)["accuracy"] > 0.95
