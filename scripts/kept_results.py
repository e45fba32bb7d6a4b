"""Reads files of bench/results, also those of earlier versions, with today's keys and kernel names.

Earlier versions called a kernel a row, so that their files hold "row" and "rows" where today's hold "kernel" and
"kernels", and some kernels had other names (ridgeline/plan/kernel_aliases.inc). A table's own list of lines is called
"rows" then as now.
"""
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PLANNED = "plan: "  # before the name of a kernel that the planner took

KEYS = {"row_library": "kernel_library", "rows_us": "kernels_us", "ranks_rows_apart": "ranks_kernels_apart",
        "rows_timed_in_launches": "kernels_timed_in_launches", "rows_last_batch": "kernels_last_batch",
        "rows_evaluation": "kernels_evaluation", "rows_evaluation_last_batch": "kernels_evaluation_last_batch"}


def read_aliases():
    """[(pattern of a former name, today's name as re.sub takes it)], in the order of the file."""
    text = (ROOT / "ridgeline/plan/kernel_aliases.inc").read_text()
    pairs = re.findall(r'^ALIAS\("([^"]+)", "([^"]+)"\)', text, flags=re.M)
    result = []
    for former, now in pairs:
        pattern = "(.*?)".join(map(re.escape, former.split("*")))
        parts = now.split("*")
        template = "".join(part + (f"\\g<{i + 1}>" if i + 1 < len(parts) else "") for i, part in enumerate(parts))
        result.append((re.compile(pattern), template))
    return result


ALIASES = read_aliases()


def kernel_name(name):
    """Today's name of a kernel; any other text is unchanged."""
    begin = PLANNED if name.startswith(PLANNED) else ""
    for pattern, now in ALIASES:
        found = pattern.fullmatch(name, len(begin))
        if found:
            return begin + found.expand(now)
    return name


def is_list_of_kernels(value):
    """Whether a former "rows" was a plan's kernels, a profile's or their number, and not the lines of a table."""
    if isinstance(value, list):
        return all(isinstance(each, str) or (isinstance(each, dict) and "row" in each) for each in value)
    return isinstance(value, int)


def is_names(value):
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def names_of(value):
    """Renames kernels: one, a list, or [name, us] of each."""
    if isinstance(value, str):
        return kernel_name(value)
    if isinstance(value, list):
        return [names_of(each) for each in value]
    return current(value)


def current(value):
    """The same figures as today's version would have written them."""
    if isinstance(value, list):
        return [current(each) for each in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, each in value.items():
        if key == "kernels" and "row" in value:  # what ran on the GPU for this row
            launches = [{"count" if k == "launches" else k: v for k, v in launch.items()}
                        if isinstance(launch, dict) else launch for launch in each]
            result["launches"] = launches
        elif key == "row":
            result["kernel"] = names_of(each)
        elif key == "rows" and is_list_of_kernels(each):
            result["kernels"] = names_of(each)
        elif key in KEYS:
            result[KEYS[key]] = names_of(each)
        elif key in ("kernel", "kernel_library") or (key.startswith("kernels") and is_names(each)):
            result[key] = names_of(each)
        elif key == "heaviest" and is_names(each):
            result[key] = names_of(each)
        elif key == "heaviest":
            result[key] = re.sub(r"`([^`]+)`", lambda m: f"`{kernel_name(m[1])}`", each)
        elif key in ("rung", "what") and "rung" in value:
            text = each.replace("more rows a step", "more samples a step")
            result[key] = re.sub(r"(?<!weight )\brow(s?)\b", r"kernel\1", text)  # rows of weights are rows
        else:
            result[key] = current(each)
    return result


def read(path):
    """A .json file's figures, or the list of a .jsonl file's lines."""
    text = Path(path).read_text()
    if Path(path).suffix == ".jsonl":
        return [current(json.loads(line)) for line in text.splitlines() if line]
    return current(json.loads(text))
