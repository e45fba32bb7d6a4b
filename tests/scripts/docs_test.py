"""The links of the docs lead somewhere, the names of kernels in them are those of the table, and the page that follows
a step through the sources names files and functions that exist.

Names of GPU kernels are checked where the build has them, and those of AMX on CPUs that have it. In a name, `*` stands
for any text, [x] for a part that may be missing, and {a,b} for one of several."""

import re
import sys

sys.dont_write_bytecode = True
import tool

NAME = re.compile(r"`'?!?((?:cpu|cuda)\.[a-z][\w.,*\[\]{} ]*)'?`")


def pattern(name):
    """The regular expression of a name as the docs write it."""
    text = ""
    for part in re.findall(r"\[[^\]]*\]|\{[^}]*\}|\*|[^\[{*]+", name):
        if part == "*":
            text += r"[\w.]*"
        elif part[0] in "[{":
            choices = "|".join(re.escape(each.strip()) for each in part[1:-1].split(","))
            text += f"(?:{choices})" + ("?" if part[0] == "[" else "")
        else:
            text += re.escape(part)
    return re.compile(text)


def pages():
    return [tool.SOURCE / "README.md", tool.SOURCE / "CONTRIBUTING.md", tool.SOURCE / "CHANGELOG.md",
            *sorted((tool.SOURCE / "docs").rglob("*.md"))]


def headings(page):
    """The anchors of a page, as the sites that show it make them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


def broken_links():
    for page in pages():
        for path, anchor in re.findall(r"\]\(((?!https?:|mailto:)[^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
            there = page.parent / path if path else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in headings(there)):
                yield f"{page.relative_to(tool.SOURCE)}: {path}{'#' + anchor if anchor else ''}"


def unknown_names():
    listed = tool.run("info", "--list-kernels").stdout
    kernels = re.findall(r"^\| `((?:cpu|cuda)\.[^`]+)`", listed, re.M)
    backends = {name.split(".")[0] for name in kernels}
    assert "cpu" in backends, listed[:1000]
    # As in --kernels, `cpu.mlp` is every kernel whose name begins so; a longer name ends at a dot.
    seen = 0
    for page in pages():
        if page.name == "CHANGELOG.md":  # it has names of kernels that are gone
            continue
        for name in NAME.findall(page.read_text()):
            amx = ".amx" in name and not any(".amx" in kernel for kernel in kernels)
            if name.split(".")[0] not in backends or amx:
                continue
            seen += 1
            one = pattern(name.strip())
            rests = [kernel[found.end():] for kernel in kernels if (found := one.match(kernel))]
            if not any(name.count(".") == 1 or rest[:1] in ("", ".") for rest in rests):
                yield f"{page.relative_to(tool.SOURCE)}: {name}"
    assert seen > 50, f"only {seen} names found: has their form changed?"


def unknown_places():
    """Yields the files and functions of follow-a-step.md that are not in ridgeline/."""
    folder = tool.SOURCE / "ridgeline"
    files = [path for path in folder.rglob("*.*") if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
    text = "\n".join(path.read_text() for path in files)
    page = (tool.SOURCE / "docs" / "internals" / "follow-a-step.md").read_text()
    for name in re.findall(r"`((?:[\w.]+/)+\w+\.(?:h|cpp|cuh?))`", page):
        if not (folder / name).exists() and not any(path.as_posix().endswith(f"generate/{name}") for path in files):
            yield name
    for name in re.findall(r"`(?:\w+::)*(\w+)\([^`]*\)`", page):
        if not re.search(rf"\b{name}\b", text):
            yield f"{name}()"


faults = [f"leads nowhere: {link}" for link in broken_links()] + [f"no such kernel: {name}" for name in unknown_names()]
faults += [f"follow-a-step.md: not in the sources: {name}" for name in unknown_places()]
sys.exit("\n".join(faults) if faults else 0)
