"""The tables of docs/founding.md, from bench/results/founding-{1..5}.json: each founding figure beside ours, with the
file and commit of ours. A part that was not run says so."""
import json
import statistics

from kept_results import RESULTS, current

NOT_RUN = "not run"
BUSY = 0.5  # load per core above which CPU times are marked as busy


def record(work):
    return json.loads((RESULTS / "founding-record.json").read_text())[str(work)]


def part_of(work, name):
    """A part's entry with its figures; None when it was never run."""
    path = RESULTS / f"founding-{work}.json"
    if not path.exists():
        return None
    return current(json.loads(path.read_text()))["parts"].get(name)


def figures(work, name, otherwise=None):
    """A part's figures, or those of an earlier file of bench/results, which has them under other names."""
    entry = part_of(work, name)
    if entry:
        return entry["figures"]
    path = RESULTS / otherwise if otherwise else None
    return current(json.loads(path.read_text())) if path and path.exists() else None


def is_busy(entry):
    return entry["load_before"] > BUSY * entry.get("machine_cores", entry["cores"])


def source(work, name, otherwise=None, timed=True):
    """The sentence that says where figures come from."""
    entry = part_of(work, name)
    if entry:
        text = (f"`bench/results/founding-{work}.json`, part `{name}`: {entry['device']}, commit "
                f"`{entry['commit'][:10]}`, {entry['date']}.")
        if timed and is_busy(entry) and name.endswith("-cpu"):
            text += (f" Other processes used the machine (load {entry['load_before']} on {entry.get('machine_cores', entry['cores'])} cores), "
                     "so these times are longer than on a quiet one.")
        return text
    if otherwise and (RESULTS / otherwise).exists():
        kept = json.loads((RESULTS / otherwise).read_text())
        stamp = kept if isinstance(kept, dict) else {}
        commit = f", commit `{stamp['commit'][:10]}`, {stamp['date']}" if "commit" in stamp else ""
        return f"`bench/results/{otherwise}`: an H200{commit}."
    return f"Part `{name}` of `scripts/founding {work}`: {NOT_RUN}."


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def rate(value):
    if value is None:
        return NOT_RUN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rungs(work, network, device):
    found = figures(work, f"ladder-{device}", f"h200-ladder-{network}.json" if device == "cuda" else None)
    return {rung["rung"]: rung for rung in found["rungs"]} if found else {}


def rung_rate(rung):
    if rung is None:
        return NOT_RUN
    return rate(1e6 / rung["us_per_input"]) if "us_per_input" in rung else NOT_RUN


def history_table():
    """Work 1: every step of the history beside its rerun here."""
    ladders = {device: rungs(1, "charcnn", device) for device in ("cpu", "cuda")}
    moved = figures(1, "transports-cpu")
    rows = []
    for step in record(1)["history"]:
        founding = rate(step["inputs_per_second"]) if "inputs_per_second" in step else "-"
        if "transport" in step:
            rates = moved["inputs_per_second"][step["transport"]] if moved else None
            ours = [f"{rate(statistics.median(rates))} (4 ranks)" if rates else NOT_RUN, "-"]
        else:
            ours = [rung_rate(ladders[device].get(step[device])) if device in step else "-" for device in ("cpu", "cuda")]
        rows.append([step["step"], founding, *ours])
    table = markdown(["step of the history", "founding, inputs/s", "CPU here", "H200"], rows)
    return "\n\n".join([table, "CPU: " + source(1, "ladder-cpu"), "Transports: " + source(1, "transports-cpu"),
                        "GPU: " + source(1, "ladder-cuda", "h200-ladder-charcnn.json")])


