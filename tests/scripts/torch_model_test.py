"""Files that PyTorch wrote, of an nn.Sequential with Conv2d, BatchNorm2d and Linear and of a module that branches,
infer here what they infer there."""

import csv
import sys

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()

CONFIG = """
[data]
name = "{data}"
[model]
layers = [{layers}]
[train]
batch = 16
epochs = 1
[run]
device = "cpu"
tune = false
"""

SEQUENTIAL = """
  { type = "conv2d", out = 5, kernel = 3, padding = 1 },
  { type = "batchnorm" },
  { type = "relu" },
  { type = "maxpool2d", kernel = 2 },
  { type = "conv2d", out = 4, kernel = 2, groups = 1 },
  { type = "tanh" },
  { type = "flatten" },
  { type = "linear", out = 4 },
"""
BRANCHING = """
  { type = "conv2d", out = 4, kernel = 3, padding = 1, name = "stem" },
  { name = "wide", type = "residual", shortcut = [{ type = "conv2d", out = 6, kernel = 1, bias = false }], layers = [
    { type = "batchnorm" }, { type = "relu" }, { type = "conv2d", out = 6, kernel = 3, padding = 1 } ] },
  { name = "deep", repeat = 2, type = "residual", layers = [
    { type = "conv2d", out = 6, kernel = 3, padding = 1 }, { type = "tanh" } ] },
  { type = "concat", inputs = ["stem", "wide", "deep"] },
  { type = "linear", out = 4 },
"""

NAMES = {torch.float32: "F32", torch.int64: "I64"}


class Residual(torch.nn.Sequential):
    """The layers have the names of their places, "0.weight"; those of the shortcut "shortcut.0.weight"."""

    def __init__(self, *layers, shortcut=None):
        super().__init__(*layers)
        self.count = len(layers)
        if shortcut is not None:
            self.shortcut = torch.nn.Sequential(shortcut)

    def forward(self, x):
        y = x
        for i in range(self.count):
            y = self[i](y)
        return y + (self.shortcut(x) if hasattr(self, "shortcut") else x)


class Branching(torch.nn.Sequential):
    def __init__(self):
        nn = torch.nn
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1),
            Residual(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), shortcut=nn.Conv2d(4, 6, 1, bias=False)),
            nn.Sequential(*(Residual(nn.Conv2d(6, 6, 3, padding=1), nn.Tanh()) for _ in range(2))),
            nn.Identity(), nn.Linear(16 * 36, 4))

    def forward(self, x):
        stem = self[0](x)
        wide = self[1](stem)
        return self[4](torch.cat([stem, wide, self[2](wide)], 1).flatten(1))


def sequential():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(5, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 4))


def trained_in_torch(make):
    """A net with weights of torch's own and running statistics that are not those of the start."""
    torch.manual_seed(5)
    net = make()
    net.train()
    for _ in range(3):
        net(torch.rand(8, 1, 6, 6))
    return net.eval()


def check(folder, name, layers, make):
    """How far the probabilities are from torch's."""
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(data=folder.data, layers=layers))
    tool.run("train", config, "--out", folder / name)
    ours, metadata = tool.read_safetensors(folder / name / "model.safetensors")
    net = trained_in_torch(make)
    state = net.state_dict()
    assert {k: list(v.shape) for k, v in state.items()} == {k: shape for k, (_, shape, _) in ours.items()}
    tool.write_safetensors(folder / f"{name}.safetensors",
                           {key: (NAMES[t.dtype], t.shape, t.numpy().tobytes()) for key, t in state.items()},
                           metadata)

    pixels = bytes((i * 37 + i // 7) % 256 for i in range(9 * 36))
    tool.write_idx(folder / "images.idx", (9, 6, 6), pixels)
    x = torch.tensor(list(pixels), dtype=torch.float32).reshape(-1, 1, 6, 6)
    x = x * float(metadata["ridgeline.scale"]) + float(metadata["ridgeline.shift"])
    with torch.no_grad():
        want = torch.softmax(net(x), 1).numpy()
    tool.run("infer", folder / f"{name}.safetensors", "--input", folder / "images.idx", "--output",
             folder / "out.csv")
    rows = list(csv.reader(open(folder / "out.csv")))[1:]
    assert len(rows) == 9, rows
    return np.abs(np.array(rows, float)[:, 2:] - want).max()


def main():
    folder = tool.Folder()
    worst = max(check(folder, "sequential", SEQUENTIAL, sequential), check(folder, "branching", BRANCHING, Branching))
    folder.close()
    print(f"probabilities differ from torch's by at most {worst:.1e}")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
