"""A file that PyTorch wrote, of an nn.Sequential with Conv2d, BatchNorm2d and Linear, infers here what
it infers there."""

import csv
import sys

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()

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

NAMES = {torch.float32: "F32", torch.int64: "I64"}


def trained_in_torch():
    """A net with weights of torch's own and running statistics that are not those of the start."""
    torch.manual_seed(5)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 5, 3, padding=1), torch.nn.BatchNorm2d(5), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Conv2d(5, 4, 2), torch.nn.Tanh(), torch.nn.Flatten(),
        torch.nn.Linear(16, 4))
    net.train()
    for _ in range(3):
        net(torch.rand(8, 1, 6, 6))
    return net.eval()


def main():
    folder = tool.Folder()
    config = folder / "conv.toml"
    config.write_text(CONFIG.format(data=folder.data))
    tool.run("train", config, "--out", folder / "ours")
    ours, metadata = tool.read_safetensors(folder / "ours" / "model.safetensors")
    net = trained_in_torch()
    state = net.state_dict()
    assert {k: list(v.shape) for k, v in state.items()} == {k: shape for k, (_, shape, _) in ours.items()}
    tool.write_safetensors(folder / "torch.safetensors",
                           {name: (NAMES[t.dtype], t.shape, t.numpy().tobytes()) for name, t in state.items()},
                           metadata)

    pixels = bytes((i * 37 + i // 7) % 256 for i in range(9 * 36))
    tool.write_idx(folder / "images.idx", (9, 6, 6), pixels)
    x = torch.tensor(list(pixels), dtype=torch.float32).reshape(-1, 1, 6, 6)
    x = x * float(metadata["ridgeline.scale"]) + float(metadata["ridgeline.shift"])
    with torch.no_grad():
        want = torch.softmax(net(x), 1).numpy()
    tool.run("infer", folder / "torch.safetensors", "--input", folder / "images.idx", "--output",
             folder / "out.csv")
    rows = list(csv.reader(open(folder / "out.csv")))[1:]
    assert len(rows) == 9, rows
    worst = np.abs(np.array(rows, float)[:, 2:] - want).max()
    folder.close()
    print(f"probabilities differ from torch's by at most {worst:.1e}")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
