"""A PyTorch module: the same answers, trained further here, and back to PyTorch."""

import numpy as np
import torch

import ridgeline as rl

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
x = torch.randn(600, 10)
y = x[:, :3].argmax(1)

model = rl.from_torch(module, optimizer="adam", lr=0.01, device="cpu", threads=1)
before = torch.softmax(module(x), 1).detach().numpy()
print("largest difference before training:", np.abs(model.predict_proba(x) - before).max())

print(model.fit(x, y, epochs=15, batch_size=50))

trained = model.to_torch()
after = torch.softmax(trained(x), 1).detach().numpy()
difference = np.abs(model.predict_proba(x) - after).max()
print("largest difference after training:", difference)
assert difference < 1e-5
assert (model.predict(x) == y.numpy()).mean() > 0.9
