"""One command trains on tables, arrays and folders of images, and a model prepares the inputs of inference like its
training data. Errors in files are named. The commands of docs/your-data.md work."""

import csv
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
import tool

tool.need("numpy")
import numpy as np

RUN = '\n[run]\ndevice = "cpu"\ntune = false\n'


def config(data, layers, train=""):
    layers = ",".join("{" + layer + "}" for layer in layers)
    return f"[data]\n{data}\n[model]\nlayers = [{layers}]\n[train]\n{train}\n{RUN}"


def mlp(out, hidden=16):
    return [f'type="linear",out={hidden}', 'type="relu"', f'type="linear",out={out}']


def train(text, *flags, code=0, out="run"):
    pathlib.Path("net.toml").write_text(text)
    how = () if "--resume" in flags else ("--force",)
    done = tool.run("train", "net.toml", "--out", out, *how, "--json", "report.json",
                    *flags, code=code)
    return json.loads(pathlib.Path("report.json").read_text()) if code == 0 else done.stderr


def infer(path, *flags, output="out.csv", model="run"):
    tool.run("infer", model, "--input", path, "--output", output, "--device", "cpu", "--no-tune", *flags)
    if output.endswith(".npy"):
        return np.load(output)
    if output.endswith(".jsonl"):
        return [json.loads(line) for line in open(output)]
    with open(output, newline="") as file:
        return list(csv.DictReader(file))


def rows_of(text):
    return list(csv.reader(text.splitlines()))


