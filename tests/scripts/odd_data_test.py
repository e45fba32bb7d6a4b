"""Data that strangers bring: what `ridgeline data describe` writes trains at once and infers, or one line says why not."""

import csv
import json
import sys
import unittest

sys.dont_write_bytecode = True
import tool
from user_data_test import write_png

tool.need("numpy")
import numpy as np

SAMPLES = 160


class OddData(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=1)
        self.addCleanup(self.folder.close)
        draw = np.random.default_rng(7)
        self.a, self.b = draw.standard_normal((2, SAMPLES))
        self.y = 3 * self.a - self.b

    def path(self, name):
        return str(self.folder / name)

    def table(self, header, columns, name="t.csv"):
        with open(self.path(name), "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(header)
            out.writerows(zip(*columns))
        return self.path(name)

    def describe(self, path, *flags, code=0):
        done = tool.run("data", "describe", path, *flags, "--write-config", self.path("net.toml"), code=code)
        return done.stdout if code == 0 else done.stderr

    def trains(self, path, *flags, infer=None):
        """The report of a run, its messages, what the config says, and what is inferred on the data."""
        described = self.describe(path, *flags)
        text = (self.folder / "net.toml").read_text()
        done = tool.run("train", self.path("net.toml"), "--out", self.path("run"), "--force", "--no-tune", "--json",
                        self.path("report.json"), "--set", "train.epochs=40")
        tool.run("infer", self.path("run"), "--input", infer or path, "--output", self.path("out.csv"), "--no-tune")
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        report = json.loads((self.folder / "report.json").read_text())
        return {"described": described, "config": text, "said": done.stderr, "rows": rows, **report}

    def test_a_column_without_values_and_shuffled_ids_are_left_out(self):
        ids = np.random.default_rng(1).permutation(SAMPLES) + 1000
        path = self.table(["id", "a", "b", "nothing", "y"], [ids, self.a, self.b, [""] * SAMPLES, self.y])
        done = self.trains(path)
        self.assertIn('features = ["a", "b"]', done["config"])
        self.assertGreater(done["r2"], 0.9)

    def test_samples_without_a_target_are_dropped(self):
        values = [repr(float(v)) if i % 10 else "" for i, v in enumerate(self.y)]
        done = self.trains(self.table(["a", "b", "y"], [self.a, self.b, values]))
        self.assertIn('missing_target = "drop"', done["config"])
        self.assertIn("left out, having no target: 16 samples", done["said"])
        self.assertEqual(len(done["rows"]), SAMPLES)
        self.assertGreater(done["r2"], 0.9)
        classes = ["high" if v > 0 else "low" if i % 10 else "" for i, v in enumerate(self.y)]
        path = self.table(["a", "b", "y"], [self.a, self.b, classes])
        done = self.trains(path)
        self.assertGreater(done["accuracy"], 0.8)
        tool.run("eval", self.path("run"), "--on", path, "--no-tune")
        # Without the rule the error names it, and a series cannot lose timesteps.
        line = tool.run("train", self.path("net.toml"), "--set", "data.missing_target=refuse", code=3).stderr
        self.assertIn('data.missing_target = "drop"', line)
        line = tool.run("train", self.path("net.toml"), "--set", "data.window={length=4}", code=2).stderr
        self.assertIn("missing_target", line)

    def test_sequences_without_a_target_are_dropped(self):
        with open(self.path("s.jsonl"), "w") as file:
            for i in range(SAMPLES):
                steps = [float(v) for v in self.a[:2 + i % 5]]
                file.write(json.dumps({"s": steps, "note": f"text {i}", "y": sum(steps) if i % 8 else None}) + "\n")
        done = self.trains(self.path("s.jsonl"))
        self.assertIn("left out, having no target: 20 samples", done["said"])
        self.assertGreater(done["r2"], 0.9)

    def test_a_target_that_teaches_nothing_is_refused(self):
        for value, words in (("7", "only the value '7'"), ("same", "only the value 'same'"), ("", "no values")):
            line = self.describe(self.table(["a", "y"], [self.a, [value] * SAMPLES]), code=2)
            self.assertIn(words, line)
            self.assertIn("--target", line)

    def test_a_last_column_of_texts_is_no_target(self):
        path = self.table(["a", "note"], [self.a, [f"note {i} of this table" for i in range(SAMPLES)]])
        self.assertIn("'note', is no target because it holds texts", self.describe(path, code=2))

    def test_money_percent_and_groups_are_numbers(self):
        money = [f"-${-v:,.2f}" if v < 0 else f"${v:,.2f}" for v in 10000 * self.y]
        rate = [f"{v:.3f} %" for v in self.a]
        swiss = [f"{1e6 * v:,.1f}".replace(",", "'") for v in self.b]
        done = self.trains(self.table(["rate", "swiss", "price"], [rate, swiss, money]))
        self.assertIn("price: values to predict", done["described"])
        self.assertNotIn("category", done["described"])
        self.assertGreater(done["r2"], 0.9)
        lines = ["a;b"] + [f"{v:_.2f} \u20ac;{w}".replace("_", "\u202f").replace(".", ",") for v, w in zip(1e5 * self.a, self.y)]
        (self.folder / "french.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        described = json.loads(tool.run("data", "describe", self.path("french.csv"), "--json", "-").stdout)
        self.assertAlmostEqual(described["parts"][0]["fields"][0]["most"], round(float(max(1e5 * self.a)), 2))

    def test_words_are_no_numbers(self):
        words = ["12 34", "0 123", "1 - 2", "5 apples", "$", "%", "1,23 4"]
        path = self.table(["w", "y"], [[words[i % 7] for i in range(SAMPLES)], self.y])
        described = json.loads(tool.run("data", "describe", path, "--json", "-").stdout)
        field = described["parts"][0]["fields"][0]
        self.assertEqual(sorted(field["categories"]), sorted(words))

    def test_words_for_missing_numbers(self):
        cells = [repr(float(v)) if i % 20 else ("unknown", "n.a.", ".")[i // 20 % 3] for i, v in enumerate(self.a)]
        done = self.trains(self.table(["a", "b", "y"], [cells, self.b, self.y]))
        self.assertIn('missing = "mean"', done["config"])

    def test_lines_of_blanks_and_old_line_ends(self):
        path = self.table(["a", "y"], [self.a, self.y])
        text = (self.folder / "t.csv").read_text()
        (self.folder / "t.csv").write_text(text + "\n   \n\t\n")
        self.assertIn(f"{SAMPLES} samples", self.describe(path))
        (self.folder / "mac.csv").write_bytes(text.replace("\r\n", "\n").replace("\n", "\r").encode())
        self.assertIn("tr '", self.describe(self.path("mac.csv"), code=3))
        (self.folder / "title.csv").write_text("# made by hand\n" + text)
        self.assertIn("before the table", self.describe(self.path("title.csv"), code=3))
        (self.folder / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(200))
        self.assertIn("export the table as CSV", self.describe(self.path("old.xls"), code=3))

    def test_dates_and_one_value_are_a_series(self):
        days = [f"2020-{1 + i // 28:02d}-{1 + i % 28:02d}" for i in range(300)]
        path = self.table(["day", "level"], [days, np.sin(np.arange(300) / 4)])
        done = self.trains(path)
        self.assertIn('features = ["level"]\nwindow = ', done["config"])
        self.assertGreater(done["r2"], 0.9)
        self.assertEqual(len(done["rows"]), 300 - 16 + 1)

    def test_several_labels_are_learnt_as_labels(self):
        x = np.stack([self.a, self.b], 1)
        np.save(self.path("x.npy"), x)
        for dtype in ("u1", "f4", "i8"):
            np.save(self.path("y.npy"), (x > 0).astype(dtype))
            done = self.trains(self.path("x.npy"), "--target", self.path("y.npy"))
            self.assertIn("labels of 0 and 1", done["described"])
            self.assertGreater(done["f1"], 0.9)
            for row, want in zip(done["rows"], x > 0):
                for name, label in (("p0", want[0]), ("p1", want[1])):
                    self.assertTrue(0 <= float(row[name]) <= 1)
                    self.assertTrue((float(row[name]) > 0.5) == label or abs(float(row[name]) - 0.5) < 0.4)

    def test_images_with_the_channels_last(self):
        draw = np.random.default_rng(2)
        labels = np.arange(SAMPLES) % 2
        x = draw.integers(0, 90, (SAMPLES, 12, 10, 3), dtype=np.uint8)
        x[labels == 1, :, :5] += np.uint8(100)
        np.save(self.path("y.npy"), labels)
        # Those [4, height, width] and [frames, channels, height, width] are images of no folder, but train as well.
        shapes = ((12, 10, 3), (4, 9, 10), (2, 3, 10, 6))
        for shape in shapes:
            np.save(self.path("x.npy"), x.reshape(SAMPLES, *shape))
            done = self.trains(self.path("x.npy"), "--target", self.path("y.npy"))
            self.assertEqual("transpose" in done["config"], shape == shapes[0])
            self.assertEqual([row["label"] for row in done["rows"]][:20], [str(label) for label in labels][:20])
        (self.folder / "photos").mkdir()
        write_png(self.folder / "photos" / "1.png", x[0, :, :, 0])
        line = tool.run("infer", self.path("run"), "--input", self.path("photos"), "--no-tune", code=3).stderr
        self.assertIn("image", line)

    def test_photos_of_several_and_large_sizes(self):
        draw = np.random.default_rng(3)
        for size, want in (((20, 30), "resize = [22, 32]"), ((200, 300), "resize = ["), ((24, 24), "")):
            name = f"photos{size[0]}"
            for i in range(24):
                place = self.folder / name / ("dark", "light")[i % 2]
                place.mkdir(parents=True, exist_ok=True)
                more = i // 2 % 2 * 4 if size[0] == 20 else 0
                pixels = draw.integers(0, 90, (size[0] + more, size[1] + more), dtype=np.uint8)
                write_png(place / f"{i}.png", pixels + np.uint8(120 * (i % 2)))
            done = self.trains(self.path(name))
            self.assertEqual("resize" in done["config"], bool(want))
            self.assertIn(want, done["config"])
            self.assertEqual([row["label"] for row in done["rows"]], ["dark"] * 12 + ["light"] * 12)
        self.assertIn("resize = [43, 64]", self.describe_config("photos200"))
        line = tool.run("data", "describe", self.path("photos24/dark"), "--write-config", self.path("net.toml"),
                        code=2).stderr
        self.assertIn("folder of its own", line)

    def describe_config(self, name):
        self.describe(self.path(name))
        return (self.folder / "net.toml").read_text()

    def test_raw_targets_and_missing_files(self):
        self.a.astype("f4").tofile(self.path("x.bin"))
        self.y.astype("f8").tofile(self.path("y.bin"))
        raw = (self.path("x.bin"), "--dtype", "fp32", "--shape", "1")
        done = self.trains(*raw, "--target", self.path("y.bin"), "--target-dtype", "fp64")
        self.assertIn('target_dtype = "fp64"', done["config"])
        line = self.describe(*raw, "--target", "none.npy", code=3)
        self.assertIn("none.npy: there is no such file", line)
        with open(self.path("mixed.jsonl"), "w") as file:
            file.write('{"a": 1, "y": 2}\n{"a": "one", "y": 3}\n')
        self.assertIn("--category", self.describe(self.path("mixed.jsonl"), code=3))


if __name__ == "__main__":
    unittest.main()
