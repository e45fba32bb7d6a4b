"""Sweeps: combinations side by side equal solo runs; pruning, resuming a killed sweep, and ranks that divide the members."""

import csv
import json
import math
import os
import pathlib
import signal
import sys
import time
import unittest

sys.dont_write_bytecode = True
import mpi
import tool

SEEDS = ("--set", "train.seed=1,2,3", "--set", "train.optimizer.lr=0.1,0.01")
FIXED = ("--deterministic", "--threads", "2")
LONG = ("--set", "train.seed=1,2,3,4", "--set", "train.epochs=20,1000", "--set", "train.eval_every=1000",
        "--set", "train.checkpoint_steps=500")
SPLIT = ("--set", "data.split={validation=0.2,seed=1}")
RATES = (*SPLIT, "--set", "train.optimizer.lr=1e-6,0.1,2e-6,3e-6,4e-6,5e-6", "--set", "train.epochs=9")


def points(out):
    return json.loads((pathlib.Path(out) / "sweep.json").read_text())["points"]


def results(out):
    """The results of each combination that do not depend on the clock."""
    def result(point):
        report = point["report"]  # the test set is reported of the best by validation alone
        scores = report.get("validation", report)
        return scores["loss"], scores["auc"], report["train_loss"], report["steps"], point.get("pruned_after")

    return {tuple(point["set"].values()): result(point) for point in points(out)}



def journal(out):
    try:
        return [json.loads(line) for line in (pathlib.Path(out) / "sweep.jsonl").read_text().splitlines()[1:]]
    except (OSError, ValueError):
        return []


