"""`make install`, `make uninstall` and `make package`: what they put where, and that it runs from there."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import tool

FILES = ["share/man/man1/ridgeline.1", "share/bash-completion/completions/ridgeline",
         "share/zsh/site-functions/_ridgeline", "share/fish/vendor_completions.d/ridgeline.fish",
         "share/ridgeline/configs/fashion-mlp.toml", "share/doc/ridgeline/README.md"]


def check(prefix):
    """The tool under the prefix runs with the libraries it finds there, trains, and has its files beside it."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(prefix)}
    said = tool.command([prefix / "bin" / "ridgeline", "--version"], env=env).stdout
    if not said.startswith("ridgeline 0.2"):
        raise AssertionError(f"--version says {said!r}")
    folder = tool.Folder()
    tool.command([prefix / "bin" / "ridgeline", "train", folder.config], env=env)
    folder.close()
    for name in FILES:
        if not (prefix / name).is_file() or not (prefix / name).stat().st_size:
            raise AssertionError(f"{name} is missing")
    page = (prefix / FILES[0]).read_text()
    if ".TH" not in page or "ridgeline train" not in page:
        raise AssertionError("the manual page names no commands")


def install(folder):
    """Installs, uses and uninstalls; nothing is left but a file that somebody else put there."""
    script = tool.SOURCE / "scripts" / "install-tool"
    prefix = folder / "a prefix"
    prefix.mkdir()
    said = tool.command([script, prefix, tool.BUILD]).stdout
    if f"put {prefix}/bin on your PATH" not in said:
        raise AssertionError(f"install says {said!r}")
    check(prefix)
    theirs = prefix / "bin" / "theirs"
    theirs.write_text("")
    tool.command([script, "--remove", tool.BUILD])
    left = [p for p in prefix.rglob("*") if p.is_file() and ".cache" not in p.parts]
    if left != [theirs]:
        raise AssertionError(f"uninstall left {left}")
    again = subprocess.run([script, "--remove", tool.BUILD], capture_output=True, text=True)
    if again.returncode != 1 or "nothing was installed" not in again.stderr:
        raise AssertionError(f"a second uninstall says {again.stderr!r}")


def packages(folder):
    """Both packages run from where they are unpacked, and the .deb names the libraries that the tool links."""
    tool.command([tool.SOURCE / "scripts" / "package", tool.BUILD, folder / "packages"])
    (deb,), (archive,) = (list((folder / "packages").glob(f"*.{kind}")) for kind in ("deb", "tar.gz"))
    tool.command(["dpkg", "-x", deb, folder / "deb"])
    check(folder / "deb" / "usr")
    needs = tool.command(["dpkg-deb", "-f", deb, "Depends"]).stdout
    for library in ("libc6", "libstdc++6", "libcurl4"):
        if library not in needs:
            raise AssertionError(f"the package depends on {needs!r}")
    (folder / "archive").mkdir()
    tool.command(["tar", "-xf", archive, "-C", folder / "archive", "--strip-components=1"])
    check(folder / "archive")


def main():
    if tool.sanitized():
        print("skipped: packages hold no sanitizers")
        return 77
    with tempfile.TemporaryDirectory() as name:
        install(pathlib.Path(name))
        print("installed and uninstalled", flush=True)
        if not all(map(shutil.which, ("dpkg-shlibdeps", "dpkg-deb", "file"))):
            print("not packed: needs dpkg-dev and file")
            return 0
        packages(pathlib.Path(name))
        print("packed and unpacked")
    return 0


sys.exit(main())