def check_npy_classifier():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 3))
    y = (x @ [1.0, 2.0, -1.0] > 0).astype("i8") + 2  # the classes are 2 and 3
    np.save("x.npy", np.asfortranarray(x))
    np.save("y.npy", y)
    adam = 'batch=32\nepochs=40\noptimizer={type="adam",lr=0.01}'
    report = train(config('train="x.npy"\ntarget="y.npy"', mlp(2), adam))
    assert report["accuracy"] > 0.9, report
    found = infer("x.npy")
    assert list(found[0]) == ["index", "label", "p_2", "p_3"], found[0]
    right = np.mean([int(row["label"]) == label for row, label in zip(found, y)])
    assert right > 0.9, right
    # The file that is inferred on has another name, which is that of its field.
    np.save("other.npy", x[:5].astype(">f4"))
    p = infer("other.npy", output="p.npy")
    assert p.shape == (5, 2) and p.dtype == np.float32, (p.shape, p.dtype)
    assert np.allclose(p, [[float(r["p_2"]), float(r["p_3"])] for r in found[:5]], atol=1e-6)
    z = infer("other.npy", "--output-kind", "logits", output="z.npy").astype("f8")
    e = np.exp(z - z.max(1, keepdims=True))
    assert np.allclose(e / e.sum(1, keepdims=True), p, atol=1e-6)
    labels = infer("other.npy", "--output-kind", "labels", output="labels.npy")
    assert labels.dtype == np.int32 and (labels == p.argmax(1)).all(), labels
    lines = infer("other.npy", output="out.jsonl")
    assert lines[0].keys() == {"index", "label", "p"} and lines[0]["label"] in ("2", "3"), lines[0]
    tool.run("infer", "run", "--input", "x.npy", "--output-kind", "values", code=2)
    # Evaluation: the part kept for testing, and another file with its targets.
    again = json.loads(tool.run("eval", "run", "--device", "cpu", "--json", "-").stdout)
    assert again["accuracy"] == report["accuracy"] and again["samples"] == 40, (again, report)
    whole = json.loads(tool.run("eval", "run", "--on", "x.npy", "--target", "y.npy", "--device", "cpu", "--json",
                                "-").stdout)
    assert whole["samples"] == 400 and abs(whole["accuracy"] - right) < 1e-9, (whole, right)
    # A resumed run goes on with the same samples; test data of their own are taken as they are.
    train(config('train="x.npy"\ntarget="y.npy"', mlp(2), adam.replace("=40", "=41")), "--resume")
    np.savez("set.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
    assert train(config('train="set.npz"', mlp(2), "epochs=1"))["data"] == "set.npz"
    np.save("x2.npy", x[:50])
    np.save("y2.npy", y[:50])
    text = 'train="x.npy"\ntarget="y.npy"\ntest="x2.npy"\ntest_target="y2.npy"'
    train(config(text, mlp(2), "epochs=1"))
    line = train(config('train="x.npy"\ntarget="y.npy"', mlp(3), "epochs=1"), code=2)
    assert "set its out to 2" in line, line


def check_other_forms():
    """A model of an array takes a table of as many columns, and finds its array among others; arrays of whole numbers are
    tokens for an embedding."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((90, 3)).round(4)
    y = x @ [1.0, 2.0, -1.0]
    np.save("x.npy", x)
    np.save("y.npy", y)
    train(config('train="x.npy"\ntarget="y.npy"', mlp(1), "batch=16\nepochs=2"))
    want = infer("x.npy", output="want.npy")
    for name, columns in (("table.csv", x), ("scored.csv", np.column_stack([x, y]))):
        with open(name, "w", newline="") as file:
            names = ["one", "two", "three", "price"][:columns.shape[1]]
            csv.writer(file).writerows([names, *columns.tolist()])
    assert (infer("table.csv", output="got.npy") == want).all()
    np.savez("several.npz", weights=np.ones(90), samples=x, other=np.ones((90, 5)))
    assert (infer("several.npz", output="got.npy") == want).all()
    # Kernels chosen by measurement could differ in the last bits.
    scores = [json.loads(tool.run("eval", "run", "--on", on, "--target", target, "--device", "cpu", "--no-tune", "--json",
                                  "-").stdout)["r2"] for on, target in (("x.npy", "y.npy"), ("scored.csv", "price"))]
    assert scores[0] == scores[1], scores
    line = tool.run("infer", "run", "--input", "scored.csv", code=3).stderr  # four columns: which three?
    assert "no field 'x'" in line, line
    tokens = rng.integers(0, 6, (90, 5))
    np.save("tokens.npy", tokens)
    np.save("has.npy", (tokens == 2).any(1))
    layers = ['type="embedding",vocabulary=6,out=8', 'type="gru",hidden=16', 'type="select"', 'type="linear",out=2']
    adam = 'batch=10\nepochs=40\noptimizer={type="adam",lr=0.02}'
    report = train(config('train="tokens.npy"\ntarget="has.npy"', layers, adam))
    assert report["accuracy"] > 0.7, report
    assert infer("tokens.npy", output="p.npy").shape == (90, 2)
    np.save("wrong.npy", tokens + 1)
    assert "embedding knows" in tool.run("infer", "run", "--input", "wrong.npy", code=3).stderr


def houses(path, samples, seed, target=True, gaps=True):
    rng = np.random.default_rng(seed)
    area, kind = 30 + 120 * rng.random(samples), rng.integers(0, 3, samples)
    price = 1000 * area + 20000 * kind
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["area", "kind", "note", *(["price"] if target else [])])
        for i in range(samples):
            out.writerow(["" if gaps and i % 17 == 3 else repr(float(area[i])),
                          "" if gaps and i % 23 == 5 else ["flat", "house, large", "hut"][kind[i]], f"note {i}",
                          *([repr(float(price[i]))] if target else [])])
    return price


def check_csv_regressor():
    houses("houses.csv", 600, 1)
    layers = mlp(1, 32)
    adam = 'batch=32\nepochs=60\noptimizer={type="adam",lr=0.01}'
    line = train(config('train="houses.csv"', layers, adam), code=3)
    assert "area" in line and "missing" in line, line
    data = 'train="houses.csv"\ntarget="price"\nmissing="indicator"\nsplit={validation=0.1,test=0.1,seed=3}'
    report = train(config(data, layers, adam))
    assert "accuracy" not in report and report["loss"] < 0.2, report
    # A table without the target, and with its columns in another order.
    price = houses("new.csv", 50, 2, target=False, gaps=False)
    table = rows_of(pathlib.Path("new.csv").read_text())
    with open("turned.csv", "w", newline="") as file:
        csv.writer(file).writerows([row[::-1] for row in table])
    values = infer("new.csv", output="values.npy")
    assert values.shape == (50,) and values.dtype == np.float64, values
    assert np.abs(values - price).mean() < 8000, np.abs(values - price).mean()
    found = infer("turned.csv")
    assert list(found[0]) == ["index", "value"], found[0]
    assert np.allclose([float(row["value"]) for row in found], values, rtol=1e-8)
    # The resolved config reads back to itself.
    printed = tool.run("train", "net.toml", "--print-config").stdout
    pathlib.Path("printed.toml").write_text(printed)
    assert tool.run("train", "printed.toml", "--print-config").stdout == printed
    table[4][1] = "castle"
    with open("castle.csv", "w", newline="") as file:
        csv.writer(file).writerows(table)
    line = tool.run("infer", "run", "--input", "castle.csv", code=3).stderr
    assert "kind" in line and "castle" in line, line
    line = tool.run("infer", "run", "--input", "report.json", code=3).stderr
    assert "report.json" in line, line


def check_bit_for_bit():
    """Inference on raw inputs is that on prepared ones: the same weights give the same bits."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((300, 4)) * [1, 50, 0.1, 7] + [0, 100, 3, -2]
    y = x @ [1, 0.1, 5, -1]
    with open("raw.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(list("abcdy"))
        out.writerows([[repr(float(v)) for v in (*row, target)] for row, target in zip(x, y)])
    adam = 'batch=32\nepochs=3\noptimizer={type="adam",lr=0.01}'
    train(config('train="raw.csv"', mlp(1), adam), out="raw_run")
    tensors, metadata = tool.read_safetensors("raw_run/model.safetensors")
    kept = json.loads(metadata["ridgeline.preparation"])
    shift = np.array([f["shift"][0] for f in kept["features"]])
    scale = np.array([f["scale"][0] for f in kept["features"]])
    np.save("prepared.npy", ((x - shift) * scale).astype("f4"))
    np.save("target.npy", y)
    raw = 'train="prepared.npy"\ntarget="target.npy"\nscale="raw"\ntarget_scale="raw"'
    train(config(raw, mlp(1), adam), out="prepared_run")
    _, other = tool.read_safetensors("prepared_run/model.safetensors")
    pathlib.Path("swapped").mkdir(exist_ok=True)
    tool.write_safetensors("swapped/model.safetensors", tensors,
                           {k: v for k, v in other.items() if "checksum" not in k and "crc" not in k})
    from_raw = infer("raw.csv", output="from_raw.npy", model="raw_run")
    from_prepared = infer("prepared.npy", output="from_prepared.npy", model="swapped")
    target = kept["target"]
    restored = from_prepared / target["scale"][0] + target["shift"][0]
    assert (restored == from_raw).all(), np.abs(restored - from_raw).max()


def check_quantiles():
    """A model of several quantiles of several targets is read back, and gives them in the units of the data."""
    rng = np.random.default_rng(6)
    x = rng.random((400, 2))
    y = np.stack([1000 + 100 * (x.sum(1) + rng.normal(0, 0.3, 400)), x[:, 0] - x[:, 1]], 1)
    np.save("x.npy", x)
    np.save("y.npy", y)
    adam = 'batch=32\nepochs=40\noptimizer={type="adam",lr=0.01}\nloss={type="quantile",quantiles=[0.1,0.5,0.9]}'
    train(config('train="x.npy"\ntarget="y.npy"', mlp(6), adam))
    low, middle, high, *_ = infer("x.npy", output="q.npy").T
    assert (low < high).mean() > 0.95, (low < high).mean()
    assert abs(np.mean(y[:, 0] < middle) - 0.5) < 0.15 and np.mean(y[:, 0] < low) < 0.25, np.mean(y[:, 0] < low)
    assert np.mean(y[:, 0] < high) > 0.75, np.mean(y[:, 0] < high)
    tool.run("eval", "run", "--device", "cpu")
    columns = [f"value{target}_q{q}" for target in (0, 1) for q in (0.1, 0.5, 0.9)]
    assert list(infer("x.npy")[0]) == ["index", *columns], infer("x.npy")[0]
    # Columns have the names of the targets and the quantiles.
    with open("q.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "up", "down"], *np.concatenate([x, y], 1).tolist()])
    train(config('train="q.csv"\ntarget=["up","down"]', mlp(4), 'epochs=1\nloss={type="quantile",quantiles=[0.1,0.5]}'))
    assert list(infer("q.csv")[0]) == ["index", "value_up_q0.1", "value_up_q0.5", "value_down_q0.1", "value_down_q0.5"]


def write_png(path, pixels):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    height, width = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def check_image_folder():
    rng = np.random.default_rng(2)
    for i in range(120):
        pixels = rng.integers(0, 90, (12, 12), dtype=np.uint8)
        name = "left" if i % 2 else "right"
        pixels[:, :6] += np.uint8(120 * (i % 2))
        place = pathlib.Path("photos") / name
        place.mkdir(parents=True, exist_ok=True)
        write_png(place / f"{i}.png", pixels)
    tool.run("data", "describe", "photos", "--write-config", "photos.toml")
    text = pathlib.Path("photos.toml").read_text()
    assert "conv2d" in text and "out = 2" in text, text
    report = train(text.replace("epochs = 100", "epochs = 5") + RUN)
    assert report["accuracy"] > 0.9, report
    found = infer("photos/left")
    assert len(found) == 60 and sum(row["label"] == "left" for row in found) > 54, found[:3]
    assert report["loss"] < 0.5, report
    # Images of another size are resized to that of training.
    pathlib.Path("large").mkdir()
    write_png(pathlib.Path("large/a.png"), np.full((30, 24), 99, np.uint8))
    assert len(infer("large")) == 1


def check_nested_objects():
    """Keys of objects inside become columns, in training and in inference."""
    lines = [{"id": {"area": i % 10, "of": {"kind": "ab"[i % 2]}}, "label": "xy"[i % 2]} for i in range(60)]
    pathlib.Path("nested.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    described = tool.run("data", "describe", "nested.jsonl", "--write-config", "nested.toml").stdout
    assert "id.area" in described and "id.of.kind" in described, described
    tool.run("train", "nested.toml", "--out", "nested", "--set", "run.tune=false")
    found = [line["label"] for line in infer("nested.jsonl", model="nested")]
    assert found == [line["label"] for line in lines], found


def check_windows():
    t = np.arange(500)
    series = np.sin(t / 5.0)
    with open("series.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["wave"])
        out.writerows([[repr(float(v))] for v in series])
    data = 'train="series.csv"\ntarget="wave"\nwindow={length=16,horizon=1,stride=1}\nsplit={test=0.2}'
    report = train(config(data, mlp(1), 'batch=16\nepochs=30\noptimizer={type="adam",lr=0.01}'))
    assert report["loss"] < 0.01, report
    values = infer("series.csv", output="wave.npy")
    assert len(values) == 500 - 16 + 1, values.shape
    assert np.abs(values[:-1] - series[16:]).max() < 0.3


def check_describe_config():
    houses("d.csv", 200, 3)
    for flags in ((), ("--target", "kind")):
        line = tool.run("data", "describe", "d.csv", *flags, "--write-config", "d.toml")
        assert "price" in line.stdout, line.stdout
        report = train(pathlib.Path("d.toml").read_text().replace("epochs = 100", "epochs = 2") + RUN)
        assert report["steps"] > 0, report
    kept = pathlib.Path("d.toml").read_text().replace('"drop"', '"refuse"')  # the target has gaps
    assert "missing_target" in train(kept + RUN, code=3)
    pathlib.Path("mine.toml").write_text("[data]\n")
    tool.run("data", "describe", "d.csv", "--write-config", "mine.toml", code=2)


def check_odd_tables():
    """Tables as spreadsheets and pandas write them are described, trained on and inferred on, and the config that is
    written says how the file was read."""
    rng = np.random.default_rng(4)
    a, kind = rng.standard_normal(120), rng.integers(0, 2, 120)
    y = 3 * a + kind
    words = ["small", "large"]

    def trains(name, *flags, has=(), without=()):
        tool.run("data", "describe", name, *flags, "--write-config", "odd.toml")
        text = pathlib.Path("odd.toml").read_text()
        for part in has:
            assert part in text, (part, text)
        for part in without:
            assert part not in text, (part, text)
        report = train(text.replace("epochs = 100", "epochs = 30") + RUN)
        pathlib.Path("odd.toml").unlink()
        return report

    # A decimal comma, a separator at the end of every line, and what spreadsheets write for a missing number.
    lines = ["a;kind;y;"] + [f"{v:.4f};{words[k]};{t:.4f};".replace(".", ",") for v, k, t in zip(a, kind, y)]
    lines[5] = lines[5].replace(lines[5].split(";")[0], "#N/A", 1)
    pathlib.Path("semi.csv").write_text("\n".join(lines) + "\n")
    assert trains("semi.csv", has=('missing = "mean"', 'target = "y"'))["r2"] > 0.9
    values = infer("semi.csv", output="semi.npy")
    pathlib.Path("plain.csv").write_text("a,kind\n" + "".join(f"{v:.4f},{words[k]}\n" for v, k in zip(a, kind)))
    assert np.allclose(np.delete(infer("plain.csv", output="plain.npy"), 4), np.delete(values, 4))
    # The index of pandas and a column of numbers that count up are left out; rare words are no fault; groups of digits.
    with open("index.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["", "id", "a", "kind", "size", "y"])
        for i in range(120):
            out.writerow([i, 1000 + i, a[i], f"rare{i}" if i < 9 else words[kind[i]], f"{10000 * a[i]:,.2f}", y[i]])
    report = trains("index.csv", has=('features = ["a", "kind", "size"]', 'unseen = "missing"'))
    assert report["r2"] > 0.8, report
    described = tool.run("data", "describe", "index.csv").stdout
    assert described.count("counts the samples") == 2, described
    # Flags of describe become keys of the config.
    pathlib.Path("flags.txt").write_text("".join(f"{v}!{k}!{t}\n" for v, k, t in zip(a, kind, y)))
    report = trains("flags.txt", "--separator", "!", "--header", "no", "--category", "2",
                    has=('separator = "!"', 'header = "no"', '{ name = "2", category = true }'))
    assert report["r2"] > 0.9, report
    a.astype(">f4").tofile("a.bin")
    np.save("y.npy", y)
    trains("a.bin", "--dtype", ">float32", "--shape", "1", "--target", "y.npy", has=('dtype = ">float32"', "shape = [1]"))
    # Many categories get embeddings.
    pathlib.Path("many.csv").write_text("w,y\n" + "".join(f"w{i % 60},{i % 60}.5\n" for i in range(600)))
    trains("many.csv", has=("column_embedding",), without=("unseen",))
    pathlib.Path("texts.csv").write_text("text,y\n" + "".join(f"this is text {i},{i % 2}\n" for i in range(50)))
    line = tool.run("data", "describe", "texts.csv", "--write-config", "odd.toml", code=2).stderr
    assert "'text' holds texts" in line and "charcnn" in line, line
    pathlib.Path("wide.csv").write_bytes("a,y\n1,2\n3,4\n".encode("utf-16"))
    line = tool.run("data", "describe", "wide.csv", code=3).stderr
    assert "UTF-16" in line and "iconv" in line, line
    # What a run does not learn from is said.
    pathlib.Path("note.csv").write_text("note,a,y\n" + "".join(f"note {i},{a[i]},{y[i]}\n" for i in range(120)))
    pathlib.Path("net.toml").write_text(config('train="note.csv"', mlp(1), "batch=16\nepochs=1"))
    assert "left out, being texts or sequences: note" in tool.run("train", "net.toml").stderr


def check_faults():
    layers = mlp(2)

    def refused(data, *parts, code=3):
        line = train(config(data, layers, "epochs=1"), code=code)
        for part in parts:
            assert part in line, (part, line)

    y = np.arange(20) % 2
    np.save("labels.npy", y)
    np.save("objects.npy", np.array([{"a": 1}] * 20, dtype=object), allow_pickle=True)
    refused('train="objects.npy"\ntarget="labels.npy"', "objects.npy", "run code")
    np.save("good.npy", np.ones((20, 3)))
    whole = pathlib.Path("good.npy").read_bytes()
    pathlib.Path("cut.npy").write_bytes(whole[:-9])
    refused('train="cut.npy"\ntarget="labels.npy"', "cut.npy")
    pathlib.Path("absurd.npy").write_bytes(whole.replace(b"(20, 3)", b"(9999999999, 3)".ljust(7))[:200])
    refused('train="absurd.npy"\ntarget="labels.npy"', "absurd.npy")
    np.save("few.npy", np.ones((19, 3)))
    refused('train="few.npy"\ntarget="labels.npy"', "19", "20")
    refused('train="good.npy"\ntarget="nothing"', "nothing", code=3)
    refused('train="good.npy"', "data.target", code=2)
    refused('train="none.npy"\ntarget="labels.npy"', "none.npy")
    bad = np.ones(20)
    bad[7] = np.nan
    np.save("nan.npy", bad)
    refused('train="good.npy"\ntarget="nan.npy"', "sample 7")
    pathlib.Path("ragged.csv").write_text("a,b,c\n1,2,0\n3,4,1\n5,6\n")
    refused('train="ragged.csv"', "ragged.csv", "line 4", "2")
    # A table without samples, wherever samples are read.
    pathlib.Path("head.csv").write_text("a,b,c\n")
    pathlib.Path("empty.csv").write_text("")
    pathlib.Path("samples.csv").write_text("a,b,c\n" + "1,2,x\n3,4,y\n" * 20)
    train(config('train="samples.csv"', mlp(2), "epochs=1"), out="samples")
    for file, part in (("head.csv", "a header and no records"), ("empty.csv", "is empty")):
        refused(f'train="{file}"', file, part)
        for command in (("data", "describe", file), ("infer", "samples", "--input", file),
                        ("eval", "samples", "--on", file)):
            line = tool.run(*command, code=3).stderr
            assert file in line and part in line, (command, line)
    line = tool.run("infer", "samples", "--input", "samples.csv", "--output", "a.xlsx", code=2).stderr
    assert "a.xlsx" in line and ".jsonl" in line, line
    pathlib.Path("word.csv").write_text("a,b,c\n" + "1,2,0\n3,4,1\n" * 20 + "5,x,1\n")
    refused('train="word.csv"', "line 42", "column 2", "'x'")
    refused('train="good.npy"\ntarget="labels.npy"\nsplit={test=0.6,validation=0.6}', "nothing to train on", code=2)
    refused('train="good.npy"\nname="mnist"', "data.name", code=2)
    refused('train="good.npy"\ntarget="labels.npy"\nscal="raw"', "scale", code=2)
    # An array where a text or bytes are wanted says what it is.
    refused('name="good.npy"', "NumPy array", "data.train")
    folder = tool.Folder()
    pathlib.Path("images.toml").write_text(tool.CONFIG.format(data=folder.data))
    tool.run("train", "images.toml", "--out", "images")
    line = tool.run("infer", "images", "--input", "good.npy", code=3).stderr
    assert "NumPy array" in line, line
    folder.close()


def check_tutorial():
    """The shell blocks of docs/your-data.md, one after another."""
    text = (tool.SOURCE / "docs" / "your-data.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    assert len(blocks) >= 4, blocks
    pathlib.Path("bin").mkdir()
    os.symlink(tool.TOOL, "bin/ridgeline")
    env = tool.environment(PATH=f"{os.getcwd()}/bin:{os.environ['PATH']}")
    for block in blocks:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], env=env, capture_output=True, text=True,
                              timeout=300)
        assert done.returncode == 0, (block, done.stdout[-800:], done.stderr[-800:])


def main():
    checks = [check_npy_classifier, check_other_forms, check_csv_regressor, check_bit_for_bit, check_quantiles,
              check_image_folder, check_nested_objects, check_windows,
              check_describe_config, check_odd_tables, check_faults, check_tutorial]
    for check in checks:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            check()
            os.chdir("/")
        print(check.__name__, "ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
