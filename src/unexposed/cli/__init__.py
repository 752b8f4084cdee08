"""The command `unexposed`: one short function a command, in a file for each group of them."""

import io
import sys
from typing import Annotated

import typer

from unexposed import memory, streams
from unexposed.cli.data import datasets, demo, simulate
from unexposed.cli.judging import compare, evaluate
from unexposed.cli.pages import doctor, report
from unexposed.cli.serving import export, recommend, similar
from unexposed.cli.studies import run, tune
from unexposed.cli.talking import say
from unexposed.cli.training import fit, update
from unexposed.errors import InputError, plain
from unexposed.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Relevance from click logs, with exposure modelled beside it.",
)
COMMANDS = (  # in the order of the help
    *(demo, datasets, fit, recommend, similar, update, evaluate),
    *(compare, tune, run, report, simulate, export, doctor),
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # ids are written as they are in any locale
        sys.stdout.reconfigure(encoding="utf-8")
    with streams.steady():
        try:
            try:
                app()
            finally:
                sys.stdout.flush()
        except InputError as error:
            say(f"error: {plain(error)}")
            sys.exit(2)
        except KeyboardInterrupt:
            say("interrupted")
            sys.exit(130)
        except Exception as error:
            if not memory.is_out(error):
                raise
            say(f"error: {memory.used_up(error)}")
            sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"unexposed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    memory.check_limit()
