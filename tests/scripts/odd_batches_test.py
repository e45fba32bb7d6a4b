"""Batches and data sets at the edges of what is allowed: a batch of one, a last batch of one, sets of one class, pixels
without any deviation, denormal numbers, gradients far too large. Training ends with finite losses that the fast and the
reference kernels share, and says how many steps were clipped."""

import json
import math
import struct
import sys
import unittest

sys.dont_write_bytecode = True
import tool

NETS = {
    "linear": '{ type = "linear", out = 9 }, { type = "tanh" }, { type = "linear", out = 4 }',
    "norm": '{ type = "linear", out = 9 }, { type = "batchnorm" }, { type = "relu" }, { type = "linear", out = 4 }',
    "conv": '{ type = "conv2d", out = 5, kernel = 3 }, { type = "batchnorm" }, { type = "relu" }, '
            '{ type = "maxpool2d", kernel = 2 }, { type = "linear", out = 4 }',
    "gru": '{ type = "reshape", shape = [6, 6] }, { type = "gru", hidden = 7 }, { type = "select" }, '
           '{ type = "linear", out = 4 }',
}
STEPS = 12
# Twelve steps of sums of a few hundred terms near one.
TOLERANCE = 1e-4


class OddBatches(unittest.TestCase):
    def setUp(self):
        self.folder = tool.Folder(samples=18)
        self.addCleanup(self.folder.close)

    def losses(self, data, net, kernels, *settings):
        """The training losses by step, and the report."""
        config, out = self.folder / "net.toml", self.folder / "run"
        config.write_text(f'[data]\n{data}\n[model]\nlayers = [{NETS[net]}]\n[train]\noptimizer = {{ type = "sgd", lr = 0.05 }}\n'
                          f'epochs = 100\nmax_steps = {STEPS}\nlog_steps = 1\n[run]\ndevice = "cpu"\ntune = false\n')
        words = [word for each in settings for word in ("--set", each)]
        report = json.loads(tool.run("train", config, "--quiet", "--out", out, "--force", "--threads", 2, "--json", "-", *words,
                                     *(["--kernels", kernels] if kernels else [])).stdout)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["event"] == "train"], report

    def agree(self, what, data, *settings, nets=NETS):
        for net in nets:
            fast, report = self.losses(data, net, None, *settings)
            slow, expected = self.losses(data, net, "cpu.*.reference", *settings)
            self.assertEqual(len(fast), STEPS, (what, net))
            for step, (a, b) in enumerate(zip([*fast, report["loss"]], [*slow, expected["loss"]]), 1):
                self.assertTrue(math.isfinite(a) and abs(a - b) <= TOLERANCE * max(1, abs(b)), (what, net, step, a, b))

    def write(self, pixels, labels):
        for part in ("train", "t10k"):
            tool.write_idx(self.folder.data / f"{part}-images-idx3-ubyte", (len(labels), 6, 6), pixels)
            tool.write_idx(self.folder.data / f"{part}-labels-idx1-ubyte", (len(labels),), labels)

    def test_batches_of_one(self):
        data = f'name = "{self.folder.data}"'
        several = [net for net in NETS if net != "norm"]
        for batch, what in ((1, "batches of one"), (17, "a last batch of one")):
            self.agree(what, data, f"train.batch={batch}", nets=several)
            # The deviation of one number is no scale.
            with self.assertRaisesRegex(AssertionError, "exit 2.*\n.*\n.*one number a channel"):
                self.losses(data, "norm", None, f"train.batch={batch}")
        self.agree("the whole set", data, "train.batch=18")

    def test_sets_without_variety(self):
        data = f'name = "{self.folder.data}"'
        pixels, _ = tool.images(18, 1)
        self.write(pixels, bytes([3] * 18))
        self.agree("one class", data, "train.batch=8")
        _, labels = tool.images(18, 1)
        self.write(bytes([200]) * 36 * 18, labels)
        self.agree("one value", data, "train.batch=8")
        self.write(bytes(36 * 18), labels)
        self.agree("zeros", data, "train.batch=8")

    def test_denormal_numbers(self):
        head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (18, 6, 6), }"
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        numbers = [1e-40 * (i % 7 - 3) for i in range(18 * 36)]
        (self.folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head +
                                            struct.pack(f"<{len(numbers)}f", *numbers))
        (self.folder / "y.csv").write_text("y\n" + "".join(f"class {i % 4}\n" for i in range(18)))
        data = f'train = "{self.folder / "x.npy"}"\ntarget = "{self.folder / "y.csv"}"\nscale = "raw"'
        self.agree("denormals", data, "train.batch=8")

    def test_clipped_steps_are_counted(self):
        data = f'name = "{self.folder.data}"'
        for norm, clipped in ((1e-3, STEPS), (1e6, 0)):
            _, report = self.losses(data, "linear", None, "train.batch=8", f"train.clip_norm={norm}")
            self.assertEqual(report["clipped_steps"], clipped)
        config = self.folder / "net.toml"
        text = tool.run("train", config, "--set", "train.batch=8", "--set", "train.clip_norm=1e-3").stdout
        self.assertIn(f"clipped    gradients of {STEPS} steps", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
