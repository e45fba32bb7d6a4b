"""The tool and all its shared libraries are hardened by compiler and linker: position-independent code, relocation tables
that are read-only once they are filled (RELRO, all symbols bound at the start), no memory that is both writable and
executable, stack canaries, and checked versions of C library functions."""

import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tool


def read(flag, path):
    return subprocess.run(["readelf", "--wide", flag, str(path)], capture_output=True, text=True, check=True).stdout


def lacks(path):
    """Which protections a file lacks."""
    head, segments, dynamic = read("--file-header", path), read("--program-headers", path), read("--dynamic", path)
    symbols = read("--dyn-syms", path)
    found = {
        "position-independent code": re.search(r"Type:\s+DYN", head),
        "RELRO": "GNU_RELRO" in segments,
        "symbols bound at the start": re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic),
        "a stack that is not executable": re.search(r"GNU_STACK.*\bRW\b(?!E)", segments),
        "no segment that is writable and executable": not re.search(r"LOAD.*\bRWE\b", segments),
        "no relocations of code": "TEXTREL" not in dynamic,
        "stack canaries": "__stack_chk_fail" in symbols,
        "checked functions of the C library": re.search(r"\b__\w+_chk\b(?<!__stack_chk)", symbols),
    }
    return [what for what, there in found.items() if not there]


def main():
    try:
        subprocess.run(["readelf", "--version"], capture_output=True, check=True)
    except OSError:
        print("skipped: needs readelf, of binutils")
        sys.exit(77)
    cache = (tool.BUILD / "CMakeCache.txt").read_text()
    if tool.sanitized() or not re.search(r"^CMAKE_BUILD_TYPE:\w+=Release$", cache, re.M):
        print("skipped: only a release build is hardened")
        sys.exit(77)
    files = [tool.TOOL, *tool.BUILD.glob("ridgeline/**/*.so"), *tool.BUILD.glob("python/**/*.so")]
    assert any("mpi" in str(file) for file in files) or not re.search(r"^RIDGELINE_MPI:\w+=ON$", cache, re.M), files
    bad = {str(file): missing for file in files if (missing := lacks(file))}
    for file, missing in bad.items():
        print(f"{file} lacks {', '.join(missing)}")
    print(f"{len(files) - len(bad)} of {len(files)} files are hardened")
    sys.exit(bool(bad))


main()
