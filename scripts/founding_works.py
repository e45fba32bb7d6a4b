"""The parts of the five founding works: the commands of the tool that repeat each, and the figures that are kept."""
import json
import os
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
SIGMOID = "configs/mnist-sigmoid.toml"
LARGE = "configs/bench/mlp-512-b3000.toml"
MOST_SECONDS = 900  # of one command


class PartFailed(Exception):
    pass


class Context:
    """Runs the tool for a part and remembers the commands."""

    def __init__(self, tool, folder, quick):
        self.tool, self.folder, self.quick = tool, folder, quick
        self.commands = []
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def has_gpu(self):
        return subprocess.run([self.tool, "info", "--device", "cuda"], capture_output=True, check=False).returncode == 0

    def size(self, usual, small):
        return small if self.quick else usual

    def run(self, *arguments, ranks=0):
        """What the tool wrote to (stdout, stderr)."""
        words = [*map(str, arguments)]
        start = ["mpirun", "-n", str(ranks), "--oversubscribe"] if ranks else []
        shown = " ".join(word.replace(f"{self.folder}/", "") for word in words)
        self.commands.append(" ".join([*start, "ridgeline", shown.removesuffix(" --json figures.json")]))
        done = subprocess.run([*start, self.tool, *words], capture_output=True, text=True, cwd=ROOT, check=False,
                              env=self.environment, timeout=MOST_SECONDS)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["nothing"]
            raise PartFailed(f"{self.commands[-1]}: exit {done.returncode}, said {said[-1]}")
        return done.stdout, done.stderr

    def json(self, *arguments, ranks=0):
        file = self.folder / "figures.json"
        file.unlink(missing_ok=True)
        self.run(*arguments, "--json", file, ranks=ranks)
        return json.loads(file.read_text())


@dataclass
class Part:
    work: int
    name: str
    device: str
    what: str
    run: Callable


PARTS = []


def part(work, name, what):
    """A part whose name ends in the device it is for."""
    def add(function):
        PARTS.append(Part(work, name, name.rsplit("-", 1)[1], what, function))
        return function
    return add


def ladder_part(work, network, device):
    def run(context):
        ranks = 2 if device == "cuda" else min(4, max(2, len(os.sched_getaffinity(0))))
        return context.json("ladder", network, "--device", device, "--seconds",
                            context.size(0.05 if device == "cuda" else 0.5, 0.01), "--ranks", ranks)
    PARTS.append(Part(work, f"ladder-{device}", device, f"`ladder {network}`: the history, rung by rung", run))


for number, ladder in ((1, "charcnn"), (2, "lenet72"), (3, "mlp"), (5, "rnn")):
    for kind in ("cpu", "cuda"):
        ladder_part(number, ladder, kind)


def profile_part(work, name, device, subject, *more):
    def run(context):
        file = context.folder / "figures.json"
        text, _ = context.run("profile", subject, "--device", device, "--seconds", context.size(2, 0.1), *more,
                              "--json", file)
        return json.loads(file.read_text()) | {"text": text}
    PARTS.append(Part(work, f"{name}-{device}", device, f"`profile {subject}`: kernels, calls, copies, advice", run))


profile_part(2, "profile", "cpu", "lenet72", "--batch", "128")
profile_part(2, "profile", "cuda", "lenet72", "--batch", "10000", "--set", "run.precision=bf16")
profile_part(4, "profile", "cpu", LARGE)
profile_part(4, "profile", "cuda", LARGE)


# 1 The character network

def news_file():
    return Path(os.environ.get("RIDGELINE_DATA", "")) / "ag_news" / "test.csv.gz"


def character_model(context):
    """A model with the network's shape; its speed does not depend on what it has learnt."""
    import gzip
    model = context.folder / "news"
    if model.exists():
        return model
    small = context.folder / "data" / "ag_news"
    small.mkdir(parents=True)
    with gzip.open(news_file(), "rt") as texts:
        few = "".join(line for line, _ in zip(texts, range(16)))
    for name in ("train.csv", "test.csv"):
        (small / name).write_text(few)
    context.run("train", "configs/agnews-charcnn.toml", "--data", context.folder / "data", "--set",
                "run.precision=fp32", "--set", "train.max_steps=1", "--set", "train.batch=2", "--no-tune", "--device",
                "cpu", "--quiet", "--out", model)
    context.commands.clear()
    return model


