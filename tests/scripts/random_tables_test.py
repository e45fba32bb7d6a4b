"""Tables drawn at random, in every form that people write them: each is read value by value as it was written, or, where
one place is spoilt, refused with one line that names the place. The tests take few; by hand, with RIDGELINE, BUILD_DIR
and SOURCE_DIR set:
    tests/scripts/random_tables_test.py --count 2000 --seed 1"""

import argparse
import collections
import gzip
import json
import math
import random
import sys
import time

sys.dont_write_bytecode = True
import tool

MISSING = ("", "NA", "N/A", "nan", "NaN", "null", "None", "?")
WORDS = ("red", "green", "dark blue", "a,b", "semi;colon", "pipe|d", 'quo"ted', "h\u00e9", "\u65e5\u672c", "yes", "no",
         "multi\nline", "tab\tbed", "'single'", "x" * 300)


class Table:
    def __init__(self, draw):
        self.draw = draw
        self.separator = draw.choice(",,,;\t|")
        self.end = draw.choice(("\n", "\n", "\r\n"))
        self.samples = draw.choice((3, 17, 60, 400))
        self.names = [f"column {i}" if draw.random() < 0.3 else f"c{i}" for i in range(draw.randrange(2, 8))]
        self.kinds = ["number", *(draw.choice(("number", "whole", "category")) for _ in self.names[1:])]
        self.missing = draw.choice((0, 0, 0.05, 0.3))
        self.columns = [self.column(kind) for kind in self.kinds]

    def column(self, kind):
        words = self.draw.sample(WORDS, self.draw.randrange(2, 6))
        cells = []
        for i in range(self.samples):
            # The first lines have no gap: a column without a value has no kind.
            if i > 2 and self.draw.random() < self.missing:
                cells.append(None)
            elif kind == "category":
                cells.append(words[i] if i < 2 else self.draw.choice(words))
            elif kind == "whole":
                cells.append(self.draw.randrange(-1000, 1000))
            else:
                cells.append(self.draw.choice((1, -1)) * self.draw.random() * 10.0 ** self.draw.randrange(-8, 9))
        return cells

    def cell(self, value):
        if value is None:
            return self.draw.choice(MISSING)
        if isinstance(value, str):
            quote = any(c in value for c in self.separator + '"\n\r') or self.draw.random() < 0.2
            return '"' + value.replace('"', '""') + '"' if quote else value
        if isinstance(value, int):
            return self.draw.choice((str(value), f"{value}.0", f"{value}e0"))
        return self.draw.choice((repr(value), f"{value:.17e}", f"{value:+.17g}"))

    def lines(self):
        yield self.separator.join(self.names)
        for row in zip(*self.columns):
            yield self.separator.join(map(self.cell, row))

    def write(self, path, lines):
        text = self.end.join(lines) + (self.end if self.draw.random() < 0.8 else "")
        data = (b"\xef\xbb\xbf" if self.draw.random() < 0.2 else b"") + text.encode()
        path.write_bytes(gzip.compress(data) if self.draw.random() < 0.3 else data)

    def faults(self, described):
        """How a description differs from the table that was written."""
        part = described["parts"][0]
        if part["samples"] != self.samples or [f["name"] for f in part["fields"]] != self.names:
            yield f"{part['samples']} samples of {[f['name'] for f in part['fields']]}"
            return
        for field, kind, cells in zip(part["fields"], self.kinds, self.columns):
            there = [cell for cell in cells if cell is not None]
            if field["missing"] != len(cells) - len(there):
                yield f"{field['name']}: {field['missing']} missing, not {len(cells) - len(there)}"
            if kind == "category":
                counts = collections.Counter(there)
                got = dict(zip(field.get("categories", ()), field.get("counts", ())))
                if got != counts:
                    yield f"{field['name']}: {got}, not {dict(counts)}"
            elif (field["least"], field["most"]) != (min(there), max(there)):
                yield f"{field['name']}: {field['least']} to {field['most']}, not {min(there)} to {max(there)}"
            elif not math.isclose(field["mean"], math.fsum(there) / len(there), rel_tol=1e-9,
                                  abs_tol=1e-12 * max(map(abs, there))):
                yield f"{field['name']}: mean {field['mean']}, not {math.fsum(there) / len(there)}"


def spoil(table, draw, lines):
    """Damages one place, and returns what the error must say about it."""
    at = draw.randrange(1, len(lines))
    # Lines before it may hold line breaks in quotes, which count.
    line = 1 + sum(each.count("\n") + 1 for each in lines[:at])
    cells = [[table.cell(cells[at - 1]) for cells in table.columns]]
    how = draw.choice(("ragged", "word", "NUL", "not UTF-8", "quote"))
    if how == "ragged":
        lines[at] = table.separator.join([*cells[0], "7"])
        return [f"line {line}", "columns"]
    if how == "word" and table.samples >= 60:
        cells[0][0] = "word"
        lines[at] = table.separator.join(cells[0])
        return ["is not a number", "column 1"]
    if how == "NUL":
        lines[at] = "\0" + lines[at]
        return ["binary file"]
    if how == "not UTF-8":
        lines[at] = "\udcff" + lines[at]
        return ["UTF-8", f"line {line}", "iconv"]
    lines[-1] = '"' + "never closed"
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    given.seed = given.seed or int(time.time())
    print(f"seed {given.seed}")
    folder, tried, bad = tool.Folder(samples=4), collections.Counter(), 0
    for number in range(given.count):
        draw = random.Random(f"{given.seed} {number}")
        table = Table(draw)
        path = folder / f"table{number % 7}.csv"
        path.unlink(missing_ok=True)
        lines = list(table.lines())
        said = spoil(table, draw, lines) if draw.random() < 0.4 else None
        if said is None:
            table.write(path, lines)
            tried["read"] += 1
        else:
            text = table.end.join(lines).encode(errors="surrogateescape")
            path.write_bytes(text)
            tried["spoilt"] += 1
        try:
            done = tool.run("data", "describe", path, "--json", "-", code=0 if said is None else 3)
            faults = (list(table.faults(json.loads(done.stdout))) if said is None
                      else [f"does not say {part!r}: {done.stderr}" for part in said if part not in done.stderr])
        except AssertionError as error:
            faults = [str(error)]
        if faults:
            bad += 1
            keep = path.read_bytes()
            print(f"table {number} of seed {given.seed}: {table.kinds}, {table.samples} samples, separator "
                  f"{table.separator!r}\n  " + "\n  ".join(faults) + f"\n  {keep[:300]!r}")
    folder.close()
    print(", ".join(f"{count} {what}" for what, count in tried.items()))
    sys.exit(bad != 0)


main()
