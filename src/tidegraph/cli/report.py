"""The command `tidegraph report`."""

from __future__ import annotations

from pathlib import Path

import click

from tidegraph.cli.options import DIRECTORY, JSON_OPTION
from tidegraph.cli.terminal import Command, echo_json, progress


@click.command(cls=Command)
@click.argument("directory", metavar="RUN", type=DIRECTORY)
@JSON_OPTION
def report(directory: Path) -> None:
    """Write the page of a finished run again, with the results it has.

    \b
      tidegraph report runs/calls
    """
    from tidegraph import report as pages
    from tidegraph.runs import read_metrics

    read_metrics(directory)  # says how to finish it, if it is not finished
    with progress("report") as shown:
        shown(0, 1, "writing the page")
        page = str(pages.write(directory))
    click.echo(f"Report: {page}")
    echo_json({"report": page})
