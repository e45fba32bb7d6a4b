"""Texts through `infer`: every format and way of reading gives the labels that eval counts; an error
names the line that cannot be read, and the results before it are kept."""

import gzip
import json
import random
import subprocess
import sys

import mpi
import tool

WORDS = {0: ["football", "match", "goal"], 1: ["shares", "market", "bank"], 2: ["\"orbit\"", "moon", "star"]}
CONFIG = """
[data]
name = "{data}"
[data.text]
columns = ["2", "3"]
label = "1"
length = 40
classes = ["Sports", "Business", "Science"]
first_label = 1
[model]
layers = [
  {{ type = "onehot_conv1d", symbols = 70, out = 8, kernel = 3 }},
  {{ type = "relu" }},
  {{ type = "maxpool1d", kernel = 3 }},
  {{ type = "flatten" }},
  {{ type = "linear", out = 3 }},
]
[train]
batch = 16
epochs = 8
seed = 3
optimizer = {{ type = "adam", lr = 0.01 }}
[run]
device = "cpu"
tune = false
"""
ALIKE = ("--device", "cpu", "--no-tune", "--threads", "1", "--batch", "7")


def texts(count, seed):
    draw = random.Random(seed)
    found = []
    for i in range(count):
        label = draw.randrange(3)
        title = " ".join(draw.choices(WORDS[label], k=2))
        body = draw.choice(["a, b", "two\nlines", "caf\u00e9 \u4e16", ""]) + " " + draw.choice(WORDS[label])
        found.append((label, title, body))
    return found


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def csv(rows):
    return "".join(f"{label + 1},{quoted(title)},{quoted(body)}\r\n" for label, title, body in rows)


def labels(path):
    return [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]


def mpirun(ranks, *arguments):
    process = mpi.launch(ranks, *arguments)
    code, _, out, err = mpi.end(process, 120)
    return subprocess.CompletedProcess(process.args, code, out, err)


def test_formats(folder, model, rows):
    want = folder / "want.csv"
    tool.run("infer", model, "--input", folder / "set/test.csv", "--output", want, *ALIKE)
    right = sum(got == row[0] for got, row in zip(labels(want), rows))
    result = folder / "eval.json"
    tool.run("eval", model, "--json", result, "--device", "cpu", "--no-tune")
    assert right == json.loads(result.read_text())["correct"] and right > 0.8 * len(rows), right

    joined = [f"{title} {body}" for _, title, body in rows]
    lines = [text.replace("\n", " ") for text in joined]  # a line has none in it
    sources = {
        "packed.csv.gz": (gzip.compress(csv(rows).encode()), ()),
        "named.csv": (("label,title,body\n" + csv(rows)).encode(), ("--columns", "title,body")),
        "bare.jsonl": ("".join(json.dumps({"text": t}) + "\n\n" for t in joined).encode(), ()),
        "two.jsonl.gz": (gzip.compress("".join(json.dumps({"a": r[1], "b": r[2]}) + "\n"
                                               for r in rows).encode()), ("--columns", "a,b")),
    }
    for name, (data, flags) in sources.items():
        (folder / name).write_bytes(data)
        tool.run("infer", model, "--input", folder / name, "--output", folder / "got.csv", *ALIKE,
                 *flags)
        assert (folder / "got.csv").read_text() == want.read_text(), name
    (folder / "lines").write_text("\n".join(lines))
    tool.run("infer", model, "--input", folder / "lines", "--output", folder / "got.csv", *ALIKE,
             "--decoders", 3)
    same = sum(a == b for a, b in zip(labels(folder / "got.csv"), labels(want)))
    assert len(labels(folder / "got.csv")) == len(rows) and same > 0.95 * len(rows)