def ladder_table(work, network):
    """Every rung that ran, on both devices."""
    texts = []
    for device, otherwise in (("cuda", f"h200-ladder-{network}.json"), ("cpu", None)):
        rows = []
        for name, rung in rungs(work, network, device).items():
            ran = "us_per_input" in rung
            founding = rate(1e6 / rung["founding_us"]) if rung.get("founding_us") else "-"
            rows.append([name, rung["what"], rung["batch"], rung["ranks"], rung["precision"], founding, rung_rate(rung),
                         f"{rung['total_gain']:,.1f}x" if ran and "total_gain" in rung else "-"])
        if rows:
            texts.append(markdown(["rung", "what it adds", "batch", "ranks", "precision", "founding, inputs/s",
                                   "ours, inputs/s", "in all"], rows))
        texts.append(source(work, f"ladder-{device}", otherwise))
    return "\n\n".join(texts)


def latency_table():
    """Work 1: when each rank did what."""
    found = figures(1, "latency-cpu")
    if not found:
        return source(1, "latency-cpu")
    return "```\n" + found["text"].strip() + "\n```\n\n" + source(1, "latency-cpu")


def file_table():
    found = figures(1, "file-cuda")
    if found:
        rows = [[f"`--device {devices}`", " and ".join(rate(each) for each in rates)]
                for devices, rates in found["inputs_per_second"].items()]
    else:
        kept = json.loads((RESULTS / "h200-charcnn.json").read_text())["infer"]
        as_list = lambda value: value if isinstance(value, list) else [value]
        rows = [[f"`--device {devices}`", " and ".join(rate(each) for each in as_list(kept[devices]))]
                for devices in ("cuda:0", "cuda:0,0")]
    return markdown(["CSV file to labels, bf16", "inputs/s"], rows) + "\n\n" + source(1, "file-cuda", "h200-charcnn.json")


def convolutions(line):
    return [op for op in line["ops"] if op["op"].startswith("conv2d")]


def milliseconds(ops, key="us"):
    return " + ".join(f"{op[key] / 1000:.3g}" if key in op else "-" for op in ops)


def conv_table():
    """Work 2: the two convolutions at 100, 1,000 and 10,000 images."""
    ops = figures(2, "ops-cuda")
    where = source(2, "ops-cuda")
    if not ops:
        path = RESULTS / "h200-lenet72-ops.jsonl"
        ops = [json.loads(line) for line in path.read_text().splitlines() if line]
        where = "`bench/results/h200-lenet72-ops.jsonl`: an H200, each op by the fastest kernel that takes it alone."
    rows = []
    for images in (100, 1000, 10000):
        founding = [" + ".join(map(str, kernel["ms"][str(images)])) if str(images) in kernel["ms"] else "-"
                    for kernel in record(2)["kernels"]]
        ours = [next((milliseconds(convolutions(line)) for line in ops
                      if (line["batch"], line["precision"]) == (images, precision)), NOT_RUN)
                for precision in ("fp32", "tf32", "bf16")]
        rows.append([f"{images:,}", *founding, *ours])
    head = ["images"] + [f"founding: {kernel['step']}" for kernel in record(2)["kernels"]]
    return markdown([*head, "H200 fp32", "tf32", "bf16"], rows) + "\n\nMilliseconds, first + second layer. " + where


def conv_levels_table():
    """Work 2: the three founding kernels, which differ by one step each, on this GPU."""
    levels = figures(2, "levels-cuda") or {}
    rows = []
    for images in (100, 1000, 10000):
        row = [f"{images:,}"]
        for kernel, level in zip(record(2)["kernels"], ("constant_mask", "register_sums", "unrolled_7x7")):
            row.append(" + ".join(map(str, kernel["ms"][str(images)])) if str(images) in kernel["ms"] else "-")
            row.append(next((milliseconds(convolutions(line)) for line in levels.get(level, [])
                             if line["batch"] == images), NOT_RUN))
        rows.append(row)
    head = ["images"] + [text for kernel in record(2)["kernels"] for text in (f"founding: {kernel['step']}", "the same here")]
    return markdown(head, rows) + "\n\nMilliseconds, first + second layer, fp32. " + source(2, "levels-cuda")