def texts_file(context, count):
    import gzip
    path = context.folder / f"texts-{count}.csv"
    with gzip.open(news_file(), "rt") as texts:
        lines = texts.readlines()
    with path.open("w") as out:
        for begin in range(0, count, len(lines)):
            out.writelines(lines[:count - begin])
    return path


TRANSPORTS = ("blocking", "nonblocking", "scatter", "interleaved", "credits")


@part(1, "transports-cpu", "the network itself over 4 ranks, chunks moved in five ways")
def transports(context):
    model = character_model(context)
    count, tries = context.size((400, 3), (24, 1))
    texts = texts_file(context, count)
    figures = {"texts": count, "ranks": 4, "threads": 1, "batch": 6, "inputs_per_second": {}}
    arguments = ["infer", model, "--input", texts, "--output", context.folder / "labels.csv", "--labels-only",
                 "--threads", 1, "--batch", 6, "--device", "cpu", "--no-tune"]
    rates = figures["inputs_per_second"]
    rates["one rank"] = [context.json(*arguments)["inputs_per_second"] for _ in range(tries)]
    for _ in range(tries):  # alternating, so that changes of the machine's speed affect all alike
        for transport in TRANSPORTS:
            found = context.json(*arguments, "--transport", transport, ranks=4)
            rates.setdefault(transport, []).append(found["inputs_per_second"])
    context.commands = [*dict.fromkeys(context.commands)]
    return figures


@part(1, "latency-cpu", "when each of 4 ranks did what, as text and as numbers")
def latency(context):
    model = character_model(context)
    texts = texts_file(context, context.size(400, 24))
    file = context.folder / "figures.json"
    _, table = context.run("infer", model, "--input", texts, "--output", context.folder / "labels.csv",
                           "--labels-only", "--threads", 1, "--batch", 6, "--device", "cpu", "--no-tune", "--times",
                           "--json", file, ranks=4)
    return json.loads(file.read_text()) | {"text": table}


@part(1, "file-cuda", "texts of a CSV file to a file of labels, one plan and two on one GPU")
def file_to_file(context):
    model = character_model(context)
    texts = texts_file(context, context.size(2_006_400, 20_000))
    figures = {"texts": context.size(2_006_400, 20_000), "inputs_per_second": {}}
    for devices in ("cuda:0", "cuda:0,0"):
        found = [context.json("infer", model, "--input", texts, "--output", context.folder / "labels.csv",
                              "--labels-only", "--precision", "bf16", "--no-tune", "--device", devices)
                 for _ in range(context.size(3, 1))]
        figures["inputs_per_second"][devices] = [each["inputs_per_second"] for each in found]
    return figures


# 2 Convolutions

def operations(context, device, batches, precisions):
    lines = []
    for precision in precisions:
        lines += context.json("bench", "infer", "configs/fashion-lenet72.toml", "--device", device, "--batch",
                              ",".join(map(str, batches)), "--ops", "--seconds", context.size(0.05, 0.01), "--set",
                              f"run.precision={precision}", "--set", "data.name=mnist")
    return lines


@part(2, "ops-cpu", "every op of the network alone at 100, 1,000 and 10,000 images")
def operations_cpu(context):
    return operations(context, "cpu", context.size((100, 1000, 10000), (2,)), ("fp32",))


@part(2, "ops-cuda", "every op of the network alone at 100, 1,000 and 10,000 images")
def operations_cuda(context):
    return operations(context, "cuda", context.size((100, 1000, 10000), (100,)), ("bf16", "tf32", "fp32"))


CONV_LEVELS = ("constant_mask", "register_sums", "unrolled_7x7")


@part(2, "levels-cuda", "the three founding convolutions at 100, 1,000 and 10,000 images")
def conv_levels(context):
    batches = ",".join(map(str, context.size((100, 1000, 10000), (100,))))
    return {level: context.json("bench", "infer", "configs/fashion-lenet72.toml", "--device", "cuda", "--batch", batches,
                                "--ops", "--seconds", context.size(0.05, 0.01), "--set", "run.precision=fp32", "--set",
                                "data.name=mnist", "--kernels", f"cuda.conv2d.{level}", "--kernels", "cuda.*.plain",
                                "--kernels", "!cuda.conv2d.plain")
            for level in CONV_LEVELS}


# 3 Perceptrons on tensor cores

