"""A language model from training to text: it learns a pattern, resumes bit for bit with its carried
state, writes the same text for the same seed, and says what it cannot do."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import tool

CONFIG = """
[data]
name = "{text}"
steps = 8
[model]
layers = [
  {{ type = "embedding", vocabulary = 5, out = 6 }},
  {{ type = "{cell}", hidden = 16, layers = 2, dropout = 0.1 }},
  {{ type = "linear", out = 5, per_step = true }},
]
[train]
batch = 4
epochs = 20
seed = 3
clip_norm = 5.0
optimizer = {{ type = "adam", lr = 1e-2 }}
[run]
device = "cpu"
tune = false
"""


class LanguageModel(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.text = self.folder / "pattern.txt"
        # What follows an a depends on what was before it.
        self.text.write_text("abacad" * 200 + "e")

    def config(self, cell, **changes):
        path = self.folder / f"{cell}.toml"
        text = CONFIG.format(text=self.text, cell=cell)
        for old, new in changes.items():
            text = text.replace(old, new)
        path.write_text(text)
        return path

    def test_learns_and_generates(self):
        out = self.folder / "run"
        done = tool.run("train", self.config("lstm"), "--out", out)
        self.assertIn("perplexity", done.stdout)
        loss = float(done.stdout.split("(loss ")[1].split()[0])
        self.assertLess(loss, 0.1)  # a model without memory cannot get below log(3) / 2
        evaluated = tool.run("eval", out).stdout
        self.assertIn("nats a character, perplexity 1.0", evaluated)
        words = ("infer", out, "--generate", "60", "--temperature", "0.3", "--prompt", "abac")
        once, again = tool.run(*words).stdout, tool.run(*words).stdout
        # Nothing tells generated text from what a user wrote, so that no text is replaced.
        kept = self.folder / "text.txt"
        tool.run(*words, "--output", kept)
        self.assertEqual(kept.read_text(), once)
        kept.write_text("a user's own\n")
        self.assertIn("is there already", tool.run(*words, "--output", kept, code=2).stderr)
        self.assertEqual(kept.read_text(), "a user's own\n")
        self.assertEqual(once, again)
        self.assertTrue(once.startswith("abacadabacad"), once)
        self.assertEqual(len(once), 4 + 60 + 1)
        other = tool.run(*words[:-4], "--temperature", "50", "--seed", "2").stdout
        self.assertNotEqual(other, tool.run(*words[:-4], "--temperature", "50").stdout)
        error = tool.run(*words[:-1], "abxd", code=2).stderr
        self.assertIn("--prompt: character 3: 'x' is not one of the 5 symbols", error)
        self.assertIn("--generate", tool.run("infer", out, "--input", self.text, code=2).stderr)

    def test_resumes_bit_for_bit(self):
        for cell in ("gru", "lstm"):
            config = self.config(cell)
            whole, halves = self.folder / f"{cell}-whole", self.folder / f"{cell}-halves"
            short = ("--set", "train.epochs=2")
            tool.run("train", config, *short, "--out", whole)
            # In the middle of an epoch of 33 batches, so that the state in between matters.
            tool.run("train", config, *short, "--set", "train.max_steps=17", "--out", halves)
            tool.run("train", config, *short, "--out", halves, "--resume")
            self.assertEqual(tensors(whole), tensors(halves))

    def test_says_what_does_not_fit(self):
        small = self.config("gru", **{"vocabulary = 5": "vocabulary = 4"})
        self.assertIn("set its vocabulary to 5", tool.run("train", small, code=2).stderr)
        flat = self.config("gru", **{", per_step = true": ""})
        self.assertIn("per_step = true", tool.run("train", flat, code=2).stderr)
        both = self.config("gru", **{"layers = 2": "layers = 2, bidirectional = true"})
        self.assertIn("one direction only", tool.run("train", both, code=2).stderr)


def tensors(folder):
    raw = (folder / "model.safetensors").read_bytes()
    return raw[8 + int.from_bytes(raw[:8], "little"):]


if __name__ == "__main__":
    unittest.main()
