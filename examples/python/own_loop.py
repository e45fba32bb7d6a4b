"""A net that branches, trained in a loop of one's own: the rate and the order of the samples are this program's."""

import numpy as np

import ridgeline as rl
from ridgeline import nn

rng = np.random.default_rng(1)
x = rng.normal(size=(2000, 8)).astype(np.float32)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(np.int64)

inputs = nn.Input((8,))
hidden = nn.ReLU()(nn.Linear(8, 32)(inputs))
gate = nn.Sigmoid()(nn.Linear(8, 32)(inputs))
model = rl.Model(nn.Graph(inputs, nn.Linear(32, 2)(hidden * gate + hidden)), optimizer="adam", lr=0.01)

for epoch in range(10):
    order = rng.permutation(1600)
    losses = [model.train_step(x[batch], y[batch], lr=0.01 * 0.8**epoch)["loss"] for batch in order.reshape(-1, 50)]
    scores = model.evaluate(x[1600:], y[1600:])
    print(f"epoch {epoch + 1}  loss {np.mean(losses):.4f}  accuracy {scores['accuracy']:.3f}")
