"""Sequences of their own lengths, from JSON lines and from padded arrays: they are padded and masked in training, with
PyTorch's curve for packed sequences, and a model infers each by its own length. Errors in files are named."""

import csv
import json
import sys
import unittest

sys.dont_write_bytecode = True
import tool

torch, np = tool.import_torch()

CONFIG = """
[data]
{data}
[model]
layers = [{layers}]
[train]
batch = 16
epochs = {epochs}
shuffle = {shuffle}
log_steps = 1
optimizer = {{ type = "adam", lr = 0.01 }}
[run]
device = "cpu"
tune = false
"""
SAMPLES, MOST, TOKENS, CLASSES = 96, 11, 300, 3  # more tokens than a byte has values
LAYERS = ('{{ type = "embedding", vocabulary = {}, out = 6 }}, {{ type = "gru", hidden = 8, bidirectional = true }}, '
          '{{ type = "select", at = -1 }}, {{ type = "linear", out = 3 }}').format(TOKENS)
VECTORS = '{ type = "lstm", hidden = 8 }, { type = "select", at = -1 }, { type = "linear", out = 1 }'


class Sequences(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=1)
        self.addCleanup(self.folder.close)
        self.draw = np.random.default_rng(7)
        self.lengths = self.draw.integers(1, MOST + 1, SAMPLES)
        self.lengths[:2] = 1, MOST
        self.tokens = [self.draw.integers(0, TOKENS, n).tolist() for n in self.lengths]
        self.labels = np.array([sum(t) % CLASSES for t in self.tokens])

    def path(self, name):
        return str(self.folder / name)

    def lines(self, name, **fields):
        with open(self.folder / name, "w") as file:
            for values in zip(*fields.values()):
                file.write(json.dumps(dict(zip(fields, values))) + "\n")

    def train(self, data, layers=LAYERS, epochs=3, shuffle="true", out="run", flags=(), code=0):
        config = self.folder / f"{out}.toml"
        config.write_text(CONFIG.format(data=data, layers=layers, epochs=epochs, shuffle=shuffle))
        done = tool.run("train", config, "--quiet", "--force", "--out", self.path(out), *flags, code=code)
        return done.stderr if code else self.losses(out) if "--folds" not in flags else None

    def losses(self, out):
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return np.array([line["loss"] for line in lines if line["event"] == "train"])

    def infer(self, name, out="run", output="out.csv", code=0):
        done = tool.run("infer", self.folder / out, "--input", self.path(name), "--output", self.path(output),
                        "--device", "cpu", "--no-tune", code=code)
        if code:
            return done.stderr
        with open(self.folder / output, newline="") as file:
            return list(csv.DictReader(file))

    def own(self, name="t.jsonl"):
        return f'train = "{self.path(name)}"\ntest = "{self.path(name)}"\ntarget = "label"\n'

    def padded(self):
        x = np.full((SAMPLES, MOST + 2), -5)  # what is behind a sample's timesteps is never looked at
        for i, t in enumerate(self.tokens):
            x[i, :len(t)] = t
        return x

    def test_tokens_have_pytorchs_curve(self):
        self.lines("t.jsonl", tokens=self.tokens, label=self.labels.tolist())
        self.train(self.own(), epochs=0, out="start")
        got = self.train(self.own(), epochs=10, shuffle="false")
        weights = {name: torch.tensor(np.frombuffer(raw, "f4").reshape(shape).copy())
                   for name, (_, shape, raw) in tool.tensors(self.folder / "start" / "model.safetensors").items()}
        embedding = torch.nn.Embedding.from_pretrained(weights["0.weight"], freeze=False)
        gru = torch.nn.GRU(6, 8, batch_first=True, bidirectional=True)
        gru.load_state_dict({name: weights[f"1.{name}"] for name in gru.state_dict()})
        head = torch.nn.Linear(16, CLASSES)
        head.load_state_dict({name: weights[f"3.{name}"] for name in head.state_dict()})
        adam = torch.optim.Adam([*embedding.parameters(), *gru.parameters(), *head.parameters()], lr=0.01)
        want, lengths = [], torch.tensor(self.lengths)
        x, y = torch.tensor(np.where(self.padded() < 0, 0, self.padded())), torch.tensor(self.labels)
        for step in range(10 * SAMPLES // 16):
            part = slice(step * 16 % SAMPLES, step * 16 % SAMPLES + 16)
            packed = torch.nn.utils.rnn.pack_padded_sequence(embedding(x[part]), lengths[part], batch_first=True,
                                                             enforce_sorted=False)
            outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
            last = outputs[torch.arange(16), lengths[part] - 1]
            loss = torch.nn.functional.cross_entropy(head(last), y[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
            want.append(loss.item())
        np.testing.assert_allclose(got, want, atol=1e-5)

    def test_padded_arrays_and_longer_padding_train_alike(self):
        self.lines("t.jsonl", tokens=self.tokens, label=self.labels.tolist())
        want = self.train(self.own())
        np.savez(self.path("set.npz"), tokens=self.padded(), label=self.labels, counts=self.lengths)
        arrays = self.own("set.npz") + 'features = ["tokens"]\nlengths = "counts"\n'
        np.testing.assert_array_equal(self.train(arrays, out="arrays"), want)
        np.testing.assert_allclose(self.train(self.own() + "length = 40", out="long"), want, atol=1e-6)
        np.testing.assert_array_equal(self.train(self.own() + "resident = false", out="streamed"), want)
        # Each sample is answered by its own length, whatever the others are and however it comes.
        self.assertEqual(self.infer("t.jsonl"), self.infer("set.npz", out="arrays"))
        whole = self.infer("t.jsonl")
        for i in (0, 1, 17):
            self.lines("one.jsonl", tokens=[self.tokens[i]])
            alone = self.infer("one.jsonl")[0]
            for key in ("p_0", "p_1", "p_2"):
                self.assertAlmostEqual(float(alone[key]), float(whole[i][key]), places=6)
        report = json.loads(tool.run("eval", self.folder / "run", "--device", "cpu", "--json", "-").stdout)
        right = np.mean([int(row["label"]) == label for row, label in zip(whole, self.labels)])
        self.assertAlmostEqual(report["accuracy"], right)

    def test_vectors_are_scaled_by_the_timesteps_of_training(self):
        steps = [(self.draw.standard_normal((n, 2)) * [3, 0.1] + [50, 0]) for n in self.lengths]
        total = [float(s[:, 0].sum() / 50) for s in steps]
        self.lines("t.jsonl", x=[s.tolist() for s in steps], label=total)
        self.train(self.own(), VECTORS, epochs=5)
        kept = json.loads(tool.read_safetensors(self.folder / "run" / "model.safetensors")[1]["ridgeline.preparation"])
        every = np.concatenate(steps)
        feature = kept["features"][0]
        self.assertEqual((feature["type"], feature["length"]), ("sequence", MOST))
        np.testing.assert_allclose(feature["timestep"]["shift"], every.mean(0), rtol=1e-12)
        np.testing.assert_allclose(feature["timestep"]["scale"], 1 / every.std(0), rtol=1e-12)
        self.assertEqual(len(self.infer("t.jsonl")), SAMPLES)
        # Folds learn from their own timesteps, and a checkpoint goes on.
        self.train(self.own(), VECTORS, epochs=1, out="folds", flags=("--folds", "2"))
        tool.run("train", "--resume", self.folder / "run", "--quiet", "--set", "train.epochs=6")

    def test_describe_writes_a_config_that_trains(self):
        self.lines("t.jsonl", tokens=self.tokens, label=self.labels.tolist())
        tool.run("data", "describe", self.path("t.jsonl"), "--write-config", self.path("t.toml"))
        text = (self.folder / "t.toml").read_text()
        self.assertIn(f"vocabulary = {max(map(max, self.tokens)) + 1}", text)
        self.assertIn("gru", text)
        tool.run("train", self.path("t.toml"), "--quiet", "--set", "train.epochs=1", "--set", "run.device=cpu")

    def test_faults_are_named(self):
        self.lines("t.jsonl", tokens=self.tokens, label=self.labels.tolist())
        self.train(self.own())
        for tokens, says in (([1] * (MOST + 1), f"{MOST + 1} timesteps"), ([5, TOKENS], f"is {TOKENS}"),
                             ([5, -1], "timestep 1 of sample 0"), ([0.5], "0.5")):
            self.lines("bad.jsonl", tokens=[tokens, [1]])
            self.assertIn(says, self.infer("bad.jsonl", code=3))
        self.lines("bad.jsonl", tokens=["word", "other"])
        self.assertIn("sequence is wanted", self.infer("bad.jsonl", code=3))
        self.assertIn("tokens", self.train(self.own(), LAYERS.replace(str(TOKENS), "8"), code=3, out="few"))
        self.lines("f.jsonl", x=[[0.5], [1.5, 2]] * 10, label=[0, 1] * 10)
        self.assertIn("whole numbers", self.train(self.own("f.jsonl"), code=2, out="floats"))
        np.savez(self.path("set.npz"), tokens=self.padded(), label=self.labels, counts=self.lengths + 5)
        arrays = self.own("set.npz") + 'features = ["tokens"]\nlengths = "counts"\n'
        self.assertIn("room for 13", self.train(arrays, code=3, out="room"))
        self.assertIn("no field 'count'", self.train(arrays.replace("counts", "count"), code=3, out="none"))
        self.assertIn("window", self.train(self.own() + "window = { length = 2 }", code=2, out="window"))


if __name__ == "__main__":
    unittest.main()
