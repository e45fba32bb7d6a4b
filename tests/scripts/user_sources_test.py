"""A user's data beyond tables: large arrays stay in their files, safetensors and raw numbers are read, categories are learnt
as embeddings with PyTorch's curve, each fold learns its own scaling, and a gzip bomb is refused."""

import gzip
import json
import struct
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
{train}
[run]
device = "cpu"
tune = false
"""
MLP = '{{ type = "linear", out = 16 }}, {{ type = "relu" }}, {{ type = "linear", out = {} }}'


class UserSources(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=1)
        self.addCleanup(self.folder.close)
        self.draw = np.random.default_rng(3)

    def path(self, name):
        return str(self.folder / name)

    def train(self, data, layers, train="batch = 16\nepochs = 2", *flags, out="run", code=0):
        config = self.folder / f"{out}.toml"
        config.write_text(CONFIG.format(data=data, layers=layers, train=train))
        done = tool.run("train", config, "--quiet", "--force", "--out", self.path(out), "--json", self.path("r.json"),
                        *flags, code=code)
        return json.loads((self.folder / "r.json").read_text()) if code == 0 else done.stderr

    def losses(self, out):
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return np.array([line["loss"] for line in lines if line["event"] == "train"])

    def preparation(self, out):
        return json.loads(tool.read_safetensors(self.folder / out / "model.safetensors")[1]["ridgeline.preparation"])

    def test_a_large_array_stays_in_its_file(self):
        """Samples are prepared when they are needed, with the values of a resident set. (Without the setting this happens
        above 512 MiB.)"""
        x = (self.draw.standard_normal((1000, 400)) * 3 + 5).astype("f4")
        x = np.tile(x, (48, 1))
        x[:, 0] += np.arange(len(x), dtype="f4") / 1000
        y = x[:, 0] * 0.1 + x[:, 1]
        np.save(self.path("x.npy"), x)
        np.save(self.path("y.npy"), y)
        files = f'train = "{self.path("x.npy")}"\ntarget = "{self.path("y.npy")}"\n'
        steps = "batch = 64\nepochs = 1\nmax_steps = 12\nlog_steps = 1"
        mapped = self.train(files + "resident = false", MLP.format(1), steps, out="mapped")
        resident = self.train(files + "resident = true", MLP.format(1), steps, out="resident")
        self.assertEqual(mapped["samples"] if "samples" in mapped else 0, resident.get("samples", 0))
        np.testing.assert_allclose(self.losses("mapped"), self.losses("resident"), atol=1e-5)
        kept = self.preparation("mapped")
        self.assertEqual(kept, self.preparation("resident"))
        shift = np.array(kept["features"][0]["shift"])
        # A tenth of the samples is for testing; the means of the others are near those of all.
        self.assertLess(np.abs(shift - x.mean(0, dtype="f8")).max(), 0.2)
        # What is not finite is named when it is met.
        x[:, 7] = np.nan
        np.save(self.path("x.npy"), x)
        self.assertIn("missing", self.train(files + 'resident = false\nscale = "none"', MLP.format(1), steps, out="nan", code=3))

    def test_safetensors(self):
        x = self.draw.standard_normal((200, 3)).astype("f4")
        y = (x.sum(1) > 0).astype("i8")
        file = self.folder / "set.safetensors"
        tool.write_safetensors(file, {"x": ("F32", [200, 3], x.tobytes()), "y": ("I64", [200], y.tobytes())}, {})
        adam = 'batch = 16\nepochs = 30\noptimizer = { type = "adam", lr = 0.01 }'
        self.assertGreater(self.train(f'train = "{file}"\ntarget = "y"', MLP.format(2), adam)["accuracy"], 0.8)
        said = tool.run("data", "describe", file).stdout
        self.assertIn("safetensors", said)
        self.assertIn("200 samples, 2 fields", said)
        whole = file.read_bytes()
        length = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8:8 + length])
        for fault in ({"x": {"dtype": "F32", "shape": [200, 4]}}, {"x": {"data_offsets": [8, 2408]}},
                      {"x": {"dtype": "F8"}}, {"y": {"shape": []}}, {"x": {"shape": [-1, 3]}},
                      {"x": {"shape": [1 << 40, 1 << 40]}}):
            broken = {key: {**value, **fault.get(key, {})} for key, value in header.items() if key != "__metadata__"}
            text = json.dumps(broken).encode()
            file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length:])
            tool.run("data", "describe", file, code=3)
        file.write_bytes(whole[:-10])
        tool.run("data", "describe", file, code=3)

    def test_raw_numbers(self):
        x = self.draw.standard_normal((300, 2, 3)).astype(">f8")
        y = (x.sum((1, 2)) > 0).astype("i4")
        (self.folder / "x.bin").write_bytes(x.tobytes())
        (self.folder / "y.bin").write_bytes(y.tobytes())
        np.save(self.path("x.npy"), x)
        np.save(self.path("y.npy"), y)
        adam = 'batch = 16\nepochs = 5\noptimizer = { type = "adam", lr = 0.01 }'
        raw = (f'train = "{self.path("x.bin")}"\ntarget = "{self.path("y.bin")}"\ndtype = ">float64"\nshape = [2, 3]\n'
               'target_dtype = "int32"')
        self.train(raw, MLP.format(2), adam, out="raw")
        self.train(f'train = "{self.path("x.npy")}"\ntarget = "{self.path("y.npy")}"', MLP.format(2), adam, out="npy")
        one, other = (tool.tensors(self.folder / out / "model.safetensors") for out in ("raw", "npy"))
        self.assertEqual(one, other)
        outputs = []
        for name in ("x.bin", "x.npy"):  # a model takes files that say what they are as well
            tool.run("infer", self.folder / "raw", "--input", self.path(name), "--output", self.path("out.npy"),
                     "--device", "cpu", "--no-tune")
            outputs.append((self.folder / "out.npy").read_bytes())
        self.assertEqual(*outputs)
        self.assertIn("dtype", self.train(raw.replace("shape = [2, 3]\n", ""), MLP.format(2), code=2))
        self.assertIn("type", self.train(raw.replace(">float64", "float65"), MLP.format(2), code=2))
        self.assertIn("whole number of samples", self.train(raw.replace("[2, 3]", "[7]"), MLP.format(2), code=3))

    def table(self, name, samples=320):
        kinds, towns = np.array(["flat", "house", "hut"]), np.array([f"town{i}" for i in range(7)])
        kind, town = self.draw.integers(0, 3, samples), self.draw.integers(0, 7, samples)
        kind[:3], town[:7] = range(3), range(7)
        area, rooms = self.draw.standard_normal((2, samples))
        price = area + 0.5 * rooms + kind + 0.3 * (town % 3)
        with open(self.folder / name, "w") as file:
            file.write("area,kind,rooms,town,price\n")
            for i in range(samples):
                file.write(f"{area[i]!r},{kinds[kind[i]]},{rooms[i]!r},{towns[town[i]]},{price[i]!r}\n")
        return np.stack([area, rooms], 1), kind, town, price

    def test_embeddings_of_columns_have_pytorchs_curve(self):
        numbers, kind, town, price = self.table("t.csv")
        self.table("test.csv", 20)
        data = (f'train = "{self.path("t.csv")}"\ntest = "{self.path("test.csv")}"\nscale = "none"\n'
                'target_scale = "none"')
        layers = '{ type = "column_embedding" }, { type = "linear", out = 8 }, { type = "silu" }, ' \
                 '{ type = "linear", out = 1 }'
        steps = 'batch = 32\nepochs = {}\nshuffle = false\nlog_steps = 1\noptimizer = {{ type = "adam", lr = 0.01 }}'
        self.train(data, layers, steps.format(0), out="start")
        self.train(data, layers, steps.format(10), out="run")
        tensors, metadata = tool.read_safetensors(self.folder / "start" / "model.safetensors")
        start = {name: torch.tensor(np.frombuffer(raw, "f4").reshape(shape).copy())
                 for name, (_, shape, raw) in tensors.items()}
        self.assertEqual(start["0.weight0"].shape, (3, 3))  # 1.6 * 3^0.56 = 3 numbers for 3 kinds
        self.assertEqual(start["0.weight1"].shape, (5, 7))
        embeddings = [torch.nn.Embedding.from_pretrained(start[f"0.weight{i}"].T.contiguous(), freeze=False)
                      for i in range(2)]
        net = torch.nn.Sequential(torch.nn.Linear(10, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1))
        net.load_state_dict({name: start[f"{int(name[0]) + 1}{name[1:]}"] for name in net.state_dict()})
        optimizer = torch.optim.Adam([*net.parameters(), *(p for e in embeddings for p in e.parameters())], lr=0.01)
        x, y = torch.tensor(numbers, dtype=torch.float32), torch.tensor(price, dtype=torch.float32)[:, None]
        codes = [torch.tensor(kind), torch.tensor(town)]
        want = []
        for step in range(100):
            part = slice(step % 10 * 32, step % 10 * 32 + 32)
            columns = [x[part, :1], embeddings[0](codes[0][part]), x[part, 1:], embeddings[1](codes[1][part])]
            loss = torch.nn.functional.mse_loss(net(torch.cat(columns, 1)), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            want.append(loss.item())
        np.testing.assert_allclose(self.losses("run"), want, atol=1e-5)
        # The model file knows its columns, and a table in another order gives the same answers.
        tool.run("infer", self.folder / "run", "--input", self.path("t.csv"), "--output", self.path("out.csv"))
        self.assertIn("categories = 7, out = 2", self.train(data, layers.replace('embedding"', 'embedding", out = 2'),
                                                            steps.format(0), out="two") and
                      tool.read_safetensors(self.folder / "two" / "model.safetensors")[1]["ridgeline.config"])
        # A sweep learns the loss and the columns from the data, too.
        said = tool.run("sweep", self.folder / "run.toml", "--set", "train.epochs=1", "--set",
                        "train.optimizer.lr=0.01,0.02").stdout
        self.assertIn("0.02", said)
        no_words = f'train = "{self.path("t.csv")}"\nfeatures = ["area", "rooms"]'
        self.assertIn("no field", self.train(no_words, layers, code=2))

    def test_each_fold_learns_from_its_own_samples(self):
        x = self.draw.standard_normal((60, 1))
        x[::7] += 100  # a fold without some of these has another mean
        np.save(self.path("x.npy"), x)
        np.save(self.path("y.npy"), x[:, 0] * 2)
        np.save(self.path("test_x.npy"), x[:5])
        np.save(self.path("test_y.npy"), x[:5, 0] * 2)
        data = "\n".join(f'{key} = "{self.path(name)}.npy"' for key, name in (
            ("train", "x"), ("target", "y"), ("test", "test_x"), ("test_target", "test_y")))
        self.train(data, MLP.format(1), "batch = 8\nepochs = 1", "--folds", "3")
        means = [self.preparation(f"run/fold-{i}")["features"][0]["shift"][0] for i in (1, 2, 3)]
        self.assertEqual(len(set(means)), 3)
        # Every sample is in the training part of two folds out of three.
        self.assertAlmostEqual(np.mean(means), x.mean(), places=9)
        windows = data + "\nwindow = { length = 3 }"
        self.train(windows, '{ type = "linear", out = 1 }', "batch = 4\nepochs = 1", "--folds", "3")
        self.train(data + "\nsplit = { validation = 0.1 }", MLP.format(1), "batch = 8\nepochs = 1", "--folds", "3",
                   code=2)

    def test_a_gzip_bomb_is_refused(self):
        for name, line in (("t.csv.gz", b"1,2,3\n" * 200_000), ("t.jsonl.gz", b'{"a": 1, "b": 2}\n' * 90_000)):
            file = self.folder / name
            file.write_bytes(b"".join([gzip.compress(line, 9)] * 64))
            self.assertIn("gzip bomb", tool.run("data", "describe", file, code=3).stderr)


if __name__ == "__main__":
    unittest.main()
