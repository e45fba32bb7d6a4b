"""The public names of the package, their docstrings and types."""

import inspect
import pathlib
import subprocess
import sys

import pytest

import ridgeline as rl


def public(owner, prefix):
    for name, value in vars(owner).items():
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, property)):
            continue
        if inspect.isclass(value) and not value.__module__.startswith("ridgeline"):
            continue
        yield f"{prefix}.{name}", value
        if inspect.isclass(value):
            yield from public(value, f"{prefix}.{name}")


def test_everything_public_is_explained():
    assert set(rl.__all__) <= set(dir(rl)) and rl.__version__.count(".") == 2
    owners = [(rl.nn, "nn"), (rl.callbacks, "callbacks")]
    for name in rl.__all__:
        if name in ("RidgelineClassifier", "RidgelineRegressor"):
            pytest.importorskip("sklearn")
        value = getattr(rl, name)
        if inspect.isclass(value):
            owners.append((value, name))
        elif callable(value):
            assert value.__doc__, name
    missing = [name for owner, prefix in owners for name, value in public(owner, prefix)
               if inspect.getmodule(value) is not None and not inspect.getdoc(value)]
    assert not missing


def test_types_are_shipped():
    folder = pathlib.Path(rl.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_core.pyi").exists()
    stub = (folder / "_core.pyi").read_text()
    for owner in (rl._core, rl._core.Model, rl._core.Predictor, rl._core.Function, rl._core.StepTrainer):
        for name in vars(owner):
            if not name.startswith("_"):
                assert f"def {name}(" in stub or f"class {name}" in stub, name


@pytest.mark.parametrize("missing", [True, False])
def test_everything_can_be_imported_and_read(missing):
    """With NumPy alone as well, where the estimators are not named."""
    if not missing:
        pytest.importorskip("sklearn")
    script = f"import sys; {missing} and sys.modules.update(sklearn=None); from ridgeline import *; import pydoc, ridgeline; " \
        "print('RidgelineClassifier' in dir(), len(pydoc.render_doc(ridgeline)) > 10000)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{not missing} True\n"