@part(3, "widths-cpu", "a step of 784-h-h-h-10 over h at batch 32, fp32")
def widths_cpu(context):
    nets = [f"--only=784-{h}-{h}-{h}-10:32" for h in context.size((128, 256, 512, 1024), (128,))]
    return context.json("bench", "mlp", "--device", "cpu", "--precision", "fp32", "--seconds",
                        context.size(0.5, 0.01), *nets)


@part(3, "widths-cuda", "a step of 784-h-h-h-10 over h = 128 to 8192 at batch 32, fp16 and bf16")
def widths_cuda(context):
    lines = []
    for precision in ("fp16", "bf16"):
        lines += context.json("bench", "mlp", "--device", "cuda", "--widths", "--precision", precision, "--weights",
                              "half", "--seconds", context.size(0.15, 0.01))
    return lines


@part(3, "levels-cuda", "`ladder mlp --width`: the levels of a product, then whole steps, fp16, batch 32, over widths")
def product_levels(context):
    return {str(width): context.json("ladder", "mlp", "--width", width, "--device", "cuda", "--seconds",
                                     context.size(0.05, 0.01))
            for width in context.size((128, 256, 512, 1024, 2048, 4096, 8192), (128,))}


# 4 Data-parallel perceptrons

STUDIES = {
    "hidden": ("model.layers.0.out", (16, 32, 64, 100, 128, 256, 512)),
    "rate": ("train.optimizer.lr", (0.001, 0.01, 0.03, 0.1, 0.3, 1)),
    "batch": ("train.batch", (100, 300, 1000, 3000, 6000)),
    "epochs": ("train.epochs", (1, 2, 5, 10, 20)),
}


def sweep(context, device, *sets):
    """[{set, accuracy, loss, train_loss}] of a sweep of the founding net."""
    arguments = ["sweep", SIGMOID, "--device", device]
    arguments += ["--deterministic"] if device == "cpu" else ["--no-tune"]
    if device == "cpu":
        arguments += ["--threads", 1]  # the result then does not depend on the machine's load
    for each in sets:
        arguments += ["--set", each]
    points = context.json(*arguments)["points"]
    return [{"set": point["set"]} | {key: point["report"][key] for key in ("accuracy", "loss", "train_loss",
                                                                           "us_per_step")} for point in points]


def seeds(count):
    return "train.seed=" + ",".join(str(seed) for seed in range(1, count + 1))


def summary(points, key):
    """Mean and deviation over the seeds, for each value of `key`."""
    groups = {}
    for point in points:
        groups.setdefault(str(point["set"].get(key)), []).append(point)
    result = []
    for value, group in groups.items():
        line = {"value": value, "repeats": len(group)}
        for metric in ("accuracy", "loss", "train_loss"):
            values = [point[metric] for point in group]
            line[metric] = {"mean": statistics.mean(values),
                            "deviation": statistics.stdev(values) if len(values) > 1 else None}
        result.append(line)
    return result


def study(context, device, name):
    key, values = STUDIES[name]
    if device == "cuda" and name == "hidden":
        values += (1024, 2048)
    repeats = context.size(10, 2)
    hidden = [] if name == "hidden" or device == "cuda" else ["model.layers.0.out=100"]
    epochs = [] if name == "epochs" else [f"train.epochs={context.size(10, 1)}"]
    values = values[:context.size(len(values), 2)]
    points = sweep(context, device, f"{key}={','.join(map(str, values))}", seeds(repeats), *hidden, *epochs)
    return {"key": key, "units": 100 if hidden else None if name == "hidden" else 512,
            "epochs": None if name == "epochs" else context.size(10, 1), "lines": summary(points, key)}


for kind in ("cpu", "cuda"):
    for study_name in STUDIES:
        PARTS.append(Part(4, f"{study_name}-{kind}", kind, f"accuracy and loss over {STUDIES[study_name][0]}, ten seeds",
                          lambda context, device=kind, name=study_name: study(context, device, name)))


def long_runs(context, device, units):
    """The curves of 200 epochs, an evaluation an epoch."""
    runs = []
    for width in units:
        folder = context.folder / f"long-{width}"
        context.run("train", SIGMOID, "--device", device, "--no-tune", "--quiet", "--force", "--set",
                    f"model.layers.0.out={width}", "--set", f"train.epochs={context.size(200, 2)}", "--out", folder)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        tests, trained = ([line for line in lines if line["event"] == event] for event in ("eval", "train"))
        runs.append({"units": width, "epochs": [line["epoch"] for line in tests],
                     "accuracy": [round(line["accuracy"], 5) for line in tests],
                     "loss": [round(line["loss"], 5) for line in tests],
                     "train_loss": [round(line["loss"], 5) for line in trained]})
    return runs


