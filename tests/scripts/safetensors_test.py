"""Python's safetensors package reads our model files with the values that our tool reads, and a file that it writes
with our metadata does not count as damaged."""

import subprocess
import sys

sys.dont_write_bytecode = True
import tool

READER = """
import json, sys, zlib, numpy
from safetensors import safe_open
from safetensors.numpy import load_file
path = sys.argv[1]
with safe_open(path, framework="np") as file:
    metadata = file.metadata()
    for name in file.keys():
        crc = zlib.crc32(file.get_tensor(name).tobytes())
        assert metadata["ridgeline.crc32." + name] == f"{crc:08x}", (name, metadata)
assert metadata["format"] == "pt", metadata
assert "[model]" in metadata["ridgeline.config"]
print(json.dumps({name: [str(x.dtype), list(x.shape), x.tobytes().hex()]
                  for name, x in load_file(path).items()}))
"""

# With weights of its own and all of our metadata, the checksums included.
WRITER = """
import sys
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
source, target = sys.argv[1:]
with safe_open(source, framework="np") as file:
    metadata = file.metadata()
save_file({name: x * 2 for name, x in load_file(source).items()}, target, metadata)
"""


def main():
    import json
    python = tool.python_with("safetensors")
    if python is None:
        return 77
    folder = tool.Folder()
    for precision, dtype in (("fp32", "float32"), ("fp64", "float64")):
        out = folder / precision
        tool.run("train", folder.config, "--out", out, "--set", f'run.precision="{precision}"')
        for name in ("model.safetensors", "checkpoint.safetensors"):
            done = subprocess.run([str(python), "-c", READER, str(out / name)],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                print(done.stderr)
                return 1
            theirs = json.loads(done.stdout)
            ours = tool.tensors(out / name)
            assert theirs.keys() == ours.keys(), (theirs.keys(), ours.keys())
            for key, (_, shape, data) in ours.items():
                assert theirs[key] == [dtype, shape, data.hex()], key
        assert ours["0.weight"][1] == [16, 36]
        theirs = folder / f"{precision}.safetensors"
        tool.command([python, "-c", WRITER, out / "model.safetensors", theirs])
        assert "checksums" not in tool.run("eval", theirs).stderr
        assert "has no checksums" in tool.run("eval", theirs, "--strict").stderr
    folder.close()
    print("read by Python's safetensors: names, types, shapes and bits agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
