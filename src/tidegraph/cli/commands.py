"""The command `tidegraph`: all commands, which import what is heavy when they run."""

from __future__ import annotations

import os
import sys

import click

from tidegraph.cli.append import append
from tidegraph.cli.bench import bench
from tidegraph.cli.compare import compare
from tidegraph.cli.data import data
from tidegraph.cli.demo import demo
from tidegraph.cli.embeddings import embeddings
from tidegraph.cli.evaluate import evaluate
from tidegraph.cli.explain import explain
from tidegraph.cli.forgetting import audit, forget
from tidegraph.cli.ingest import ingest
from tidegraph.cli.predict import predict
from tidegraph.cli.record import record
from tidegraph.cli.report import report
from tidegraph.cli.reproduce import reproduce
from tidegraph.cli.run import resume, run
from tidegraph.cli.scale import graph, plan, propagate
from tidegraph.cli.serve import serve
from tidegraph.cli.sweep import sweep
from tidegraph.cli.terminal import Command, Group
from tidegraph.cli.train import train
from tidegraph.cli.verify import verify


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(package_name="tidegraph", prog_name="tidegraph")
def main() -> None:
    """Predict from a table of timestamped edges, and keep representations of nodes up to date.

    Features are propagated over a graph; when edges come and go, only what changes is recomputed,
    and a bound on the distance from the exact solution is available at any moment.

    \b
    From a table of events to answers:
      tidegraph demo                                     a year of flights, in seconds
      tidegraph data info calls.csv                      how a table is understood
      tidegraph run calls.csv                            everything, with a report to look at
      tidegraph resume runs/calls                        finish a run that was interrupted
      tidegraph predict runs/calls --src ann --rank 5    whom ann will most likely meet next
      tidegraph compare runs/a runs/b                    numbers and settings of several runs
      tidegraph train calls.csv -o calls.model           learn who meets whom, and when
      tidegraph append calls.model today.csv             answer from later events, too
      tidegraph embeddings calls.model -o nodes.parquet  the numbers behind every node
      tidegraph evaluate calls.csv                       how good that is, next to heuristics

    \b
    While events arrive:
      tidegraph serve --dir live                         answer over HTTP, with a page
      tidegraph ingest today.csv --to http://127.0.0.1:8000

    \b
    The engine:
      tidegraph verify nyc-flights --steps 2000          compare with exact solutions
      tidegraph bench propagation --only latency         measure this machine
      tidegraph explain --help                           which events moved a node

    \b
    In Python:
      from tidegraph import Batch, Propagator, Sketch
      propagator = Propagator(Sketch(columns=64), nodes=1000)
      touched = propagator.apply(Batch(src=[3], dst=[7]))
      propagator.embedding(touched), propagator.error_bound(touched)

    Data sets that are not shipped are looked for in $TIDEGRAPH_DATA and
    in the cache, where tidegraph data fetch puts them.
    Progress goes to standard error, results to standard output; with --json the last line of
    standard output is one JSON object.
    """
    # torch's threads spin while they wait for each other; on a busy machine training then takes
    # several times as long. This has an effect only before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and data sets.

    \b
      bash   eval "$(tidegraph completion bash)" in ~/.bashrc
      zsh    eval "$(tidegraph completion zsh)" in ~/.zshrc, after compinit
      fish   tidegraph completion fish > ~/.config/fish/completions/tidegraph.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "tidegraph", "_TIDEGRAPH_COMPLETE").source())
    if sys.stdout.isatty():  # a person reads it, not a shell
        click.echo("tidegraph completion --help shows where this belongs", err=True)


for command in (
    *(run, resume, report, compare, train, append, predict, embeddings, evaluate, sweep, data),
    *(serve, ingest),
    *(explain, verify, record, graph, plan, propagate, bench, reproduce, demo, completion),
    *(forget, audit),
):
    main.add_command(command)
