"""`Plan`, `Profile` and `Limit`: what a training step consists of, what it takes, and what it could take at best."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join("<tr>" + "".join(f'<td style="text-align:{"right" if i else "left"}">{escape(cell)}</td>'
                                     for i, cell in enumerate(row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(f'<th>{escape(each)}</th>' for each in head)}</tr></thead><tbody>{cells}</tbody></table>"


def layer_table(input_shape: tuple[int, ...], layers: list[tuple[str, str, tuple[int, ...], int]]) -> str:
    """The text of `Model.summary`."""
    rows = [("layer", "output shape", "parameters"), ("input", str(input_shape), "")]
    rows += [(f"{path} {kind}", str(shape), f"{parameters:,}") for path, kind, shape, parameters in layers]
    rows += [("total", "", f"{sum(parameters for *_, parameters in layers):,}")]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}".rstrip() for row in rows)


def _amount(value: float, unit: str) -> str:
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


@dataclass(frozen=True)
class Limit:
    """The least time that a training step can take on this machine.

    `seconds` is the larger of `compute_seconds` (its arithmetic at the measured peak rate) and `memory_seconds`
    (the bytes that must cross memory at the measured rate); `bound` says which one that is.
    """

    seconds: float
    bound: str
    flops: float
    bytes: float
    compute_seconds: float
    memory_seconds: float
    flops_per_second: float
    bytes_per_second: float

    def fraction(self, seconds: float) -> float:
        """Returns the fraction of the limit that a step of this many seconds reaches; 1 is the limit itself."""
        return self.seconds / seconds if seconds > 0 else 0.0

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Limit:
        return cls(table["us"] / 1e6, table["bound"], table["flops"], table["bytes"], table["compute_us"] / 1e6,
                   table["memory_us"] / 1e6, table["flops_per_second"], table["bytes_per_second"])

    def __repr__(self) -> str:
        return (f"Limit({1e6 * self.seconds:.1f} us a step, {self.bound}-bound: {_amount(self.flops, 'FLOP')} in "
                f"{1e6 * self.compute_seconds:.1f} us at {_amount(self.flops_per_second, 'FLOP/s')}; "
                f"{_amount(self.bytes, 'B')} in {1e6 * self.memory_seconds:.1f} us at "
                f"{_amount(self.bytes_per_second, 'B/s')})")

    def _repr_html_(self) -> str:
        rows = [["arithmetic", _amount(self.flops, "FLOP"), _amount(self.flops_per_second, "FLOP/s"),
                 f"{1e6 * self.compute_seconds:.1f}"],
                ["memory", _amount(self.bytes, "B"), _amount(self.bytes_per_second, "B/s"),
                 f"{1e6 * self.memory_seconds:.1f}"]]
        return (f"<div><p>at least {1e6 * self.seconds:.1f} us a step: {escape(self.bound)}-bound</p>"
                f"{_table(['', 'amount', 'measured rate', 'us'], rows)}</div>")


class _Report:
    def __init__(self, text: str, document: str) -> None:
        self.text = text
        self.data: dict[str, Any] = json.loads(document)

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """A dict for each chosen kernel, in the order in which they run."""
        return list(self.data["kernels"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)


class Plan(_Report):
    """The kernels that a training step was planned to use, and why: `text` is what `ridgeline plan` prints.

    `kernels` are the chosen ones, `candidates` all that were considered, `memory` the bytes of the step, `limit`
    the least time that it can take (None where the machine's ceilings could not be measured); `data` has everything.
    """

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """A dict for each kernel that was considered: its time, or why it was refused."""
        return list(self.data["candidates"])

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes: `arena` in one block, `peak_live` at once, `sum` without reuse; `activations` by layer."""
        return dict(self.data["memory"])

    @property
    def limit(self) -> Limit | None:
        """The least time that the step can take."""
        return Limit._of(self.data["limit"]) if "limit" in self.data else None

    def _repr_html_(self) -> str:
        ops = self.data["ops"]
        rows = [[each["kernel"], " + ".join(op.split("(")[0].split(" ")[0] for op in ops[each["begin"]:each["end"]]),
                 f"{each['us']:.2f}" if each["us"] > 0 else ""] for each in self.kernels]
        memory = f"<p>{_amount(self.memory['arena'], 'B')} of memory for activations and workspace</p>"
        limit = self.limit._repr_html_() if self.limit else ""
        return f"<div>{_table(['kernel', 'ops', 'us alone'], rows)}{memory}{limit}</div>"


class Profile(_Report):
    """Where a training step spends its time: `text` is what `ridgeline profile` prints.

    `kernels` has time, arithmetic, bytes and the roof of each; `seconds` is the median of a whole step; `advice` are
    the lines on what to try next; `roofline` is an SVG picture (empty without ceilings); `data` has everything.
    """

    def __init__(self, text: str, document: str, roofline: str) -> None:
        super().__init__(text, document)
        self.roofline = roofline

    @property
    def seconds(self) -> float:
        """The median time of a whole step."""
        return float(self.data["us"]["median"]) / 1e6

    @property
    def advice(self) -> list[str]:
        """What to try next."""
        return list(self.data.get("advice", []))

    def _repr_html_(self) -> str:
        rows = [[each["kernel"], each["ops"], f"{each['us']['median']:.2f}", f"{100 * each['share']:.0f} %",
                 _amount(each["flops_per_second"], "FLOP/s"), _amount(each["bytes_per_second"], "B/s"),
                 f"{100 * each['fraction']:.0f} %" if "fraction" in each else ""] for each in self.kernels]
        head = ["kernel", "ops", "us", "share", "arithmetic", "memory", "of its roof"]
        advice = "".join(f"<li>{escape(line)}</li>" for line in self.advice)
        return (f"<div><p>{1e6 * self.seconds:.1f} us a step</p>{_table(head, rows)}{self.roofline}"
                f"<ul>{advice}</ul></div>")
