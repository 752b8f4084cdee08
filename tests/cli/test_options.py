"""The options that commands share."""

import inspect
from dataclasses import fields

from unexposed import cli
from unexposed.cli.options import NO_COLUMNS, Columns, with_columns

NAMES = [f.name for f in fields(Columns)]


def test_the_column_options_take_the_place_of_columns():
    @with_columns
    def command(log: str, columns: Columns = NO_COLUMNS, *, seed: int = 3) -> None:
        """About it."""

    assert list(inspect.signature(command).parameters) == ["log", *NAMES, "seed"]
    assert (command.__name__, command.__doc__) == ("command", "About it.")


def test_column_options_reach_the_command_as_one_value():
    found = []

    @with_columns
    def command(log: str, columns: Columns = NO_COLUMNS) -> None:
        found.append((log, columns))

    command(log="x", user="u", item=None, rating=None, threshold=0.0, delimiter=None)
    assert found == [("x", Columns(user="u", threshold=0.0))]
    assert found[0][1].are_given()
    assert Columns(threshold=0.0).are_given()  # 0 counts as given
    assert not NO_COLUMNS.are_given()
    assert found[0][1].given() | {"threshold": 0.0} == found[0][1].given()
    assert found[0][1].pair() == {"user": "u", "item": None, "delimiter": None}


def test_every_command_has_a_file_of_its_own_name():
    for command in cli.COMMANDS:
        assert inspect.unwrap(command).__module__ == f"unexposed.cli.{command.__name__}"
