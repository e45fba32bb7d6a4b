"""The pictures of docs/founding.md, from bench/results/founding-{1..5}.json. The picture of a part that was not run is
not changed."""
from founding_tables import figures, multiples

COLOURS = ["#2f6fde", "#d9541e", "#2a9d4a", "#8a4fc4", "#b58900", "#6b7280"]


def first_of(work, name):
    """Figures of a GPU, or otherwise of a CPU."""
    return figures(work, f"{name}-cuda") or figures(work, f"{name}-cpu")


def studies(chart):
    """Test accuracy over each setting, settings as shares of their largest value."""
    series = []
    for name, said in (("hidden", "hidden units"), ("rate", "learning rate"), ("batch", "batch"), ("epochs", "epochs")):
        found = first_of(4, name)
        if not found:
            continue
        most = max(float(line["value"]) for line in found["lines"])
        series.append((f"{said}, 1 = {most:g}", [(float(line["value"]) / most, 100 * line["accuracy"]["mean"])
                                                 for line in found["lines"]], False))
    if not series:
        return None
    return chart("Test accuracy over each studied setting", "setting, as a share of its largest value", "%", series,
                 log_y=False)


def long_runs(chart):
    runs = {run["units"]: run for device in ("cpu", "cuda") for run in figures(4, f"long-{device}") or []}
    series = [(f"{units} units", [(epoch, loss) for epoch, loss in zip(run["epochs"], run["loss"])], False)
              for units, run in sorted(runs.items())]
    return chart("Two hundred epochs: loss on the test set", "epoch", "loss", series, log_x=False,
                 x_ticks=[1, 50, 100, 150, 200]) if series else None


def products(chart):
    """TFLOP/s over the batch in steps of 8."""
    lines = first_of(5, "products")
    if not lines:
        return None
    series = []
    for precision in dict.fromkeys(line["precision"] for line in lines):
        best = multiples([line for line in lines if (line["precision"], line["op"]) == (precision, "TN")])[2]
        series.append((f"{precision}, TN", sorted(best.items()), False))
    extent = lines[0]["m"]
    return chart(f"{extent} x {extent} times the batch, in steps of 8", "batch", "TFLOP/s", series, log_x=False,
                 x_ticks=[32, 64, 96, 128, 160, 192, 224, 256])


SPANS = (("memory", "start", "memory_ready", 5), ("engine", "memory_ready", "engine_ready", 3),
         ("computing", "compute_start", "compute_end", 0), ("results", "compute_end", "results_out", 1))


def ranks(style, width=720):
    """One lane per rank: start-up, computing, results."""
    found = figures(1, "latency-cpu")
    if not found:
        return None
    lanes = [(rank, device) for rank in found["ranks"] for device in rank["devices"]]
    end = max(rank.get("results_out") or 0 for rank, _ in lanes) or 1
    left, top, step = 70, 44, 34
    height = top + step * len(lanes) + 60
    at = lambda seconds: left + (width - left - 20) * seconds / end
    title = "Four ranks over time, seconds from the root's start"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><title>{title}</title>'
           f'<style>{style}</style><text x="{left}" y="22" style="font-size:15px">{title}</text>']
    for i, (rank, device) in enumerate(lanes):
        y = top + step * i
        out.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">rank {rank["rank"]}</text>')
        times = rank | device
        for name, begin, last, colour in SPANS:
            if times.get(begin) is None or times.get(last) is None or times[last] <= times[begin]:
                continue
            out.append(f'<rect x="{at(times[begin]):.1f}" y="{y}" width="{at(times[last]) - at(times[begin]):.1f}" '
                       f'height="{step - 8}" fill="{COLOURS[colour]}" opacity="0.85"><title>{name}: '
                       f'{times[begin]:.3f} to {times[last]:.3f} s</title></rect>')
    foot = top + step * len(lanes)
    for tick in range(0, int(end) + 1):
        out.append(f'<line class="axis" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{foot}" y2="{foot + 4}"/>'
                   f'<text x="{at(tick):.1f}" y="{foot + 17}" text-anchor="middle">{tick}</text>')
    for i, (name, _, _, colour) in enumerate(SPANS):
        out.append(f'<rect x="{left + 130 * i}" y="{foot + 32}" width="12" height="12" fill="{COLOURS[colour]}"/>'
                   f'<text x="{left + 130 * i + 18}" y="{foot + 42}">{name}</text>')
    return "".join(out) + "</svg>\n"


def roofline(chart):
    """The founding formula over the arithmetic for each byte between ranks, and the measured step under it."""
    found = (figures(4, "ranks-cpu") or {}).get("profile", {})
    if "ceilings" not in found or "cost" not in found:
        return None
    peak, network = found["ceilings"]["flops"], found["ranks"]["bandwidth"]
    host = found["ceilings"]["host_bandwidth"]
    flops = sum(each["flops"] for each in found["cost"]["passes"].values())
    at = flops / found["ranks"]["bytes"]
    reached = 1e6 * flops / found["us"]["median"]
    places = [10 ** (power / 8) for power in range(0, 49)]
    formula = lambda ai: ai / (ai / peak + (1 / host if host > 0 else 0) + 1 / network)
    series = [("arithmetic", [(ai, peak) for ai in places], True),
              ("network", [(ai, ai * network) for ai in places if ai * network < 3 * peak], True),
              ("both, one after the other", [(ai, formula(ai)) for ai in places], False),
              ("a step of one rank of two", [(at, reached)], False)]
    if host > 0:
        series.insert(2, ("PCIe", [(ai, ai * host) for ai in places if ai * host < 3 * peak], True))
    return chart("784-512-10, batch 3000, two ranks: what travels as a slope", "FLOP a byte that travels", "FLOP/s", series)


def drawings(chart, style):
    return [("founding-studies", lambda: studies(chart)), ("founding-long", lambda: long_runs(chart)),
            ("founding-products", lambda: products(chart)), ("founding-ranks", lambda: ranks(style)),
            ("founding-roofline", lambda: roofline(chart))]
