"""The tensorboard package of Python reads our event files, with the values of metrics.jsonl."""

import json
import sys

sys.dont_write_bytecode = True
import tool

READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
scalars = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]}
histograms = {}
for tag in tags["histograms"]:
    histograms[tag] = [[e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max,
                        sum(e.histogram_value.bucket)] for e in events.Histograms(tag)]
print(json.dumps({"scalars": scalars, "histograms": histograms}))
"""


def read(python, folder):
    done = tool.command([str(python), "-c", READER, str(folder)])
    return json.loads(done.stdout.splitlines()[-1])


def metrics(out, event):
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def check_scalars(out, got):
    """Every number of metrics.jsonl is in the event files, at its step and once."""
    for event, part in (("train", "train"), ("eval", "test")):
        lines = metrics(out, event)
        tags = {"loss": f"loss/{part}", "accuracy": f"accuracy/{part}"}
        if event == "eval":
            tags |= {"f1": "f1/test", "auc": "auc/test"}
        if event == "train":
            tags |= {"lr": "learning_rate", "inputs_per_second": "speed/inputs_per_second",
                     "gradient_norm": "gradient_norm", "limit_fraction": "speed/fraction_of_the_limit"}
        for key, tag in tags.items():
            values = got["scalars"][tag]
            assert [step for step, _ in values] == [line["step"] for line in lines], tag
            for (_, value), line in zip(values, lines):
                assert abs(value - line[key]) <= 1e-3 * abs(line[key]) + 1e-12, (tag, value, line)


def main():
    python = tool.python_with("tensorboard")
    if python is None:
        return 77
    folder = tool.Folder()
    out = folder / "run"
    train = ["train", folder.config, "--out", out, "--histograms", "--set", "train.clip_norm=0.5",
             "--set", "train.checkpoint_steps=13"]
    tool.run(*train, "--set", "train.epochs=2")
    got = read(python, out / "tensorboard")
    check_scalars(out, got)
    weights = got["histograms"]["weights/0.weight"]
    assert [step for step, *_ in weights] == [0, 13, 26], weights
    for _, count, low, high, in_buckets in weights:
        assert count == 16 * 36 == in_buckets and low < 0 < high
    # A resumed run adds a second file, and readers see one run.
    tool.run(*train, "--resume", "--set", "train.epochs=4")
    assert len(list((out / "tensorboard").iterdir())) == 2
    check_scalars(out, read(python, out / "tensorboard"))
    tool.run(*train, "--force", "--set", "train.epochs=1")
    assert len(list((out / "tensorboard").iterdir())) == 1
    folder.close()
    print("read by Python's tensorboard: scalars and histograms agree with metrics.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
