"""scripts/founding stores the origin of each part, and the page says what was not run."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import founding_tables  # noqa: E402
import founding_works  # noqa: E402


def founding(*arguments, code=0, **env):
    done = subprocess.run([sys.executable, ROOT / "scripts/founding", *map(str, arguments)], capture_output=True,
                          text=True, env=dict(os.environ, **env), timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done


def test_parts(folder):
    done = founding(5, "--only", "products-cpu", "--only", "products-cuda", "--quick", "--out", folder,
                    XDG_CACHE_HOME=str(folder / "cache"))
    assert "products-cpu:" in done.stdout, done.stdout
    kept = json.loads((folder / "founding-5.json").read_text())
    entry = kept["parts"]["products-cpu"]
    for key in ("commit", "date", "device", "load_before", "load_after", "cores", "seconds", "commands", "figures"):
        assert key in entry, key
    assert entry["quick"] and entry["commands"][0].startswith("ridgeline bench gemm --device cpu"), entry["commands"]
    assert {line["n"] for line in entry["figures"]} == {8, 16}
    elsewhere = folder / "elsewhere"
    assert "no part that was run in full" in founding("--keep", folder, "--out", elsewhere, code=1).stderr
    assert "holds no founding-N.json" in founding("--keep", ROOT, "--out", elsewhere, code=1).stderr
    entry.pop("quick")
    (folder / "founding-5.json").write_text(json.dumps(kept))
    elsewhere.mkdir()
    founding("--keep", folder, "--out", elsewhere)
    assert json.loads((elsewhere / "founding-5.json").read_text()) == kept
    # A part that fails keeps what it had, and the exit code says so.
    before = (folder / "founding-5.json").read_text()
    failed = founding(5, "--only", "products-cpu", "--quick", "--out", folder, code=1, RIDGELINE="/bin/false")
    assert "5 products-cpu failed" in failed.stderr and (folder / "founding-5.json").read_text() == before
    assert "no part is called nothing" in founding("--only", "nothing", code=1).stderr
    listed = founding("--list").stdout.splitlines()
    assert len(listed) == len(founding_works.PARTS)
    assert len({(part.work, part.name) for part in founding_works.PARTS}) == len(founding_works.PARTS)


def test_page(folder):
    """Without any results every table is still there and says that nothing was run."""
    record, empty = founding_tables.RESULTS / "founding-record.json", folder / "empty"
    empty.mkdir()
    (empty / record.name).write_bytes(record.read_bytes())
    for earlier in ("h200-charcnn.json", "h200-lenet72-ops.jsonl"):
        (empty / earlier).write_bytes((founding_tables.RESULTS / earlier).read_bytes())
    founding_tables.RESULTS = empty
    for name, table in founding_tables.TABLES.items():
        if name not in ("founding-1-file", "founding-2-conv"):
            assert founding_tables.NOT_RUN in table(), name
        assert "founding-record" not in table()
    page = (ROOT / "docs" / "founding.md").read_text()
    for name in founding_tables.TABLES:
        assert f"<!-- table {name} -->" in page, f"docs/founding.md has no table {name}"


with tempfile.TemporaryDirectory() as name:
    test_parts(pathlib.Path(name))
    test_page(pathlib.Path(name))