def product_levels_table():
    """Work 3: the levels of a product, over widths."""
    found = figures(3, "levels-cuda") or {}
    names = [rung["name"] for rung in next(iter(found.values()))["rungs"]] if found else []
    rows = [[f"{int(width):,}"] + [NOT_RUN if rung.get("skipped") else f"{rung['us_per_step']:.1f}" for rung in ladder["rungs"]]
            for width, ladder in found.items()]
    return (markdown(["h", *names], rows) + "\n\nMicroseconds a training step of 784-h-h-h-10 at batch 32, fp16 with fp32 "
            "masters. " if found else "") + source(3, "levels-cuda")


def conv_cpu_table():
    found = {line["batch"]: line for line in figures(2, "ops-cpu") or []}
    rows = []
    for images in (100, 1000, 10000):
        line = found.get(images)
        founding = " + ".join(map(str, record(2)["cpu_seconds"])) if images == 10000 else "-"
        ours = [" + ".join(f"{min(op[key] for key in ('us', 'us_library') if key in op) / 1e6:.3g}"
                           for op in convolutions(line)), f"{line['us_median'] / 1e6:.3g}"] if line else [NOT_RUN] * 2
        rows.append([f"{images:,}", founding, *ours])
    return (markdown(["images", "founding, s", "CPU here, s", "whole net, s"], rows) + "\n\n" +
            source(2, "ops-cpu"))


def widths_table():
    """Work 3: a step over the width."""
    kept = figures(3, "widths-cuda", "h200-mlp-widths.json") or []
    on_cpu = figures(3, "widths-cpu") or []
    rows = []
    for width in record(3)["widths"]:
        net = f"784-{width}-{width}-{width}-10"
        cells = []
        for precision in ("fp16", "bf16"):
            own = [line for line in kept if (line["network"], line["precision"], line["weights"], line["batch"]) ==
                   (net, precision, precision, 32)]
            cells.append(f"{own[-1]['us_median']:.1f}" if own else NOT_RUN)
        own = [line for line in on_cpu if line["network"] == net]
        rows.append([width, "-", *cells, f"{own[-1]['us_median']:.0f}" if own else NOT_RUN])
    table = markdown(["h", "founding", "H200 fp16", "H200 bf16", "CPU here fp32"], rows)
    return "\n\n".join([table + "\n\nMicroseconds a training step of 784-h-h-h-10 at batch 32.",
                        "GPU: " + source(3, "widths-cuda", "h200-mlp-widths.json"), "CPU: " + source(3, "widths-cpu")])


def study_table():
    """Work 4: mean and deviation over ten seeds."""
    texts = []
    for name in ("hidden", "rate", "batch", "epochs"):
        for device in ("cuda", "cpu"):
            found = figures(4, f"{name}-{device}")
            if not found:
                continue
            spread = lambda each, scale, digits: (f"{scale * each['mean']:.{digits}f}" + (
                f" ± {scale * each['deviation']:.{digits}f}" if each["deviation"] is not None else ""))
            rows = [[line["value"], line["repeats"], spread(line["accuracy"], 100, 2), spread(line["loss"], 1, 4),
                     spread(line["train_loss"], 1, 4)] for line in found["lines"]]
            units = f", {found['units']} units" if found["units"] else ""
            epochs = f", {found['epochs']} epochs" if found["epochs"] else ""
            texts.append(f"**`{found['key']}`**{units}{epochs}.\n\n" +
                         markdown([found["key"], "seeds", "accuracy, %", "test loss", "training loss"], rows))
            texts.append(source(4, f"{name}-{device}", timed=False))
            break
        else:
            texts.append(f"**{name}**: {NOT_RUN}.")
    return "\n\n".join(texts)


def long_table():
    rows, where = [], []
    for device in ("cuda", "cpu"):
        found = figures(4, f"long-{device}")
        if found:
            where.append(source(4, f"long-{device}", timed=False))
        for run in found or []:
            at = {round(epoch): i for i, epoch in enumerate(run["epochs"])}
            cells = [f"{100 * run['accuracy'][at[epoch]]:.2f} / {run['loss'][at[epoch]]:.4f}" if epoch in at else "-"
                     for epoch in (1, 10, 50, 100, 200)]
            rows.append([run["units"], "CPU" if device == "cpu" else "GPU", *cells])
    ran = {row[0] for row in rows}
    rows += [[units, "-", *[NOT_RUN] * 5] for units in record(4)["long_units"] if units not in ran]
    table = markdown(["units", "on", "epoch 1", "10", "50", "100", "200"], rows)
    return "\n\n".join([table + "\n\nAccuracy in % / loss on the test set.", *where])


