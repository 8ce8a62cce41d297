"""The commands `tidegraph forget` and `tidegraph audit forgetting`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tidegraph.cli.options import JSON_OPTION, WRITABLE_FILE, option
from tidegraph.cli.terminal import Command, Group, console, echo_json, progress

_DIRECTORY = click.Path(path_type=Path, file_okay=False, exists=True)
_NODE = option("--node", "As events call it.", required=True, metavar="NAME")


@click.command(cls=Command)
@click.argument("directory", type=_DIRECTORY)
@_NODE
@option("--refit", "Train a model anew, and delete those that learned from it.", is_flag=True)
@JSON_OPTION
def forget(directory: Path, node: str, refit: bool) -> None:
    """Remove a node from a live state that no server has open, from memory and every file.

    Its events, name and ids are deleted, and all others computed anew without it. A server that
    runs does the same by POST /v1/forget.
    """
    from tidegraph.live.live import Live
    from tidegraph.live.log import FILE
    from tidegraph.live.settings import LiveSettings

    if not (directory / FILE).is_file():
        raise click.UsageError(
            f"{directory} holds no live state; give the directory of tidegraph serve. To forget a"
            " node in a run, remove its rows from the table and run again"
        )
    with Live.open(directory, settings=LiveSettings(learn=False)) as live:
        found = live.forget(node, refit=refit).plain()["data"]
    console().print(f"Forgot {node}: {found['events']:,} events")
    if found["remains"]["models"]:
        names = ", ".join(found["remains"]["models"])
        console().print(f"What models learned from it remains ({names}); --refit learns anew")
    echo_json(found)


@click.group(cls=Group)
def audit() -> None:
    """Prove what was promised."""


@audit.command("forgetting")
@click.argument("directory", type=_DIRECTORY)
@_NODE
@option(
    "-o --output",
    "Write the certificate here as JSON, and a page next to it.",
    Path("forgotten.json"),
    type=WRITABLE_FILE,
)
@JSON_OPTION
def forgetting(directory: Path, node: str, output: Path) -> None:
    """Prove that a node was forgotten: search every byte, compute all others anew, and compare.

    DIRECTORY is that of tidegraph serve, which must not be running on it. The exit code is 1 if
    anything of the node is left.
    """
    from tidegraph.live.forgetting import audit_forgetting

    with progress("audit") as report:
        certificate = audit_forgetting(directory, node, progress=report)
    out = console()
    verdict = "is forgotten" if certificate.holds else "is NOT forgotten"
    out.print(f"{node} {verdict}", style="green" if certificate.holds else "red")
    for path in certificate.write(output):
        out.print(f"Wrote {path}")
    echo_json(certificate.plain())
    if not certificate.holds:
        sys.exit(1)
