"""ridgeline profile, its traces, --kernels and bench --compare from the command line."""

import json
import sys
import unittest

sys.dont_write_bytecode = True
import tool

# Without the kernel that is a whole step: several kernels have something to add up.
SEVERAL = ("--kernels", "!cpu.mlp_train")
WIDE = (*SEVERAL, "--set", "model.layers.0.out=400", "--set", "train.batch=100")


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def fails(self, code, *arguments, says):
        self.assertIn(says, tool.run(*arguments, code=code).stderr)

    def profile(self, *arguments):
        out = self.folder / "profile.json"
        text = tool.run("profile", *arguments, "--json", out).stdout
        return text, json.loads(out.read_text())

    def test_rows_sum_to_the_step(self):
        # Rows and whole steps are measured by turns, but other processes interfere: the best of
        # several tries counts.
        gaps = []
        for _ in range(5):
            text, got = self.profile(self.folder.config, *WIDE, "--threads", "1", "--seconds", "1")
            kernels = sum(kernel["us"]["median"] for kernel in got["kernels"])
            self.assertAlmostEqual(kernels + got["interrupted_us"] + got["gaps_us"],
                                   got["us"]["median"], places=3)
            fast = sum(kernel["us"]["p10"] for kernel in got["kernels"])
            gaps.append(abs(got["us"]["p10"] - fast) / got["us"]["p10"])
            if gaps[-1] <= 0.1:
                break
        self.assertLessEqual(min(gaps), 0.1)
        self.assertIn("step, unprofiled", text)

    def test_every_figure_of_a_row(self):
        text, got = self.profile(self.folder.config, *SEVERAL, "--seconds", "0.2")
        self.assertGreater(len(got["kernels"]), 1)
        for kernel in got["kernels"]:
            self.assertIn(kernel["kernel"], text)
            self.assertIn(kernel["roof"], ("compute", "memory", "launch", "barrier", "PCIe", "network"))
            for key in ("flops_per_second", "bytes_per_second", "intensity", "share", "fraction"):
                self.assertGreaterEqual(kernel[key], 0, (kernel["kernel"], key))
        self.assertAlmostEqual(sum(kernel["share"] for kernel in got["kernels"]), 1, places=6)
        self.assertTrue(got["advice"])
        self.assertRegex(got["limit"]["ceilings_measured"], r"^\d{4}-\d\d-\d\d$")

    def test_a_config_takes_another_batch(self):
        _, got = self.profile(self.folder.config, "--batch", "23", "--seconds", "0.1", "--no-tune")
        self.assertEqual(got["batch"], 23)

    def test_a_model_is_profiled_as_inference(self):
        run = self.folder / "run"
        tool.run("train", self.folder.config, "--out", run, "--set", "train.epochs=1")
        for path in (run, run / "model.safetensors"):
            text, got = self.profile(path, "--batch", "32", "--device", "cpu", "--seconds", "0.1")
            self.assertTrue(text.startswith("inference call of"))
            self.assertEqual(got["batch"], 32)

    def test_trace_follows_the_format(self):
        trace = self.folder / "trace.json"
        tool.run("profile", self.folder.config, "--seconds", "0.1", "--trace", trace)
        events = json.loads(trace.read_text())["traceEvents"]
        lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertLessEqual({"steps", "kernels"}, set(lanes.values()))
        spans = [e for e in events if e["ph"] == "X"]
        for lane in lanes:
            # Spans of a lane follow one another or nest; times are microseconds and never run back.
            ends = []
            for e in (e for e in spans if (e["pid"], e["tid"]) == lane):
                self.assertLess(e["ts"] + e["dur"], 60e6)
                while ends and ends[-1] <= e["ts"] + 0.002:
                    ends.pop()
                if ends:
                    self.assertLessEqual(e["ts"] + e["dur"], ends[-1] + 0.002)
                ends.append(e["ts"] + e["dur"])

    def test_rows_restrict_the_plan(self):
        _, got = self.profile(self.folder.config, "--kernels", "*.reference", "--seconds", "0.1")
        self.assertTrue(all(kernel["kernel"].endswith(".reference") for kernel in got["kernels"]))
        self.fails(2, "profile", self.folder.config, "--kernels", "cpu.nothing", says="'cpu.nothing': no kernel of this build")
        self.fails(2, "profile", self.folder.config, "--kernels", "cpu.tick.reference", says="no kernel computes")

    def test_compare_finds_what_got_slower(self):
        before, after = self.folder / "before.json", self.folder / "after.json"
        line = {"network": "784-10", "batch": 8, "precision": "fp32", "threads": 1, "us_min": 99.0,
                "us_median": 100.0, "limit_fraction": 0.5}
        before.write_text(json.dumps([line]))
        after.write_text(json.dumps([dict(line, us_min=119.0, us_median=120.0, limit_fraction=0.42)]))
        same = tool.run("bench", "--compare", before, before)
        self.assertIn("same", same.stdout)
        done = tool.subprocess.run([tool.TOOL, "bench", "--compare", before, after],
                                   capture_output=True, text=True)
        self.assertEqual(done.returncode, 8)
        self.assertIn("SLOWER", done.stdout)
        self.assertIn("faster", tool.run("bench", "--compare", after, before).stdout)
        self.fails(3, "bench", "--compare", before, self.folder.config, says="holds no results")
        self.fails(2, "bench", says="--compare")

    def test_ladders_have_names(self):
        self.fails(2, "ladder", "mpl", says="there is mlp")


if __name__ == "__main__":
    unittest.main(verbosity=1)