def verify_table():
    found = figures(4, "verify-cpu")
    if not found:
        return source(4, "verify-cpu")
    rows = []
    for run in found:
        for each in run["comparisons"]:
            worst = max(each["tensors"], key=lambda tensor: tensor["two_norm"] / tensor["bound"])
            rows.append([run["lr"], run["ranks"], each["what"], each["precision"], each["steps"],
                         f"{worst['two_norm']:.2e} ({worst['name']})", f"{worst['bound']:.2e}",
                         f"{worst['control']:.2e}", each["verdict"]])
    head = ["lr", "ranks", "compared", "precision", "steps", "2-norm, worst tensor", "bound", "control", "verdict"]
    return (markdown(head, rows) + "\n\nThe control is one run whose first weights are off by one rounding: what it "
            "drifts is what training itself amplifies. " + source(4, "verify-cpu", timed=False))


def ranks_table():
    found = figures(4, "ranks-cpu")
    if not found:
        return source(4, "ranks-cpu")
    measured = {int(count): statistics.median(us) for count, us in found["us_per_step"].items()}
    predicted = {point["ranks"]: point for point in found["predicted"]}
    rows = [[count, f"{us / 1000:.2f}", f"{measured[1] / us:.2f}x",
             f"{predicted[count]['step_us'] / 1000:.2f}", f"{predicted[1]['step_us'] / predicted[count]['step_us']:.2f}x",
             f"{predicted[1]['step_us'] / predicted[count]['best_step_us']:.2f}x"]
            for count, us in sorted(measured.items())]
    head = ["ranks", "ms per step", "speed-up", "predicted, ms", "predicted speed-up", "if all messages hide"]
    return (markdown(head, rows) + f"\n\n784-512-10 at batch 3000, one thread per rank; the measured network is "
            f"{found['network']}. " + source(4, "ranks-cpu"))


def cost_table():
    """Work 4: the step's passes, and how much of it is products."""
    found = figures(4, "ranks-cpu")
    profile = (found or {}).get("profile", {})
    if "cost" not in profile:
        return source(4, "ranks-cpu") if not found else f"Passes of the step: {NOT_RUN}."
    cost = profile["cost"]
    rows = [[name, f"{each['flops'] / 1e9:.3f}", f"{each['bytes'] / 1e6:.1f}"]
            for name, each in cost["passes"].items() if each["bytes"] > 0]
    flops = sum(each["flops"] for each in cost["passes"].values())
    rows.append(["products alone", f"{cost['product_flops'] / 1e9:.3f}", "-"])
    return (markdown(["part of a rank's step", "GFLOP", "MB, op by op"], rows) +
            f"\n\n{100 * cost['product_flops'] / flops:.1f} % of the arithmetic is matrix products. One rank of two, batch "
            "3000 over both. " + source(4, "ranks-cpu", timed=False))


