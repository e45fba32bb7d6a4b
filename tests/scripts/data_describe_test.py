"""`ridgeline data describe` reads files of NumPy and Pillow value by value, and refuses bad files."""

import json
import subprocess
import sys
import tempfile
import pathlib

sys.dont_write_bytecode = True
import tool

# Run by a Python that has NumPy and Pillow: writes files to the folder given, and says for each what must be
# read from it. A checksum is that of the values in row-major order and the byte order of this machine.
WRITER = r"""
import hashlib, json, pathlib, sys
import numpy as np
from PIL import Image, ImageOps

folder = pathlib.Path(sys.argv[1])
random = np.random.default_rng(1)
wanted = {}


def expect(file, **fields):
    wanted[file] = {name: {"dtype": dtype, "shape": list(x.shape[1:]), "samples": len(x),
                           "sha256": hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()}
                    for name, (dtype, x) in fields.items()}


READ = {"i1": ("int32", "i4"), "i2": ("int32", "i4"), "i4": ("int32", "i4"), "i8": ("int64", "i8"),
        "u1": ("uint8", "u1"), "u2": ("int32", "i4"), "u4": ("int64", "i8"), "u8": ("int64", "i8"),
        "f2": ("fp16", "f2"), "f4": ("fp32", "f4"), "f8": ("fp64", "f8")}
for code, (dtype, read) in READ.items():
    for order in "<>":
        for fortran in (False, True):
            x = (random.standard_normal((7, 3, 2)) * 50).astype("i1" if code[0] == "i" else "f8")
            x = np.abs(x).astype(order + code) if code[0] == "u" else x.astype(order + code)
            x = np.asfortranarray(x) if fortran else x
            file = f"{'le' if order == '<' else 'be'}_{code}_{'f' if fortran else 'c'}.npy"
            np.save(folder / file, x)
            expect(file, **{file[:-4]: (dtype, x.astype(read))})
x = random.standard_normal((5, 4)).astype("f4")
y = random.integers(0, 3, 5)
for version in ((1, 0), (2, 0), (3, 0)):
    with open(folder / f"v{version[0]}.npy", "wb") as out:
        np.lib.format.write_array(out, x, version=version)
    expect(f"v{version[0]}.npy", **{f"v{version[0]}": ("fp32", x)})
np.save(folder / "transposed.npy", x.T)
expect("transposed.npy", transposed=("fp32", x.T))
np.savez(folder / "stored.npz", x=x, y=y)
np.savez_compressed(folder / "packed.npz", x=x, y=y)
for file in ("stored.npz", "packed.npz"):
    expect(file, x=("fp32", x), y=("int64", y))
np.save(folder / "words.npy", np.array(["setosa", "versicolor", "setosa", "h\u00e9"]))
np.save(folder / "bytes.npy", np.array([b"dog", b"cat", b"dog"]))
np.save(folder / "bools.npy", np.array([True, False, True]))
np.save(folder / "objects.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
np.save(folder / "complex.npy", np.ones(3, "c8"))
np.save(folder / "records.npy", np.zeros(3, [("a", "f4"), ("b", "i4")]))
np.savez(folder / "parts.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
np.savetxt(folder / "plain.txt", x)
np.savetxt(folder / "commas.csv", np.column_stack([x, y]), delimiter=",", header="a,b,c,d,y", comments="")

grey = random.integers(0, 256, (6, 5), dtype=np.uint8)
colour = random.integers(0, 256, (6, 5, 3), dtype=np.uint8)
deep = random.integers(0, 65536, (6, 5), dtype=np.uint16)
images = {"grey": (Image.fromarray(grey), grey),
          "colour": (Image.fromarray(colour), colour.transpose(2, 0, 1)),
          "alpha": (Image.fromarray(np.dstack([colour, grey])), colour.transpose(2, 0, 1)),
          "palette": (Image.fromarray(colour).quantize(16),
                      np.asarray(Image.fromarray(colour).quantize(16).convert("RGB")).transpose(2, 0, 1)),
          "bits": (Image.fromarray(grey > 99), np.where(grey > 99, 255, 0).astype(np.uint8)),
          "deep": (Image.fromarray(deep), ((deep.astype("u4") * 255 + 32895) >> 16).astype(np.uint8))}
for name, (image, pixels) in images.items():
    image.save(folder / f"{name}.png")
    expect(f"{name}.png", image=("uint8", pixels[None]))
smooth = np.add.outer(np.arange(32), np.arange(48)).astype(np.uint8) * 2
Image.fromarray(smooth).save(folder / "grey.jpg", quality=95)
Image.fromarray(np.dstack([smooth, 255 - smooth, smooth // 2])).save(folder / "colour.jpg", quality=95)
Image.fromarray(np.dstack([smooth] * 3)).convert("CMYK").save(folder / "cmyk.jpg", quality=95)
jpegs = {name: float(np.asarray(Image.open(folder / f"{name}.jpg").convert("L" if name == "grey" else "RGB")).mean())
         for name in ("grey", "colour", "cmyk")}
# Blocks of one grey each are stored without loss at this quality, so that every pixel can be compared.
blocks = Image.fromarray(np.kron(random.integers(0, 256, (3, 4), dtype=np.uint8), np.ones((8, 8), np.uint8)))
for orientation in range(10):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif.endian = "<>"[orientation % 2]
    blocks.save(folder / f"exif{orientation}.jpg", quality=100, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(folder / f"exif{orientation}.jpg"))
    expect(f"exif{orientation}.jpg", image=("uint8", np.asarray(upright)[None]))
for i in range(12):
    place = folder / "photos" / ("cat" if i % 3 else "dog")
    place.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 256, (8 + i % 2, 8, 3), dtype=np.uint8)).save(place / f"{i}.png")
print(json.dumps({"wanted": wanted, "jpegs": jpegs}))
"""


