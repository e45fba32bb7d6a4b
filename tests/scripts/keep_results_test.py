"""scripts/keep-results on the output of scripts/gpu-check: the newest good run of each part is kept, named by its
commit, and programs that failed change nothing."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def script():
    loader = importlib.machinery.SourceFileLoader("keep_results", str(ROOT / "scripts/keep-results"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("keep_results", loader))
    loader.exec_module(module)
    return module


def check(commit, ran, figures):
    return {"commit": commit, "date": "2026-01-31", "device": "NVIDIA H200", "driver": "1", "memory": "2",
            "max_sm_clock": "3", "figures": figures,
            "ran": {section: {name: {"exit": code, "seconds": 1.0, "last": ""} for name, code in names.items()}
                    for section, names in ran.items()}}


def counts(network, us):
    return [{"network": network, "kernel": "cuda.linear.plain", "us": us}]


def deepbench(part, us):
    return {"device": "cuda:0", "lines": [{"part": part, "shape": "m=1", "us": us}]}


def swept(batch, us, cell="lstm"):
    line = {"cell": cell, "hidden": 8, "batch": batch, "steps": 2, "layers": 1, "pass": "forward", "kernel": "plan",
            "us_min": us, "us_median": us, "precision": "bf16", "kernels": ["cuda.rnn.persistent"]}
    return [line, line | {"pass": "training"}]


def main():
    keep = script()
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder)
        read = lambda name: json.loads((results / f"h200{name}.json").read_text())
        keep.keep_check(check("a", {"ladders": {"mlp": 0}, "counts": {"mlp": 0, "rnn": 0},
                                    "deepbench": {"gemm": 0, "conv": 0}, "products": {"bf16": 0},
                                    "recurrent": {"sweep-lstm-8": 0, "sweep-gru-8": 0, "lstm-8-1": 0},
                                    "bench": {"mlp-fp32": 0, "widths-bf16-half": 0, "charcnn-bf16": 0}},
                              {"ladders": {"mlp": {"rungs": [1]}},
                               "counts": {"mlp": counts("mlp", 1), "rnn": counts("rnn", 1)},
                               "deepbench": {"gemm": deepbench("gemm", 1), "conv": deepbench("conv", 1)},
                               "products": {"bf16": [{"op": "TN"}]},
                               "recurrent": {"sweep-lstm-8": swept(1, 1) + swept(4, 1),
                                             "sweep-gru-8": swept(1, 3, "gru"), "lstm-8-1": swept(64, 1)},
                               "bench": {"mlp-fp32": [{"network": "784-10", "us_median": 1}],
                                         "widths-bf16-half": [{"network": "784-8-10", "precision": "bf16",
                                                               "weights": "bf16", "us_median": 1}],
                                         "charcnn-bf16": [{"precision": "bf16", "batch": 2, "ops": [],
                                                           "inputs_per_second": 3}]}}), results)
        keep.keep_check(check("b", {"ladders": {"mlp": 124}, "counts": {"mlp": 0}, "deepbench": {"conv": 0},
                                    "recurrent": {"sweep-lstm-8": 0}, "tests": {"test_cuda": 0},
                                    "bench": {"mlp-fp32": 1}},
                              {"ladders": {"mlp": {"rungs": []}}, "counts": {"mlp": counts("mlp", 2)},
                               "deepbench": {"conv": deepbench("conv", 2)}, "recurrent": {"sweep-lstm-8": swept(1, 2)},
                               "bench": {"mlp-fp32": [{"network": "784-10", "us_median": 9}]}}), results)
        assert read("-ladder-mlp") == {"rungs": [1], "date": "2026-01-31", "commit": "a"}
        assert {(line["network"], line["us"], line["commit"]) for line in read("-ncu")} == {("mlp", 2, "b"),
                                                                                      ("rnn", 1, "a")}
        assert {(line["part"], line["us"], line["commit"]) for line in read("-deepbench")["lines"]} == {
            ("gemm", 1, "a"), ("conv", 2, "b")}
        assert {(line["cell"], line["batch"], line["us_median"], line["commit"])
                for line in read("-recurrent-sweep")["lines"]} == {
                    ("lstm", 1, 2, "b"), ("lstm", 4, 1, "a"), ("gru", 1, 3, "a")}
        assert len(read("-recurrent-sweep")["lines"]) == 6
        assert [(line["batch"], line["commit"]) for line in read("-recurrent")["lines"]] == [(64, "a"), (64, "a")]
        assert read("-products") == {"device": "NVIDIA H200", "date": "2026-01-31", "commit": "a",
                                     "lines": [{"op": "TN"}]}
        assert read("-mlp-widths")[0]["commit"] == "a"
        assert read("-charcnn")["bench_infer"] == [{"precision": "bf16", "batch": 2, "inputs_per_second": 3,
                                                    "date": "2026-01-31", "commit": "a"}]
        whole = read("")
        assert whole["figures"]["bench"]["mlp-fp32"][0]["us_median"] == 1
        assert whole["ran"]["bench"]["mlp-fp32"]["commit"] == "a"
        assert whole["ran"]["tests"]["test_cuda"]["commit"] == "b"
        try:
            keep.keep_check({"device": "another GPU"}, results)
            raise AssertionError("kept figures of another GPU")
        except SystemExit as refused:
            assert "another GPU" in str(refused)


main()
