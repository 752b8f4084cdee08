"""The command `unexposed`: one file for each command.

Commands import the other rooms inside their functions, here and nowhere else in the package:
`unexposed --help` must not wait for torch, numba and polars.
"""

import io
import os
import sys
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from unexposed import memory, streams
from unexposed.cli import (
    compare,
    demo,
    doctor,
    evaluate,
    export,
    fit,
    listing,
    recommend,
    report,
    run,
    serve,
    similar,
    simulate,
    tune,
    update,
)
from unexposed.cli.launched import check_divided, with_other_workers
from unexposed.cli.talking import leads, say, say_error
from unexposed.errors import InputError, plain
from unexposed.version import __version__

INTERRUPTED = 130  # as a shell says of Ctrl-C; typer gives it, too, without a word
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Relevance from click logs, with exposure modelled beside it.",
)
COMMANDS = (  # in the order of the help
    *(demo.demo, listing.datasets, fit.fit, recommend.recommend, similar.similar),
    *(serve.serve, update.update, evaluate.evaluate, compare.compare, tune.tune, run.run),
    *(report.report, listing.methods, listing.protocols, listing.metrics),
    *(simulate.simulate, export.export, doctor.doctor),
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command; a user's mistake ends in one sentence and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # ids are printed unchanged in any locale
        sys.stdout.reconfigure(encoding="utf-8")
    with streams.steady():
        try:
            try:
                with with_other_workers():
                    app() if leads() else _without_a_word()
            finally:
                sys.stdout.flush()
        except InputError as error:
            if not error.shown_elsewhere:
                say_error(plain(error))
            sys.exit(2)
        except (KeyboardInterrupt, SystemExit) as error:
            code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else error.code
            if code == INTERRUPTED:
                say("interrupted")
            sys.exit(code)
        except Exception as error:
            if not memory.is_out(error):
                raise
            say_error(memory.used_up(error))
            sys.exit(2)


def _without_a_word() -> None:
    """Run the command on a worker that does not talk: the first shows help and usage errors."""
    usage_error: Any = typer.BadParameter.__base__
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            code = app(standalone_mode=False)
        except typer.Abort:
            code = INTERRUPTED
        except usage_error as error:
            told = InputError(str(error))
            told.shown_elsewhere = True
            raise told from error
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"unexposed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    check_divided(context.invoked_subcommand)
