"""Methods and estimators do what scikit-learn expects of them."""

import pytest

import unexposed as ux
from small import METHODS, quick

sklearn_base = pytest.importorskip("sklearn.base")
selection = pytest.importorskip("sklearn.model_selection")


@pytest.fixture(scope="module")
def log(small_world):
    return small_world.split(seed=0).train


@pytest.fixture
def folds():
    return selection.KFold(3, shuffle=True, random_state=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_cloned_with_its_settings(name):
    method = quick(name)
    copy = sklearn_base.clone(method)
    assert copy == method
    assert copy is not method
    assert copy.get_params() == method.get_params()


def test_an_estimator_is_cloned_unfitted_and_changed_in_place(log):
    estimator = ux.Estimator(quick("mf", epochs=1)).fit(log)
    copy = sklearn_base.clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "model_")
    assert copy.set_params(method__dim=5, seed=3) is copy
    assert (copy.method.dim, copy.seed, estimator.method.dim) == (5, 3, 8)
    with pytest.raises(ux.InputError, match="Estimator has no 'sede'; did you mean 'seed'"):
        copy.set_params(sede=1)
    assert "Model(mf" in estimator._repr_html_()


def test_folds_of_whole_users_are_warned_of(log):
    frame = log.frame()  # ordered by user, as are the folds of a KFold that does not shuffle
    fitted = ux.Estimator("popularity").fit(frame[:200])
    with pytest.warns(ux.LogWarning, match=r"users to score have no clicks in training .* shuffle"):
        fitted.score(frame[195:])


def test_a_score_is_the_metric_on_the_rows_that_were_held_out(log, folds):
    frame = log.frame()
    train, test = next(folds.split(frame))
    scores = selection.cross_val_score(
        ux.Estimator("ease", metric="recall@10"), frame, cv=folds, error_score="raise"
    )
    model = ux.make("ease").fit(ux.read_log(frame[train]), seed=0)
    later = ux.read_log(frame[test], any_size=True)
    assert scores[0] == ux.evaluate(model, later, metrics="recall@10").means()["recall@10"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ux.Estimator("mf").score([(1, 2)]), "call fit first"),
        (lambda: ux.Estimator("mf").fit([1, 2]), "a user and an item in each row"),
        (lambda: ux.Estimator("mf,ubo").fit([(1, 2)]), "takes one method"),
        (lambda: ux.Estimator("fm").fit([(1, 2)]), "did you mean 'mf'"),
    ],
)
def test_a_wrong_use_is_refused_in_one_sentence(call, words):
    with pytest.raises(ux.InputError, match=words):
        call()