def test_ranks(folder, model):
    if mpi.missing():
        return
    want = (folder / "want.csv").read_text()
    for flags in ((), ("--transport", "scatter"), ("--sharded-input",)):
        for name, more in (("set/test.csv", ()), ("named.csv", ("--columns", "title,body")),
                           ("bare.jsonl", ())):
            done = mpirun(3, "infer", model, "--input", folder / name, "--output",
                          folder / "got.csv", *ALIKE, *flags, *more)
            assert done.returncode == 0, done.stderr
            assert (folder / "got.csv").read_text() == want, (flags, name)
    done = mpirun(2, "infer", model, "--input", folder / "packed.csv.gz", "--output",
                  folder / "got.csv", "--sharded-input", *ALIKE)
    assert done.returncode == 2 and "gzip" in done.stderr, done.stderr
    (folder / "tiny.txt").write_text("a\n")  # fewer bytes than ranks
    done = mpirun(3, "infer", model, "--input", folder / "tiny.txt", "--input-format", "lines",
                  "--output", folder / "got.csv", "--sharded-input", *ALIKE)
    assert done.returncode == 0 and len(labels(folder / "got.csv")) == 1, done.stderr
    bad = folder / "bad.csv"
    done = mpirun(3, "infer", model, "--input", bad, "--output", folder / "cut.csv", *ALIKE)
    assert done.returncode == 3 and "line 21: byte 0xff is not UTF-8" in done.stderr, done.stderr


def peak_memory(*arguments):
    """The peak memory of a run of the tool, in bytes."""
    code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = tool.command([sys.executable, "-c", code, tool.TOOL, *arguments],
                        env=tool.environment())
    return 1024 * int(done.stdout.split()[-1])


def test_memory(folder, model):
    """Twenty times the input takes no more memory."""
    if tool.sanitized():  # freed memory is kept there for a while
        return
    line = b"the quick brown fox of the market shares a football match " * 2 + b"\n"
    peaks = []
    for count in (20000, 400000):
        source = folder / "large.txt"
        source.write_bytes(line * count)
        peaks.append(peak_memory("infer", model, "--input", source, "--output",
                                 folder / "large.csv", "--device", "cpu", "--threads", "1",
                                 "--no-tune"))
        assert len(labels(folder / "large.csv")) == count
    assert peaks[1] - peaks[0] < 12e6, peaks  # the input has grown by 45 MB, the output by 15


def test_faults(folder, model):
    good = [f"1,a,row {i}\n".encode() for i in range(20)]
    bad = folder / "bad.csv"
    bad.write_bytes(b"".join(good) + b"1,b,\xff\n" + b"".join(good))
    said = tool.run("infer", model, "--input", bad, "--output", folder / "cut.csv", *ALIKE,
                    code=3).stderr
    assert "bad.csv: line 21: byte 0xff is not UTF-8" in said, said
    # 7 samples a chunk: those of the chunks before the bad one are kept.
    assert f"the first 14 results are in {folder / 'cut.csv.part'}" in said, said
    assert len(labels(folder / "cut.csv.part")) == 14 and not (folder / "cut.csv").exists()
    bad.write_bytes(b"".join(good) + b"1,b\n")
    assert "line 21: 2 columns" in tool.run("infer", model, "--input", bad, *ALIKE, code=3).stderr
    bad.write_bytes(b"".join(good) + b'1,"open,c\n' + b"".join(good))
    assert "never closed" in tool.run("infer", model, "--input", bad, *ALIKE, code=3).stderr
    assert "no column" in tool.run("infer", model, "--input", bad, "--columns", "x", *ALIKE,
                                   code=3).stderr
    tool.run("infer", model, "--input", bad, "--input-format", "xml", code=2)
    assert "is read as lines, which have none" in tool.run(
        "infer", model, "--input", bad, "--input-format", "lines", "--columns", "2", *ALIKE, code=2).stderr
    empty = folder / "empty.csv"
    empty.write_text("\n")
    assert tool.run("infer", model, "--input", empty, *ALIKE).stdout == "index,label,p0,p1,p2\n"
    bad.write_bytes(b"".join(good) + b"1,b,\xff\n")


def main():
    folder = tool.Folder(samples=16)
    try:
        (folder / "set").mkdir()
        train, test = texts(300, 1), texts(90, 2)
        (folder / "set/train.csv").write_bytes(csv(train).encode())
        (folder / "set/test.csv").write_bytes(csv(test).encode())
        folder.config.write_text(CONFIG.format(data=folder / "set"))
        model = folder / "run"
        tool.run("train", folder.config, "--quiet", "--out", model)
        test_formats(folder, model, test)
        test_faults(folder, model)
        test_memory(folder, model)
        test_ranks(folder, model)
    finally:
        folder.close()


main()