def profile_table(work):
    """What a profile lists, by device; the lists that cover 90 % of the time."""
    texts = []
    for device in ("cuda", "cpu"):
        found = figures(work, f"profile-{device}")
        if not found:
            texts.append(source(work, f"profile-{device}"))
            continue
        rows = []
        for kernel in found["kernels"]:
            if kernel["kernel"] in found["heaviest"]:
                us = kernel["us"]
                cells = [f"{us[key]:.1f}" if key in us else "-" for key in ("total", "mean", "min", "max")]
                rows.append([f"`{kernel['kernel']}`", us.get("count", found["passes"]), *cells, f"{us['median']:.1f}",
                             f"{100 * kernel['share']:.0f} %"])
        texts.append(f"{found['subject']}, batch {found['batch']}, {found['precision']}: {found['us']['median']:.1f} us.\n\n" +
                     markdown(["kernel", "passes", "total us", "mean", "min", "max", "median", "share"], rows))
        for key, head in (("host_calls", "host call"), ("gpu_functions", "GPU function")):
            if found.get(key) and "mean_us" in found[key][0]:
                texts.append(markdown([head, "calls", "total us", "mean", "min", "max", "share"],
                                      [[f"`{each['name']}`", each["calls"], *(f"{each[k]:.1f}" for k in (
                                          "us", "mean_us", "min_us", "max_us")), f"{100 * each['share']:.0f} %"]
                                       for each in found[key]]))
        if found.get("copies"):
            texts.append(markdown(["copies", "count", "MB", "GB/s", "total us", "mean", "min", "max"],
                                  [[each["kind"], each["count"], f"{each['bytes'] / 1e6:.2f}",
                                    f"{each['bytes_per_second'] / 1e9:.2f}", *(f"{each[k]:.1f}" for k in (
                                        "us", "mean_us", "min_us", "max_us"))] for each in found["copies"]]))
        if found.get("explanation"):
            texts.append(" ".join(found["explanation"]))
        if "program" in found:
            used = found["program"]
            texts.append(f"The program took {used['elapsed_s']:.2f} s, {used['user_s']:.2f} s of them user and "
                         f"{used['system_s']:.2f} s system time, and {used['peak_bytes'] / 1e6:.0f} MB at its peak.")
        texts.append("Advice: " + " ".join(found["advice"]))
        texts.append(source(work, f"profile-{device}"))
    return "\n\n".join(texts)


def multiples(lines):
    """(rate over multiples of 32, over other multiples of 8): geometric means of the planned kernels."""
    best = {}
    for line in lines:
        best[line["n"]] = max(line["tflops"], best.get(line["n"], 0))
    on = [best[n] for n in best if n % 32 == 0 and n >= 32]
    off = [best[n] * (32 * round(n / 32) / n) for n in best if n % 32 != 0 and n > 32]
    return on, off, best


def products_table():
    """Work 5: the batch in steps of 8."""
    texts = []
    for device in ("cuda", "cpu"):
        lines = figures(5, f"products-{device}")
        if not lines:
            texts.append(source(5, f"products-{device}"))
            continue
        rows = []
        for precision in dict.fromkeys(line["precision"] for line in lines):
            for op in ("TN", "NN", "NT"):
                best = multiples([line for line in lines if (line["precision"], line["op"]) == (precision, op)])[2]
                gains = [best[n] / best[n - 8] for n in best if n % 32 == 0 and n - 8 in best]
                peak = max(best, key=best.get)
                rows.append([precision, op, f"{best[peak]:.3g} at {peak}",
                             f"{statistics.geometric_mean(gains):.2f}x" if gains else "-"])
        extent = lines[0]["m"]
        texts.append(markdown(["precision", "product", "best TFLOP/s at batch", "a multiple of 32 over 8 fewer"], rows))
        texts.append(f"{extent} x {extent} times the batch in steps of 8; 32 over 24 would be 1.33x, 256 over 248 1.03x, "
                     f"if the time were the same. " + source(5, f"products-{device}"))
    return "\n\n".join(texts)


TABLES = {
    "founding-1-history": history_table, "founding-1-ladder": lambda: ladder_table(1, "charcnn"),
    "founding-1-latency": latency_table, "founding-1-file": file_table, "founding-2-conv": conv_table, "founding-2-levels": conv_levels_table,
    "founding-3-levels": product_levels_table,
    "founding-2-cpu": conv_cpu_table, "founding-2-ladder": lambda: ladder_table(2, "lenet72"),
    "founding-3-ladder": lambda: ladder_table(3, "mlp"), "founding-3-widths": widths_table,
    "founding-4-studies": study_table, "founding-4-long": long_table, "founding-4-verify": verify_table,
    "founding-2-profile": lambda: profile_table(2), "founding-4-cost": cost_table,
    "founding-4-ranks": ranks_table, "founding-5-ladder": lambda: ladder_table(5, "rnn"),
    "founding-5-products": products_table,
}
