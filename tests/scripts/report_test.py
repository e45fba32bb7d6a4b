"""The report pages in a real browser: they load from a file with no console error, the charts are
there, nothing is fetched, and they are small. Skipped where there is no Chromium."""

import base64
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zlib

sys.dont_write_bytecode = True
import tool

SIZES = {"desktop": (1000, 1400), "phone": (390, 844)}


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


def open_page(chrome, page, work, *flags, time="--virtual-time-budget=4000"):
    """The page's final DOM, after checking the browser's messages."""
    done = subprocess.run(
        [chrome, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--enable-logging=stderr", "--v=0", f"--user-data-dir={work}/profile",
         time, *flags, f"file://{page}"],
        capture_output=True, text=True, timeout=240)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    return done.stdout


def check_page(page, wanted):
    """Checks without a browser: one file, nothing from outside, all parts."""
    text = page.read_text()
    assert len(text) < 2_000_000, len(text)
    assert not re.search(r'(src|href)="(?!data:|#)', text), "the page refers to something outside"
    assert not re.search(r"[^A-Za-z/](nan|inf)[^A-Za-z/]", text.lower()), page
    for part in wanted:
        assert f"<h2>{part}</h2>" in text, part


def check_png(text):
    """The first image: signature, checksums of its chunks, as many pixels as it says."""
    raw = base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", text).group(1))
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(raw):
        (length,) = struct.unpack(">I", raw[at:at + 4])
        body = raw[at + 4:at + 8 + length]
        assert struct.unpack(">I", raw[at + 8 + length:at + 12 + length]) == (zlib.crc32(body),)
        chunks[body[:4]] = body[4:]
        at += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    assert (width, height) == (6, 6) and list(chunks)[-1] == b"IEND"
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (width + 1)


def seconds_to_open(chrome, page, work):
    """From asking for the page, in a frame, to its load event; the best of three on a busy machine."""
    frame = page.parent / "frame.html"
    frame.write_text("<script>const begin = performance.now();</script><iframe onload=\"document.body.dataset.ms ="
                     f" performance.now() - begin\" src=\"{page.name}\"></iframe>")
    opened = [open_page(chrome, frame, work, "--dump-dom", time="--timeout=10000") for _ in range(3)]
    return min(float(re.search(r'data-ms="([0-9.]+)"', dom).group(1)) for dom in opened) / 1000


def shots(chrome, page, folder, work):
    """Screenshots for people to look at: RIDGELINE_SHOTS=DIR keeps them."""
    for name, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            out = pathlib.Path(folder) / f"{page.parent.name}-{name}-{scheme}.png"
            flags = [f"--screenshot={out}", f"--window-size={width},{height}", "--hide-scrollbars"]
            if scheme == "dark":
                flags.append("--blink-settings=preferredColorScheme=0")
            open_page(chrome, page, work, *flags)


def main():
    folder = tool.Folder(samples=600)
    pages = {}
    pages["train"] = ["Summary", "Loss and accuracy", "Confusions", "Timeline of the run", "Roofline",
                      "Plan", "Config", "Environment"]
    tool.run("train", folder.config, "--out", folder / "run", "--report", folder / "train",
             "--trace", folder / "trace.json", "--set", "train.epochs=20")
    pages["profile"] = ["Summary", "Roofline", "Timeline of a few steps", "Plan", "What to try next",
                        "Environment"]
    tool.run("profile", folder.config, "--report", folder / "profile", "--seconds", "0.2")
    pages["infer"] = ["Summary", "Labels given", "Certainty", "Least certain", "Environment"]
    tool.run("infer", folder / "run", "--input", folder / "data/t10k-images-idx3-ubyte", "--output",
             folder / "labels.csv", "--report", folder / "infer")
    pages["bench"] = ["Results", "Environment"]
    tool.run("bench", "mlp", "--only", "784-128-128-128-10:32", "--seconds", "0.05", "--device", "cpu",
             "--no-tune", "--report", folder / "bench")
    pages["gemm"] = ["Results", "Environment"]
    tool.run("bench", "gemm", "--m", "17", "--n", "3", "--k", "29", "--seconds", "0.01", "--device", "cpu",
             "--report", folder / "gemm")
    for name, wanted in pages.items():
        check_page(folder / name / "report.html", wanted)
    text = (folder / "train/report.html").read_text()
    assert text.count("<svg") >= 4
    check_png((folder / "infer/report.html").read_text())
    for trace in (folder / "train/trace.json", folder / "profile/trace.json", folder / "trace.json"):
        events = json.loads(trace.read_text())["traceEvents"]
        assert any(event["ph"] == "X" for event in events), trace
    chrome = browser()
    if chrome is None:
        folder.close()
        print("skipped: no chromium; the pages were checked as text only")
        return 77
    work = folder / "browser"
    for name, wanted in pages.items():
        dom = open_page(chrome, folder / name / "report.html", work, "--dump-dom")
        for part in wanted:
            assert part in dom, part
        assert "<svg" in dom, name
    seconds = seconds_to_open(chrome, folder / "train/report.html", work)
    assert seconds < 1, seconds
    if os.environ.get("RIDGELINE_SHOTS"):
        for name in pages:
            shots(chrome, folder / name / "report.html", os.environ["RIDGELINE_SHOTS"], work)
    folder.close()
    print("the pages open in Chromium without a console message, with all their parts; that of training in"
          f" {1000 * seconds:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
