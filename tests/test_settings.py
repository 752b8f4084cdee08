from dataclasses import dataclass
from typing import Literal

import pytest

from unexposed import settings
from unexposed.api.methods import as_methods
from unexposed.errors import InputError
from unexposed.methods import make
from unexposed.settings import setting


@dataclass(frozen=True)
class Some:
    size: int = setting(3, "how many", low=1, high=9)
    rate: float = setting(0.5, "how fast", above=0)
    kind: Literal["a", "b"] = setting("a", "which")
    on: bool = setting(True, "whether")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"size": 0}, "size must be at least 1 and at most 9, got 0"),
        ({"size": 10}, "size must be at least 1 and at most 9, got 10"),
        ({"size": 1.0}, "size must be a whole number, got 1.0"),
        ({"rate": 0.0}, "rate must be above 0, got 0.0"),
        ({"rate": float("inf")}, "rate must be above 0, got inf"),
        ({"rate": "x"}, "rate must be a number, got 'x'"),
        ({"kind": "c"}, "kind must be one of 'a', 'b', got 'c'"),
        ({"on": 1}, "on must be true or false, got 1"),
    ],
)
def test_a_value_out_of_bounds_or_type_is_refused_by_name(given, complaint):
    with pytest.raises(InputError, match=f"some's setting {complaint}"):
        settings.check_values("some", Some(**given))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("size", "4", 4), ("rate", "1e-3", 1e-3), ("kind", "b", "b"), ("on", "False", False)],
)
def test_text_becomes_the_type_of_its_setting_and_a_whole_number_a_float(name, text, value):
    parsed = settings.parse_value("some", Some, name, text)
    assert parsed == value
    assert type(parsed) is type(value)
    settings.check_values("some", whole := Some(rate=2))
    assert type(whole.rate) is float


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("size", "1.5", "size must be a whole number, got '1.5'"),
        ("sise", "1", "has no setting 'sise'; did you mean 'size'"),
    ],
)
def test_text_that_does_not_fit_a_setting_is_refused(name, text, complaint):
    with pytest.raises(InputError, match=complaint):
        settings.parse_value("some", Some, name, text)


def test_an_assignment_reaches_every_method_that_has_it_unless_the_method_carries_its_own():
    made = as_methods("popularity, mf,ubo:strategy=joint:dim=4", ["dim=9", "mf.epochs=3"])
    assert list(made) == ["popularity", "mf", "ubo:strategy=joint:dim=4"]
    assert (made["mf"].dim, made["mf"].epochs) == (9, 3)
    ubo = made["ubo:strategy=joint:dim=4"]
    assert (ubo.strategy, ubo.dim, ubo.epochs) == ("joint", 4, make("ubo").epochs)


@pytest.mark.parametrize(
    ("names", "assignments", "complaint"),
    [
        ("", [], "no method given"),
        ("mff", [], "did you mean 'mf'"),
        ("mf", ["epoch=3"], "no method here has a setting 'epoch'; did you mean 'epochs'"),
        ("mf", ["epochs"], "a setting is given as name=value, got 'epochs'"),
        ("mf", ["bpr.dim=3"], "'bpr' is not among the methods"),
        ("mf", ["epochs=many"], "epochs must be a whole number"),
        ("mf", ["epochs=0"], "epochs must be at least 1"),
    ],
)
def test_a_mistake_in_methods_or_settings_is_named(names, assignments, complaint):
    with pytest.raises(InputError, match=complaint):
        as_methods(names, assignments)


@pytest.mark.parametrize(
    ("method", "name", "meant"),
    [
        ("mf", "factors", "dim"),
        ("mf", "embedding_dim", "dim"),
        ("mf", "lr", "learning_rate"),
        ("mf", "reg", "weight_decay"),
        ("wmf", "reg", "regularisation"),
        ("wmf", "n_iter", "epochs"),
        ("ubo", "num-negatives", "negatives"),
        ("ubo", "learning_rat", "learning_rate"),
    ],
)
def test_a_setting_is_found_by_the_name_that_other_libraries_give_it(method, name, meant):
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        make(method, **{name: 1})
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        as_methods(method, [f"{name}=1"])
