"""Threads: the GIL is free while the library computes, handles compute in parallel, and one handle serves one thread."""

import copy
import threading
import time

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn


def large():
    """A net whose calls take milliseconds."""
    return rl.Model(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                  nn.Linear(1024, 10)), device="cpu", threads=1, tune=False)


def test_python_goes_on_while_we_compute():
    model = large()
    x = np.ones((4096, 512), np.float32)
    model.predict_proba(x)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    start = time.perf_counter()
    model.predict_proba(x)
    seconds = time.perf_counter() - start
    after = counted[0]
    done.set()
    thread.join()
    # Without the GIL the other thread counts a million times a second; a few steps of 5 ms else.
    assert after > 20_000 * seconds


def test_handles_of_several_threads():
    model = large()
    x = np.random.default_rng(1).normal(size=(8, 512)).astype(np.float32)
    want = model.compile(batch=8)(x)
    failures = []

    def work():
        handle = model.compile(batch=8)
        for _ in range(50):
            if not np.array_equal(handle(x), want):
                failures.append("other numbers")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def test_one_handle_is_for_one_thread():
    handle = large().compile(batch=256)
    x = np.ones((256, 512), np.float32)
    refused, answers = [], []
    want = handle(x)

    def work():
        for _ in range(20):
            try:
                answers.append(handle(x))
            except rl.UsageError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(np.array_equal(each, want) for each in answers) and answers
    assert all("another thread" in each for each in refused)


def test_two_threads_in_one_model():
    model = large()
    x = np.random.default_rng(1).normal(size=(64, 512)).astype(np.float32)
    want = copy.deepcopy(model).predict_proba(x)
    results = []

    def work():
        results.extend(np.array_equal(model.predict_proba(x), want) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [True] * 60


@pytest.mark.parametrize("used", [False, True])
def test_fork(used, tmp_path):
    """A child of a fork computes if its parent had not, and is refused otherwise; neither waits for ever."""
    import subprocess
    import sys

    script = f"""
import os, sys
sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
from conftest import blobs, mlp
x, y = blobs()
model = mlp()
if {used}:
    model.predict(x)
child = os.fork()
try:
    model.predict(x)
    answer = 3
except ValueError as error:
    answer = 4 if "forked" in str(error) else 5
if child == 0:
    os._exit(answer)
print(answer, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == ("3 4\n" if used else "3 3\n"), done.stderr
