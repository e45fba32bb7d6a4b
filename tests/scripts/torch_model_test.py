"""A file that PyTorch wrote, of an nn.Sequential with Conv2d, BatchNorm2d and Linear, infers here what
it infers there."""

import csv
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import tool

CONFIG = """
[data]
name = "{data}"
[model]
layers = [
  {{ type = "conv2d", out = 5, kernel = 3, padding = 1 }},
  {{ type = "batchnorm" }},
  {{ type = "relu" }},
  {{ type = "maxpool2d", kernel = 2 }},
  {{ type = "conv2d", out = 4, kernel = 2, groups = 1 }},
  {{ type = "tanh" }},
  {{ type = "flatten" }},
  {{ type = "linear", out = 4 }},
]
[train]
batch = 16
epochs = 1
[run]
device = "cpu"
tune = false
"""

# Takes our file's metadata, gives it weights of torch's own and running statistics that are not
# those of the start, and prints torch's probabilities for the images.
TORCH = """
import json, sys, torch
from torch import nn
from safetensors import safe_open
from safetensors.torch import save_file
source, target, images = sys.argv[1:]
torch.manual_seed(5)
net = nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(5, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 4))
net.train()
for _ in range(3):
    net(torch.rand(8, 1, 6, 6))
with safe_open(source, framework="pt") as file:
    metadata = file.metadata()
    ours = {key: list(file.get_tensor(key).shape) for key in file.keys()}
state = net.state_dict()
assert {k: list(v.shape) for k, v in state.items()} == ours, (ours, state.keys())
save_file(state, target, metadata)
x = torch.tensor(json.load(open(images)), dtype=torch.float32).reshape(-1, 1, 6, 6)
x = x * float(metadata["ridgeline.scale"]) + float(metadata["ridgeline.shift"])
net.eval()
with torch.no_grad():
    print(json.dumps(torch.softmax(net(x), 1).tolist()))
"""


def torch_python():
    """One that is there already: torch is too large to be installed for a test."""
    for python in (os.environ.get("RIDGELINE_PEERS_PYTHON", "python3"), sys.executable):
        try:
            done = subprocess.run([python, "-c", "import torch, numpy, safetensors"],
                                  capture_output=True)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None


def main():
    python = torch_python()
    if python is None:
        print("skipped: no Python with torch and safetensors; name one in RIDGELINE_PEERS_PYTHON")
        return 77
    folder = tool.Folder()
    config = folder / "conv.toml"
    config.write_text(CONFIG.format(data=folder.data))
    tool.run("train", config, "--out", folder / "ours")
    pixels = [(i * 37 + i // 7) % 256 for i in range(9 * 36)]
    (folder / "images.json").write_text(json.dumps(pixels))
    tool.write_idx(folder / "images.idx", (9, 6, 6), bytes(pixels))
    done = subprocess.run([str(python), "-c", TORCH, str(folder / "ours" / "model.safetensors"),
                           str(folder / "torch.safetensors"), str(folder / "images.json")],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr)
        return 1
    want = json.loads(done.stdout)
    tool.run("infer", folder / "torch.safetensors", "--input", folder / "images.idx", "--output",
             folder / "out.csv")
    rows = list(csv.reader(open(folder / "out.csv")))[1:]
    assert len(rows) == len(want) == 9, rows
    worst = max(abs(float(cell) - p) for row, each in zip(rows, want)
                for cell, p in zip(row[2:], each))
    folder.close()
    print(f"probabilities differ from torch's by at most {worst:.1e}")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