class Sweeps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tool.Folder()

    @classmethod
    def tearDownClass(cls):
        cls.folder.close()

    def sweep(self, name, *flags, **options):
        out = self.folder / name
        return out, tool.run("sweep", self.folder.config, *flags, "--out", out, **options)

    def test_groups_are_counted_and_results_are_those_of_solo_runs(self):
        out, done = self.sweep("study", *FIXED, *SEEDS, "--set", "model.layers.0.out=8,16", "--csv", "-")
        self.assertIn("12 nets in 2 groups, 2 side by side", done.stderr)
        for point in points(out)[::5]:
            sets = [word for key, value in point["set"].items() for word in ("--set", f"{key}={value}")]
            alone = json.loads(tool.run("train", self.folder.config, *sets, "--deterministic", "--threads", "1",
                                        "--json", "-").stdout)
            for key in ("loss", "accuracy", "auc", "train_loss", "steps"):
                self.assertEqual(alone[key], point["report"][key], key)
        one, done = self.sweep("one-by-one", "--deterministic", "--threads", "1", "--one-by-one", *SEEDS,
                               "--set", "model.layers.0.out=8,16")
        self.assertIn("one after the other", done.stderr)
        self.assertEqual(results(one), results(out))

    def test_pruning(self):
        out, done = self.sweep("pruned", *FIXED, *RATES, "--prune", "asha", "--export", "best")
        pruned = {point["set"]["train.optimizer.lr"]: point.get("pruned_after", 0) for point in points(out)}
        self.assertEqual(pruned["0.1"], 0)
        self.assertEqual(sorted(pruned.values()), [0, 1, 1, 1, 1, 3])
        self.assertIn("pruned after", done.stdout)
        self.assertIn("the model of 0.1, the best by its validation set", done.stderr)
        best = json.loads(tool.run("eval", out / "best.safetensors", "--json", "-").stdout)
        chosen = next(point for point in points(out) if point["set"]["train.optimizer.lr"] == "0.1")
        self.assertEqual(best["accuracy"], chosen["report"]["accuracy"])

    def test_what_is_left_of_a_killed_sweep_is_pruned_as_before(self):
        for split in (RATES, RATES[2:]):  # by the validation set, and by the training loss
            work = (*FIXED, *split, "--prune", "asha")
            whole, _ = self.sweep(f"rungs-{len(split)}", *work)
            kept = (whole / "sweep.jsonl").read_text().splitlines(keepends=True)
            want = results(whole)
            self.assertEqual(sorted(result[-1] or 0 for result in want.values()), [0, 1, 1, 1, 1, 3])
            for left in range(1, 6):
                (whole / "sweep.jsonl").write_text("".join(kept[:-left]))
                tool.run("sweep", self.folder.config, *work, "--out", whole, "--resume")
                self.assertEqual(results(whole), want, left)

    def test_a_damaged_journal_is_neither_a_crash_nor_lost(self):
        work = (*FIXED, *SEEDS)
        out, _ = self.sweep("damaged", *work)
        head, *lines = (out / "sweep.jsonl").read_text().splitlines(keepends=True)
        self.assertTrue(head.startswith('{"ridgeline_sweep":1,'), head)
        for damage in ('"combinations":"many"}\n', '"combinations":-1}\n', '"combinations":[[\n', "}\n", "\n"):
            (out / "sweep.jsonl").write_text('{"ridgeline_sweep":1,' + damage + "".join(lines))
            self.assertIn("replace it with --force", tool.run("sweep", self.folder.config, *work, "--out", out, code=2).stderr)
        tool.run("sweep", self.folder.config, *work, "--out", out, "--force")
        self.assertEqual((out / "sweep.jsonl").read_text().splitlines(keepends=True)[0], head)

    def test_an_ensemble_is_evaluated_and_predicts_as_one_model(self):
        out, done = self.sweep("joined", *FIXED, *SPLIT, *SEEDS, "--ensemble", "3", "--report", self.folder / "page")
        self.assertIn("the mean of the best 3; on the test set: loss", done.stderr)
        model = out / "ensemble.safetensors"
        report = json.loads(tool.run("eval", model, "--json", "-").stdout)
        self.assertGreater(report["accuracy"], 0.5)
        self.assertLess(report["loss"], 1.2)
        page = (self.folder / "page" / "report.html").read_text()
        for part in ("Each combination", "Two settings at a time", "<polyline", "<rect"):
            self.assertIn(part, page)

    def test_an_ensemble_of_labels_gives_the_mean_of_their_probabilities(self):
        table, config = self.folder / "labels.csv", self.folder / "labels.toml"
        values = [(i * 37 % 100 / 50 - 1, i * 61 % 100 / 50 - 1) for i in range(200)]
        table.write_text("a,b,p,q\n" + "".join(f"{a},{b},{int(a > 0)},{int(a + b > 0)}\n" for a, b in values))
        config.write_text(f'[data]\ntrain = "{table}"\ntarget = ["p", "q"]\n[model]\n'
                          'layers = [{ type = "linear", out = 8 }, { type = "relu" }, { type = "linear", out = 2 }]\n'
                          '[train]\nepochs = 8\nbatch = 20\noptimizer = "adam"\n'
                          'loss = { type = "binary-cross-entropy", pos_weight = [2, 1] }\n')
        out = self.folder / "labels"
        tool.run("sweep", config, *FIXED, "--set", "train.seed=1,2,3", "--ensemble", "3", "--out", out)

        def answers(model):
            text = tool.run("infer", model, "--input", table, "--output-kind", "probabilities", *FIXED).stdout
            return [[float(line[key]) for key in ("p_p", "p_q")] for line in csv.DictReader(text.splitlines())]

        members = [answers(model) for model in sorted(out.glob("members/*/model.safetensors"))]
        self.assertEqual(len(members), 3)
        model, loss = out / "ensemble.safetensors", 0
        for (a, b), got, *each in zip(values, answers(model), *members):
            for c, (weight, target) in enumerate(((2, a > 0), (1, a + b > 0))):
                mean = sum(one[c] for one in each) / 3
                self.assertAlmostEqual(got[c], mean, delta=1e-5)
                loss -= weight * math.log(mean) if target else math.log(1 - mean)
        report = json.loads(tool.run("eval", model, "--on", table, *FIXED, "--json", "-").stdout)
        self.assertAlmostEqual(report["loss"], loss / 400, delta=1e-4)
        self.assertGreater(report["auc"], 0.9)

    def test_a_killed_sweep_goes_on(self):
        work = (*FIXED, *LONG)
        whole, _ = self.sweep("whole", *work)
        out = self.folder / "killed"
        process = tool.start("sweep", self.folder.config, *work, "--out", out)
        checkpoint = None
        for _ in range(3000):
            checkpoint = next((each for each in out.glob("members/*/checkpoint.safetensors")
                               if each.parent.name in ("00001", "00003")), None)
            if journal(out) and checkpoint:
                break
            self.assertIsNone(process.poll(), "ended before it could be killed")
            time.sleep(0.01)
        process.kill()
        process.communicate()
        made = journal(out)
        self.assertTrue(made and len(made) < 8, made)
        with open(out / "sweep.jsonl", "a") as cut:
            cut.write('{"combination":7,"values":["4",')  # a line that was being written
        self.assertIn("continue it with --resume", tool.run("sweep", self.folder.config, *work, "--out", out, code=2).stderr)
        self.assertIn("holds another sweep", tool.run("sweep", self.folder.config, *work, "--set", "train.batch=8", "--out", out,
                                                      "--resume", code=2).stderr)
        done = tool.run("sweep", self.folder.config, *work, "--out", out, "--resume")
        self.assertIn(f"{len(made)} done before", done.stderr)
        self.assertEqual(results(out), results(whole))
        kept = {entry["combination"]: entry["report"] for entry in made}
        for i, point in enumerate(points(out)):
            if i in kept:
                self.assertEqual(point["report"]["train_seconds"], kept[i]["train_seconds"], "trained again")
        resumed = [point["report"] for i, point in enumerate(points(out)) if i not in kept]
        self.assertTrue(any(report["steps_here"] < report["steps"] for report in resumed), "no checkpoint was used")
        self.assertFalse(list(out.glob("members/*/checkpoint.safetensors")))
        # Nothing is left to do, and the results are written once more.
        tool.run("sweep", self.folder.config, *work, "--out", out, "--resume")
        self.assertEqual(results(out), results(whole))

    def test_a_signal_stops_it_in_order(self):
        out = self.folder / "stopped"
        process = tool.start("sweep", self.folder.config, *FIXED, "--set", "train.seed=1,2,3", "--set", "train.epochs=1000000",
                             "--set", "train.eval_every=100000", "--out", out)
        for _ in range(3000):
            if len(list(out.glob("members/*/config.toml"))) > 1:  # the first is planned before any trains
                break
            time.sleep(0.01)
        time.sleep(0.2)
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        self.assertTrue(list(out.glob("members/*/checkpoint.safetensors")))

    def test_flags_that_need_a_folder_say_so(self):
        for flag in (["--resume"], ["--force"], ["--export", "best"], ["--ensemble", "2"]):
            done = tool.run("sweep", self.folder.config, *SEEDS, *flag, code=2)
            self.assertIn("needs --out DIR", done.stderr)

    @unittest.skipIf(mpi.missing(), "no ranks here")
    def test_ranks_share_the_combinations_out(self):
        alone, _ = self.sweep("alone", *FIXED, *SEEDS)
        out = self.folder / "ranks"
        code, _, text, err = mpi.end(mpi.launch(3, "sweep", self.folder.config, "--deterministic", "--threads", "1", *SEEDS,
                                                "--out", out), 120)
        self.assertEqual(code, 0, err)
        self.assertIn("in 1 group", err)
        self.assertEqual(len(text.splitlines()), 7)
        self.assertEqual(results(out), results(alone))
        self.assertIn("on each of 3 ranks", err)
        for i in range(6):  # of all ranks, as they come
            self.assertIn(f"[{i + 1}/6]", err)
        # What ranks left undone goes on with one process.
        kept = (out / "sweep.jsonl").read_text().splitlines(keepends=True)
        (out / "sweep.jsonl").write_text("".join(kept[:-2]))
        done = tool.run("sweep", self.folder.config, "--deterministic", "--threads", "1", *SEEDS, "--out", out, "--resume")
        self.assertIn("2 nets in 1 group", done.stderr)
        self.assertEqual(results(out), results(alone))

    @unittest.skipIf(mpi.missing(), "no ranks here")
    def test_ranks_prune_as_one_process(self):
        work = (*RATES, "--prune", "asha", "--deterministic", "--threads", "1")
        alone, _ = self.sweep("pruned-alone", *work)
        code, _, _, err = mpi.end(mpi.launch(3, "sweep", self.folder.config, *work, "--out", self.folder / "pruned-ranks"), 120)
        self.assertEqual(code, 0, err)
        self.assertEqual(results(self.folder / "pruned-ranks"), results(alone))
        self.assertEqual(sorted(point.get("pruned_after", 0) for point in points(alone)), [0, 1, 1, 1, 1, 3])
        # Without a folder a member that waits at a rung stays with the rank that has it in memory.
        code, _, text, err = mpi.end(mpi.launch(3, "sweep", self.folder.config, *work, "--json", "-"), 120)
        self.assertEqual(code, 0, err)
        (self.folder / "sweep.json").write_text(text)
        self.assertEqual(results(self.folder / ""), results(alone))

    def lose_a_rank(self, name, how, *flags, mpirun=("--enable-recovery",)):
        """A sweep of three ranks of which the second is lost while it trains; its code and what it said."""
        out = self.folder / name
        process = mpi.launch(3, "sweep", self.folder.config, *LONG, "--threads", "1", *flags, "--out", out, mpirun=mpirun,
                             RIDGELINE_WATCH="5")
        pid = mpi.ranks_of(process, 3)[1]

        def under_way():
            """Whether the rank has saved a checkpoint of a member that it goes on with."""
            for lock in out.glob("members/*/.lock"):
                try:
                    if lock.read_text().strip() == str(pid) and (lock.parent / "checkpoint.safetensors").exists():
                        return True
                except OSError:
                    pass
            return False

        for _ in range(6000):
            if under_way():
                break
            self.assertIsNone(process.poll(), "ended before a rank could be lost")
            time.sleep(0.01)
        os.kill(pid, how)
        code, _, _, err = mpi.end(process, 120)
        return out, code, err

    @unittest.skipIf(mpi.missing(), "no ranks here")
    def test_the_members_of_a_lost_rank_go_to_others(self):
        whole, _ = self.sweep("whole-ranks", *FIXED, *LONG)
        for how in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(how=how):
                out, code, err = self.lose_a_rank(f"lost-{how.name}", how, "--deterministic")
                self.assertEqual(code, 0, err)
                self.assertRegex(err, "rank 1 .*; its members go to others")
                self.assertEqual(results(out), results(whole))
                reports = [point["report"] for point in points(out)]
                self.assertTrue(any(report["steps_here"] < report["steps"] for report in reports), "began anew")
        # A launcher that ends all ranks with one: the rest is for --resume.
        out, code, err = self.lose_a_rank("ended", signal.SIGKILL, "--deterministic", mpirun=())
        self.assertNotEqual(code, 0)
        self.assertRegex(err, "rank 1 .*lost")
        tool.run("sweep", self.folder.config, *FIXED, *LONG, "--out", out, "--resume")
        self.assertEqual(results(out), results(whole))


if __name__ == "__main__":
    unittest.main()