def python_with_numpy_and_pillow():
    """This Python, the system's, or one of our own; None where no such Python can be had."""
    for python in (sys.executable, "/usr/bin/python3"):
        check = subprocess.run([python, "-c", "import numpy, PIL"], capture_output=True)
        if check.returncode == 0:
            return python
    return tool.python_with("images")


def describe(path, *flags):
    done = tool.run("data", "describe", path, "--json", "-", *flags)
    return json.loads(done.stdout)


def refused(path, *parts, code=3, flags=()):
    line = tool.run("data", "describe", path, *flags, code=code).stderr
    for part in parts:
        assert part in line, (part, line)


def check_values(folder, wanted):
    for file, fields in wanted.items():
        described = describe(folder / file, "--checksums")
        found = {field["name"]: field for field in described["parts"][0]["fields"]}
        assert found.keys() == fields.keys(), (file, found.keys())
        for name, want in fields.items():
            got = found[name]
            assert described["parts"][0]["samples"] == want["samples"], (file, described)
            for key in ("dtype", "shape", "sha256"):
                assert got[key] == want[key], (file, name, key, got, want)


def check_kinds(folder):
    words = describe(folder / "words.npy")["parts"][0]["fields"][0]
    assert words["kind"] == "category" and words["categories"] == ["h\u00e9", "setosa", "versicolor"], words
    assert words["counts"] == [1, 2, 1], words
    assert describe(folder / "bytes.npy")["parts"][0]["fields"][0]["categories"] == ["cat", "dog"]
    assert describe(folder / "bools.npy")["parts"][0]["fields"][0]["counts"] == [1, 2]
    refused(folder / "objects.npy", "can run code", "np.save")
    refused(folder / "complex.npy", "complex numbers")
    refused(folder / "records.npy", "several fields", "np.savez")
    parts = describe(folder / "parts.npz")["parts"]
    assert [part["name"] for part in parts] == ["train", "test"], parts
    assert [part["samples"] for part in parts] == [5, 2], parts
    assert parts[0]["target"]["name"] == "y" and parts[0]["target"]["kind"] == "classes", parts
    plain = describe(folder / "plain.txt")
    assert [field["dtype"] for field in plain["parts"][0]["fields"]] == ["fp64"] * 4, plain
    table = describe(folder / "commas.csv")
    assert table["parts"][0]["target"]["name"] == "y", table
    assert [field["name"] for field in table["parts"][0]["fields"]] == list("abcdy"), table


