"""Every include in ridgeline/ points down the arrows of the architecture."""

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
    "prof": {"plan", "ops", "core"},
    "registry": {"cpu", "cuda", "dist", "plan", "ops", "core"},
    "engine": {"nn", "data", "dist", "prof", "registry", "plan", "ops", "core"},
    "cli": {"engine", "nn", "data", "dist", "prof", "registry", "plan", "ops", "core"},
}
# Headers that would tie the lower folders to one backend.
FOREIGN = re.compile(r'#\s*include\s*[<"](cuda|cublas|cudnn|nccl|mpi|dnnl|hwy)[\w./-]*[>"]')
INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')


def folder_of(path):
    part = path.split("/")[1]
    return "registry" if part.startswith("registry.") else part


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
    faults = []
    for path in files:
        faults += faults_of(str(path.relative_to(root)), path.read_text())
    print("\n".join(faults) or f"{len(files)} files, every include points down")
    sys.exit(1 if faults else 0)


main()
