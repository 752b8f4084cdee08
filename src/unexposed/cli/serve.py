"""`unexposed serve`: a web service and a page for people, from a saved model."""

from typing import Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import say


def serve(
    folder: options.ModelFolder,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")
    ] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on: other machines can reach all but loopback.")
    ] = "127.0.0.1",
    titles: options.Titles = None,
    title: options.TitleColumn = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that answer, each with a core or two.")
    ] = 1,
    log: Annotated[bool, typer.Option("--log", help="Print a line for each request.")] = False,
) -> None:
    """Serve a model: JSON for programs, a page for people; a newer model is picked up."""
    from unexposed.late import optional

    for package in ("starlette", "uvicorn", "httptools", "msgspec"):
        optional(package, extra="serve")
    from unexposed.data.judged import check_title
    from unexposed.serve.app import run
    from unexposed.serve.model import Source

    check_title(titles, title)
    run(Source(folder, titles, title), host=host, port=port, workers=workers, log=log, say=say)