def check_images(folder, jpegs):
    for name, mean in jpegs.items():
        field = describe(folder / f"{name}.jpg")["parts"][0]["fields"][0]
        assert field["shape"] == ([32, 48] if name == "grey" else [3, 32, 48]), field
        assert abs(field["mean"] - mean) < 0.5, (name, field, mean)
    # Sizes differ: one is chosen, and what is in the files is said. (A config needs data.resize.)
    image = describe(folder / "photos")["parts"][0]["fields"][0]
    assert image["shape"] == [3, 9, 8] and image["stored"] == "images of 8 x 8 to 8 x 9 pixels", image
    config = folder / "photos.toml"
    config.write_text(f'[data]\ntrain = "{folder / "photos"}"\n[model]\nlayers = [{{ type = "linear", out = 2 }}]\n')
    line = tool.run("train", config, code=3).stderr
    assert "is 8 x" in line and "give a size" in line, line
    photos = describe(folder / "photos", "--image-size", "4x6")
    image, label = photos["parts"][0]["fields"]
    assert image["shape"] == [3, 6, 4] and label["categories"] == ["cat", "dog"], photos
    assert photos["parts"][0]["target"]["counts"] == [8, 4], photos
    assert describe(folder / "photos", "--image-size", "4x6", "--channels", "grey")[
        "parts"][0]["fields"][0]["shape"] == [6, 4]


def check_text(folder):
    """The printed text, and refused files, without any package."""
    table = folder / "houses.csv"
    table.write_text("area,kind,garden,price\n" + "".join(
        f"{40 + i},{'flat' if i % 3 else 'house'},{'yes' if i % 2 else 'no'},{i * 1000.5}\n" for i in range(30))
        + "50,,no,\n")
    text = tool.run("data", "describe", table).stdout
    for part in ("houses.csv: a table of separated values", "31 samples, 4 fields", "category        1",
                 "2 categories: flat 20, house 10", "no 16, yes 15", "40 to 69, mean",
                 "target     price: values to predict (regression); 1 missing"):
        assert part in text, (part, text)
    text = tool.run("data", "describe", table, "--target", "kind").stdout
    assert "kind: 2 classes: flat 20, house 10; 1 missing" in text, text
    refused(table, "no field 'prize'", "did you mean 'price'", flags=("--target", "prize"))
    (folder / "bad.csv").write_text("a,b\n" + "1,2\n" * 40 + "3,x\n")
    refused(folder / "bad.csv", "line 42", "column 2 ('b')", "'x' is not a number")
    described = describe(folder / "bad.csv", "--category", "b")
    assert described["parts"][0]["fields"][1]["counts"] == [40, 1], described
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    refused(folder / "ragged.csv", "line 3", "1 column,")
    raw = folder / "raw.bin"
    raw.write_bytes(bytes(range(200, 224)))
    refused(raw, "no kind that is known", "--dtype")
    assert describe(raw, "--dtype", "uint8", "--shape", "2,3")["parts"][0]["samples"] == 4
    refused(raw, "no whole number of samples", flags=("--dtype", "fp32", "--shape", "5"))
    refused(raw, "give both", code=2, flags=("--dtype", "fp32"))
    refused(raw, "'float99' is not a type", code=2, flags=("--dtype", "float99", "--shape", "1"))
    (folder / "pickle.pkl").write_bytes(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.")
    refused(folder / "pickle.pkl", "is a Python pickle", "can run code")
    refused(folder / "nothing", "No such file")
    lines = folder / "lines.jsonl"
    lines.write_text('{"tokens": [1, 2, 3], "label": "a"}\n{"tokens": [4], "label": "b"}\n')
    field = describe(lines)["parts"][0]["fields"][0]
    assert field["kind"] == "sequence" and field["lengths"] == {"least": 1, "most": 3, "mean": 2.0}, field
    idx = tool.Folder()
    parts = describe(idx.data)["parts"]
    assert [part["samples"] for part in parts] == [200, 100], parts
    assert parts[0]["target"]["classes"] == ["0", "1", "2", "3"], parts
    idx.close()


def main():
    with tempfile.TemporaryDirectory() as kept:
        folder = pathlib.Path(kept)
        check_text(folder)
        python = python_with_numpy_and_pillow()
        if python is None:
            print("skipped: no Python with NumPy and Pillow")
            return 77
        said = json.loads(tool.command([python, "-c", WRITER, folder]).stdout)
        check_values(folder, said["wanted"])
        check_kinds(folder)
        check_images(folder, said["jpegs"])
    print(f"{len(said['wanted'])} files of NumPy and Pillow read value by value")
    return 0


if __name__ == "__main__":
    sys.exit(main())
