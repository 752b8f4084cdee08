"""The same seed gives the same bits, whatever the number of threads."""

import itertools

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from small import assert_same_parameters
from unexposed.data.simulate import world
from unexposed.maths import algebra
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.fixture(scope="module")
def clicks():
    return world(700, 500, seed=1).clicks(seed=1)


def test_bits_do_not_depend_on_the_threads_of_the_blas(clicks, monkeypatch):
    method = make(
        "expomf", dim=48, epochs=1, patience=0
    )  # large enough for OpenBLAS to use several
    models, folded = [], []
    for threads in (1, 2, 3):
        monkeypatch.setattr(algebra, "CORES", threads)
        with threadpool_limits(threads, user_api="blas"):
            models.append(method.fit(clicks, progress=Silent()))
            folded.append(models[0].fold_in(clicks))
    for model in models[1:]:
        assert_same_parameters(models[0], model)
        assert model.facts["losses"] == models[0].facts["losses"]
    for model in folded[1:]:
        assert_same_parameters(folded[0], model)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("name", ["wmf", "expomf"])
def test_linear_systems_are_solved_in_one_thread(name, clicks, monkeypatch):
    seen, calls = set(), itertools.count()
    solve = np.linalg.solve

    def watched(*given):
        if next(calls) % 500 == 0:
            seen.update(blas_threads())
        return solve(*given)

    monkeypatch.setattr(np.linalg, "solve", watched)
    with threadpool_limits(2, user_api="blas"):
        model = make(name, dim=4, epochs=1, patience=0).fit(
            clicks.pick(np.arange(60)), progress=Silent()
        )
        model.fold_in(clicks.pick(np.arange(20)))
        assert blas_threads() == {2}  # as before
    assert seen == {1}
