"""The same seed gives the same bits, whatever the number of threads."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from small import assert_same_parameters
from unexposed.data.worlds.simulate import world
from unexposed.maths import algebra
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.mark.parametrize("name", ["wmf", "expomf"])
def test_bits_do_not_depend_on_the_threads_of_the_blas(name, monkeypatch):
    clicks = world(700, 500, seed=1).clicks(seed=1)
    method = make(name, dim=48, epochs=1, patience=0)  # large enough for OpenBLAS to use several
    models, folded = [], []
    for threads in (1, 2, 3):
        monkeypatch.setattr(algebra, "CORES", threads)
        with threadpool_limits(threads, user_api="blas"):
            models.append(method.fit(clicks, progress=Silent()))
            folded.append(models[0].fold_in(clicks))
            pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
            assert {pool["num_threads"] for pool in pools} == {threads}  # as before
    for model, with_folded in zip(models[1:], folded[1:], strict=True):
        assert_same_parameters(models[0], model)
        assert model.facts["losses"] == models[0].facts["losses"]
        assert_same_parameters(folded[0], with_folded)
