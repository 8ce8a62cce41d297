"""The commands `tidegraph forget` and `tidegraph audit forgetting`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from tidegraph.cli.options import JSON_OPTION, WRITABLE_FILE, option
from tidegraph.cli.terminal import Command, Group, console, echo_json, on_interrupt, progress

_DIRECTORY = click.Path(path_type=Path, file_okay=False, exists=True)
_NODE = option("--node", "As events call it.", required=True, metavar="NAME")


@click.command(cls=Command)
@click.argument("directory", type=_DIRECTORY)
@_NODE
@option("--refit", "Train a model anew, and delete those that learned from it.", is_flag=True)
@JSON_OPTION
def forget(directory: Path, node: str, refit: bool) -> None:
    """Remove a node from a run, a model, or a live state that no server has open.

    Its events and its name are deleted from every file, and all others computed anew without it. A
    run trains again, as tidegraph resume does; the weights of a model stay without --refit. A
    server that runs does the same by POST /v1/forget.
    """
    if _is_live(directory):
        _forget_live(directory, node, refit)
    else:
        _forget_offline(directory, node, refit)


def _is_live(directory: Path) -> bool:
    from tidegraph.live.log import FILE

    return (directory / FILE).is_file()


def _forget_live(directory: Path, node: str, refit: bool) -> None:
    from tidegraph.live.live import Live
    from tidegraph.live.settings import LiveSettings

    with Live.open(directory, settings=LiveSettings(learn=False)) as live:
        found = live.forget(node, refit=refit).plain()["data"]
    console().print(f"Forgot {node}: {found['events']:,} events", markup=False)
    if found["remains"]["models"]:
        names = ", ".join(found["remains"]["models"])
        console().print(f"What models learned from it remains ({names}); --refit learns anew")
    echo_json(found)


def _forget_offline(directory: Path, node: str, refit: bool) -> None:
    from tidegraph import runs

    on_interrupt("Nothing half-done counts; give the same command again.")
    with progress("forget") as report:
        done = runs.forget(directory, node, refit=refit, finish=False, progress=report)
    out = console()

    def say(line: str) -> None:
        out.print(line, markup=False, highlight=False, soft_wrap=True)

    say(f"Forgot {node}: {done.events:,} events")
    for source in done.outside:
        say(f"What it was read from still has the node; its owner has to remove it: {source}")
    for column in done.words:
        say(f"Events of others carry {node} as a word in the column {column}, which stays")
    if done.kind == "run":
        say(f"Done again: {', '.join(done.again)}. {done.estimate}")
        resume = f"tidegraph resume {shlex.quote(str(directory))}"
        on_interrupt(lambda: f"The node is gone already; {resume} makes the rest again.")
        with progress("run") as report:
            runs.Run.resumed(directory).execute(progress=report)
        say(f"The run in {directory} is finished without {node}")
    else:
        say(f"Made again: {', '.join(done.again)}")
    if done.remains["models"]:
        say("What the weights learned from it remains; --refit trains anew")
    echo_json(done.plain())


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

    DIRECTORY is that of a run, a model, or of tidegraph serve, which must not be running on it. The
    exit code is 1 if anything of the node is left.
    """
    if _is_live(directory):
        from tidegraph.live.forgetting import audit_forgetting
    else:
        from tidegraph.runs.forgetting import audit_forgetting

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