@part(4, "long-cpu", "200 epochs at 100 units")
def long_cpu(context):
    return long_runs(context, "cpu", (100,))


@part(4, "long-cuda", "200 epochs at 100, 512 and 2048 units")
def long_cuda(context):
    return long_runs(context, "cuda", (100, 512, 2048))


@part(4, "verify-cpu", "`verify` at a learning rate of 0.1, which amplifies rounding, and at 0.01")
def verify(context):
    found = []
    for rate in (0.1, 0.01):
        for ranks in ([], ["--ranks", 2]):
            result = context.json("verify", SIGMOID, "--device", "cpu", "--set", f"train.optimizer.lr={rate}", "--steps",
                                  context.size(20, 2), "--reference-seconds", context.size(5, 0.5), *ranks)
            found.append({"lr": rate, "ranks": ranks[1] if ranks else 1} | result)
    return found


@part(4, "ranks-cpu", "steps over 1, 2 and 4 ranks of a thread each, beside what `plan --ranks` predicts")
def ranks_speed(context):
    steps, tries = context.size((20, 3), (2, 1))
    measured = {}
    for _ in range(tries):
        for count in (1, 2, 4):
            found = context.json("train", LARGE, "--threads", 1, "--no-tune", "--quiet", "--device", "cpu", "--set",
                                 "train.epochs=1000", "--set", f"train.max_steps={steps}", "--set",
                                 "train.eval_every=1000", ranks=count if count > 1 else 0)
            measured.setdefault(count, []).append(found["us_per_step"])
    profile = context.json("profile", LARGE, "--threads", 1, "--no-tune", "--device", "cpu", "--seconds", 0.5, ranks=2)
    network = profile["ranks"]
    said = f"{network['bandwidth'] / 1e9:.3f}GB/s,{max(0.01, network['latency_us']):.2f}us"
    predicted = context.json("plan", LARGE, "--ranks", "2,4", "--network", said, "--device", "cpu", "--threads", 1,
                             "--no-tune")
    context.commands = [*dict.fromkeys(context.commands)]
    kept = {key: profile[key] for key in ("us", "cost", "ceilings", "ranks") if key in profile}
    return {"us_per_step": measured, "network": said, "predicted": predicted["points"], "profile": kept}


@part(4, "ceilings-cuda", "the roofs of the GPU, the way to the host by pinned memory in both directions")
def ceilings(context):
    return context.json("info", "--device", "cuda", "--measure")["ceilings"]


# 5 Matrix products and recurrent layers

def products(context, device, precisions, extent):
    batches = ",".join(str(n) for n in range(8, context.size(264, 24), 8))
    lines = []
    for precision in precisions:
        found = context.json("bench", "gemm", "--device", device, "--precision", precision, "--m", extent, "--k",
                             extent, "--op", "tn,nn,nt", "--n", batches, "--seconds", 0.002)
        lines += [{key: line[key] for key in ("op", "m", "n", "k", "precision", "way", "us", "tflops", "vendor",
                                              "planned")} for line in found]
    return lines


@part(5, "products-cpu", "products over the batch in steps of 8, fp32")
def products_cpu(context):
    return products(context, "cpu", ("fp32",), context.size(512, 64))


@part(5, "products-cuda", "products over the batch in steps of 8: fp32, tf32, bf16, fp16")
def products_cuda(context):
    return products(context, "cuda", ("fp32", "tf32", "bf16", "fp16"), 1760)


@part(5, "layers-cpu", "recurrent layers forward and training by every kernel")
def layers_cpu(context):
    return layers(context, "cpu", "fp32", context.size(256, 16))


@part(5, "layers-cuda", "recurrent layers forward and training by every kernel")
def layers_cuda(context):
    return layers(context, "cuda", "bf16", context.size(1024, 128))


def layers(context, device, precision, hidden):
    found = context.json("bench", "rnn", "--device", device, "--precision", precision, "--cell",
                         "lstm,gru,rnn-tanh", "--hidden", hidden, "--batch", "16,64", "--steps",
                         context.size(64, 4), "--seconds", context.size(0.03, 0.005))
    return [{key: line[key] for key in ("cell", "hidden", "batch", "steps", "layers", "pass", "kernel", "us_min",
                                        "us_median", "precision")} for line in found]
