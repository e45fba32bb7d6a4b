"""The history of a call of `Model.fit`."""

from __future__ import annotations

from collections.abc import Iterator

_COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd")


class History:
    """The history of a call of `fit`, epoch by epoch.

    history["loss"] is a list with a number an epoch; `history.epochs` a list of dicts. dict(history) has all lists by
    name, and len(history) is the number of epochs. `steps`, `seconds`, `samples_per_second` and `limit` (the fraction of
    what this machine can do, or None) are of the whole call. A notebook shows it as curves and a table.
    """

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []
        self.steps = 0
        self.seconds = 0.0
        self.samples_per_second = 0.0
        self.limit: float | None = None

    def __getitem__(self, name: str) -> list[float]:
        if name not in self:
            raise KeyError(f"history: got {name!r}, expected one of {', '.join(self.keys())}")
        return [epoch[name] for epoch in self.epochs if name in epoch]

    def __len__(self) -> int:
        return len(self.epochs)

    def keys(self) -> list[str]:
        """The names of the series: epoch, loss, lr, seconds, and those that fit the model and its validation."""
        return list(dict.fromkeys(key for epoch in self.epochs for key in epoch))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    @property
    def history(self) -> dict[str, list[float]]:
        """All series by name, as Keras has them."""
        return {key: self[key] for key in self.keys()}

    def __repr__(self) -> str:
        if not self.epochs:
            return "History(no epochs)"
        last = ", ".join(f"{key} {value:.4g}" for key, value in self.epochs[-1].items() if key != "epoch")
        return f"History({len(self.epochs)} epochs, {self.steps} steps; last: {last})"

    def _repr_html_(self) -> str:
        from html import escape

        if not self.epochs:
            return "<p>no epochs</p>"
        shown = [name for name in self.epochs[-1] if name not in ("epoch", "seconds")]
        head = "".join(f"<th>{escape(name)}</th>" for name in ["epoch", *shown])
        rows = "".join("<tr>" + f"<td>{int(epoch['epoch'])}</td>" +
                       "".join(f"<td>{epoch[name]:.4g}</td>" if name in epoch else "<td></td>" for name in shown) +
                       "</tr>" for epoch in self.epochs[-10:])
        rate = f"{self.samples_per_second:,.0f} samples/s" if self.samples_per_second else ""
        limit = f", {100 * self.limit:.0f} % of this machine's limit" if self.limit else ""
        curves = "".join(_curve(title, {name: self[name] for name in names if name in shown})
                         for title, names in (("loss", ("loss", "val_loss")), ("accuracy", ("accuracy", "val_accuracy")))
                         if any(name in shown for name in names))
        return (f"<div><p>{len(self.epochs)} epochs, {self.steps} steps, {self.seconds:.2f} s {rate}{limit}</p>"
                f"{curves}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>")


def _curve(title: str, series: dict[str, list[float]], width: int = 300, height: int = 150) -> str:
    """Draws lines over the epochs as SVG, without values that are not finite."""
    from html import escape

    values = [value for each in series.values() for value in each if abs(value) < float("inf")]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    lines: list[str] = []
    for colour, (name, each) in zip(_COLOURS, series.items(), strict=False):
        step = (width - 60) / max(1, len(each) - 1)
        points = " ".join(f"{50 + i * step:.1f},{height - 20 - (height - 40) * (value - low) / span:.1f}"
                          for i, value in enumerate(each) if abs(value) < float("inf"))
        at = 12 * (len(lines) + 1)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{width - 10}" y="{at}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return (f'<svg width="{width}" height="{height}" font-size="10" role="img" aria-label="{escape(title)}">'
            f'<g fill="currentColor"><text x="2" y="24">{high:.3g}</text><text x="2" y="{height - 20}">{low:.3g}</text>'
            f'</g><path d="M46 16V{height - 16}H{width - 6}" stroke="currentColor" fill="none"/>{"".join(lines)}</svg>')
