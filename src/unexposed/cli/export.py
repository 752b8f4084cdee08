"""`unexposed export`: a saved model for other programs to serve."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli.inputs import whole
from unexposed.cli.options import AsJson, ModelFolder
from unexposed.cli.talking import print_json, say


def export(
    folder: ModelFolder,
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    kind: Annotated[
        str, typer.Option("--format", help="parquet, npy (vectors), usearch (index) or onnx.")
    ],
    k: Annotated[int, typer.Option("-k", help="List length for the recall of an index.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Write a model for serving: vectors, a nearest-neighbour index, or an ONNX scorer."""
    from unexposed.model.export import check_export, describe, export_model

    check_export(to, kind)
    about = export_model(whole(folder), to, kind=kind, k=k)
    if as_json:
        return print_json(about)
    for line in describe(about, to):
        say(line)
    return None
