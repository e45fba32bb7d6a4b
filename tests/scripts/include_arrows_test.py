"""Every include in ridgeline/ points down the arrows of the architecture, and sub-folders form no cycle."""

import os
import pathlib
import re
import sys

# What each folder may include, beside itself.
BELOW = {
    "core": set(),
    "ops": {"core"},
    "plan": {"ops", "core"},
    "cpu": {"plan", "ops", "core"},
    "cuda": {"plan", "ops", "core"},
    "dist": {"plan", "ops", "core"},
    "nn": {"plan", "ops", "core"},
    "data": {"core"},
    "onnx": {"nn", "data", "plan", "ops", "core"},
    "prof": {"plan", "ops", "core"},
    "registry": {"cpu", "cuda", "dist", "plan", "ops", "core"},
    "engine": {"nn", "data", "onnx", "dist", "prof", "registry", "plan", "ops", "core"},
    "api": {"engine", "nn", "data", "onnx", "dist", "prof", "registry", "plan", "ops", "core"},
    "c_api": {"engine", "nn", "data", "onnx", "dist", "prof", "registry", "plan", "ops", "core"},
    "serve": {"engine", "nn", "data", "onnx", "dist", "prof", "registry", "plan", "ops", "core"},
    "cli": {"serve", "engine", "nn", "data", "onnx", "dist", "prof", "registry", "plan", "ops", "core"},
}
# Headers that would tie the lower folders to one backend.
FOREIGN = re.compile(r'#\s*include\s*[<"](cuda|cublas|cudnn|nccl|mpi|dnnl|hwy)[\w./-]*[>"]')
INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')


# The public headers, which include nothing of ours but each other.
PUBLIC = {"ridgeline.h", "c_api.h", "custom_layer.h", "error.h"}


def folder_of(path):
    part = path.split("/")[1]
    return "registry" if part in ("registry.h", "registry.cpp", "one_sample.h", "cuda_unavailable.cpp") else part


def circles(sources):
    """Sub-folders of one folder that include each other, in a circle of any length. A folder's backend and its list of
    kernels name all its parts, and headers that include none of their own folder belong to everybody: neither counts."""
    def top(path):
        return path.split("/")[1]

    includes = {name: INCLUDE.findall(text) for name, text in sources.items()}
    leaves = {name for name, found in includes.items() if all(top(other) != top(name) for other in found if "/" in other)}
    below = {}
    for name, found in includes.items():
        if re.fullmatch(r"ridgeline/\w+/(kernels|backend)\.cpp", name):
            continue
        here = name.rsplit("/", 1)[0]
        for other in found:
            there = other.rsplit("/", 1)[0]
            if other not in leaves and there != here and there.split("/")[:2] == here.split("/")[:2]:
                below.setdefault(here, {}).setdefault(there, f"{name} includes {other}")
    faults, state = [], {}

    def visit(folder, path):
        state[folder] = "open"
        for other, why in below.get(folder, {}).items():
            if state.get(other) == "open":
                faults.append(f"a circle: {' -> '.join(path[path.index(other):] + [other])} ({why})")
            elif other not in state:
                visit(other, path + [other])
        state[folder] = "done"

    for folder in sorted(below):
        if folder not in state:
            visit(folder, [folder])
    return faults


def faults_of(name, text):
    faults = []
    folder = folder_of(name)
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}:{number}"
        if folder in ("core", "ops", "plan", "nn", "data") and FOREIGN.search(line):
            faults.append(f"{place}: {line.strip()}: {folder} may not know a backend")
        match = INCLUDE.search(line)
        if not match:
            continue
        target = match.group(1)
        if target.startswith("hwy/"):
            continue  # Highway's manual has it in quotes, so that a formatter keeps its order
        if not target.startswith("ridgeline/"):
            faults.append(f'{place}: "{target}": write it from the root, as "ridgeline/..."')
        elif folder_of(target) in PUBLIC:
            continue
        elif folder_of(target) not in BELOW[folder] | {folder}:
            faults.append(f'{place}: "{target}": {folder} is not above {folder_of(target)}')
    return faults


def main():
    root = pathlib.Path(os.environ["SOURCE_DIR"])
    files = [p for p in sorted(root.glob("ridgeline/**/*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
    if not files:
        sys.exit("no sources found under " + str(root))
    # The check itself must see a wrong arrow.
    control = faults_of("ridgeline/core/x.h", '#include "ridgeline/nn/model.h"\n#include <mpi.h>\n')
    if len(control) != 2:
        sys.exit("the control with two wrong includes was not refused")
    a, b, shared = "ridgeline/cuda/a/x.h", "ridgeline/cuda/b/y.h", "ridgeline/cuda/z.h"
    if len(circles({a: f'#include "{b}"', b: f'#include "{a}"', shared: ""})) != 1:
        sys.exit("the control with a circle of two folders was not refused")
    sources = {str(path.relative_to(root)): path.read_text() for path in files}
    faults = circles(sources)
    for name, text in sources.items():
        if name.split("/")[1] not in PUBLIC:
            faults += faults_of(name, text)
    print("\n".join(faults) or f"{len(files)} files, every include points down")
    sys.exit(1 if faults else 0)


main()
