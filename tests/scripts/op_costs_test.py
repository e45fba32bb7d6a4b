"""Every op of the Op variant has a test of its flops and bytes against numbers computed by hand."""

import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["SOURCE_DIR"])


def main():
    header = (SOURCE / "ridgeline/ops/op.h").read_text()
    ops = re.search(r"using AnyOp =\s*std::variant<(.*?)>;", header, re.S).group(1).replace("\n", " ")
    tests = "".join(path.read_text() for path in (SOURCE / "tests/ops").glob("*cost_test.cpp"))
    missing = [op.strip() for op in ops.split(",") if f"cost({op.strip()}{{" not in tests]
    if missing:
        print(f"no cost test in tests/ops/*cost_test.cpp for: {', '.join(missing)}")
        return 1
    print(f"{len(ops.split(','))} ops have cost tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
