"""Every setting of a run, declared once: type, default, choices, range and meaning.

The estimators inherit their settings from the classes here. The command line, `--set`, TOML files,
sweeps, presets and the tables in docs/parameters.md read the same declarations (see
`core.declarations`). Imports neither NumPy nor torch, so that a mistyped setting is rejected at
once.
"""
# ruff: noqa: RUF009 (a field of a dataclass is declared by a call)

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from tidegraph.core.declarations import inherited, setting, validate
from tidegraph.core.errors import ParameterError

Task: TypeAlias = Literal["link", "node", "events"]
Protocol: TypeAlias = Literal["tgn", "tgb", "time", "roland"]
Knowledge: TypeAlias = Literal["event", "batch"]
Sampler: TypeAlias = Literal["random-dst", "random-all", "historical", "inductive"]
Format: TypeAlias = Literal["auto", "table", "jodie", "tgn", "tgl", "snap"]
OnBad: TypeAlias = Literal["error", "drop", "drop-many"]
EncoderName: TypeAlias = Literal["state", "lstm", "gru", "transformer"]
PairPart: TypeAlias = Literal["history", "local", "sketches"]
DecoderName: TypeAlias = Literal["pair", "concatenation", "hadamard"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)

# Beyond these, memory ends or float32 does before anything is learned.
_WIDEST = 16_384  # units of a layer
_MANY = 10_000
_LARGEST_SEED = 2**63 - 1  # the largest integer of TOML

# Half-lives ---------------------------------------------------------------------------------------


def default_half_lives(span: float) -> tuple[float, ...]:
    """Return the half-lives of the channels that forget, for a training period of this length.

    >>> default_half_lives(60.0)
    (2.0,)
    """
    return (span / 30,)


def activity_half_lives(span: float) -> tuple[float, ...]:
    """Return the half-lives over which recent activity is counted, for this training period."""
    return tuple(span / part for part in (3000, 300, 30, 3))


def default_epochs(examples: int) -> int:
    """Return the passes over so many examples, each a pair or a label.

    >>> default_epochs(100_000), default_epochs(600_000), default_epochs(2_000_000)
    (10, 5, 4)
    """
    examples = max(1, examples)
    enough = max(5, min(10, 1_500_000 // examples))  # few examples make few steps per pass
    return max(3, min(enough, 8_000_000 // examples))


# A run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which events to read, and how to understand a file of them."""

    name: str = setting(
        "",
        "the name of a data set, the path of a file, a pattern such as 'logs/*.csv', the address of"
        " a database, or - for standard input",
    )
    format: Format = setting("auto", "format of the file")
    query: str | None = setting(
        None, "rows of a database, as SQL or the name of a table; the sheet of a workbook"
    )
    src: str | None = setting(
        None, "the column that says who acts, by name or place (0 is the first); none: guessed"
    )
    dst: str | None = setting(None, "the column that says on whom; none: guessed")
    time: str | None = setting(None, "the column that says when; none: guessed")
    weight: str | None = setting(None, "the column that says how much, above 0")
    label: str | None = setting(
        None, "the column with the class of the event, or of its source at the event"
    )
    labels: str | None = setting(
        None,
        "a table of the classes of nodes; name columns that are not recognised after the file, as"
        " in FILE:node=COLUMN,label=COLUMN,time=COLUMN, and so side=src or side=dst and"
        " date-format=FORMAT",
    )
    node_features: tuple[str, ...] = setting(
        (), "tables of numbers and words about nodes, FILE or FILE:node=COLUMN,side=src"
    )
    edge_features: tuple[str, ...] = setting(
        (),
        "columns of numbers or words that describe events; the task events takes all others if"
        " none is named",
    )
    bipartite: bool | None = setting(
        None,
        "whether an id is one node as src and another as dst; none: if the names of the columns say"
        " so, as user and item",
    )
    unit: str | None = setting(
        None, "unit of the times, such as s or day; none: by their size s, ms, us or ns"
    )
    date_format: str | None = setting(
        None, "how dates are written, such as %d/%m/%y %H:%M; none: recognised"
    )
    decimal: Literal[".", ","] | None = setting(
        None, "the mark before the fractions of numbers; none: recognised"
    )
    sort: bool = setting(True, "whether to sort rows by time instead of rejecting unsorted ones")
    on_bad: OnBad = setting(
        "error", "what to do with a row that cannot be used; drop rejects more than 5 percent"
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How to divide events, and what to ask about those held out for the test."""

    protocol: Protocol = setting("tgn", "how to divide events")
    samplers: tuple[Sampler, ...] | None = setting(
        None,
        "samplers of negatives, such as random-dst,historical; none: these two, or no negatives"
        " where the protocol has none",
    )
    knowledge: Knowledge = setting(
        "event",
        "what is known when a test event is asked about: all before its time (event), or all before"
        " its batch of 200 (batch), as for EdgeBank, JODIE and DyRep in publications; the model is"
        " trained in the same way",
    )
    rank: bool = setting(False, "whether to rank all destinations too")
    rank_sample: int | None = setting(None, "rank for so many test events only", least=1)
    validation_after: int | float | str | None = setting(
        None, "when validation begins, for the protocol time: a number or an ISO date"
    )
    test_after: int | float | str | None = setting(
        None, "when the test begins, for the protocol time: a number or an ISO date"
    )
    snapshot_seconds: int | None = setting(
        None, "width of a snapshot, for the protocol roland; none: as published", least=1
    )
    first_test: int | None = setting(
        None, "the first test task of the protocol roland; none: as published", least=1
    )
    live: bool = setting(
        False, "whether the model goes on learning from snapshots once they are known"
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What to write besides the numbers."""

    html: bool = setting(True, "whether to write report.html", inert=True)
    tensorboard: bool = setting(False, "whether to write curves for TensorBoard", inert=True)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run that belong to no section."""

    task: Task = setting(
        "link", "link: which pairs meet; node: the classes of nodes; events: those of events"
    )
    seeds: tuple[int, ...] = setting(
        (0,), "one training per seed, such as 0,1,2", least=0, most=_LARGEST_SEED
    )
    preset: str | None = setting(
        None, "settings of the model by name, such as historical; none: those of the task"
    )
    quick: bool = setting(
        False,
        "whether to make a smaller, faster run, to look at and not to quote: 16 columns, 3 epochs"
        " and 20,000 examples unless others are given",
    )
    skip: tuple[Literal["heuristics"], ...] = setting(
        (), "what to leave out: heuristics, which the model is then not compared with", inert=True
    )
    keep: bool = setting(
        False, "whether to keep the models of all seeds, not just of the first", inert=True
    )


# A model ------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class RecordSettings:
    """Propagation and its record; models with the same of these can share a record."""

    columns: int = setting(
        32,
        "random feature columns per channel: more is finer and slower",
        "more where scores of look-alike nodes are too noisy; time and disk grow with it",
        least=1,
        most=_MANY,
    )
    distribution: Literal["gaussian", "uniform", "sign"] = setting(
        "gaussian",
        "distribution of random features: uniform ones lie between 0 and 1, so that sums of them"
        " count neighbours; the others are 0 on average, so that inner products tell nodes apart",
        "uniform for an encoder alone, which reads no inner products",
    )
    alpha: float = setting(
        0.2,
        "how local: the share that stays at a node each hop; 0.9 hardly looks beyond the node, 0.05"
        " looks far",
        above=0,
        below=1,
    )
    half_lives: Sequence[float] | None = setting(
        None,
        "half-lives of the channels that forget, as [60,3600] in the data's unit; none: one, a"
        " thirtieth of the training period",
        "where you know how long an event matters",
        least=1e-3,
    )
    high_pass: bool = setting(
        True, "whether to add filters that contrast neighbours to those that average them"
    )
    beta: float = setting(
        0.5, "how both ends' degrees share the normalisation; 0.5 is symmetric", least=0, most=1
    )
    r_max: float = setting(1e-2, "the promised error of representations, in r_max_unit", above=0)
    r_max_unit: Literal["rms", "absolute", "l1"] = setting(
        "rms", "unit of r_max: rms and l1 are those of a feature column"
    )
    scale_by_degree: bool = setting(
        True, "whether nodes with many edges are allowed a larger error"
    )
    epsilon: float = setting(
        0.05, "share of its norm a node moves before it is recorded again", least=0, below=1
    )
    dtype: Literal["float16", "float32"] = setting(
        "float16", "how numbers are recorded: float16 halves the record, at an error of 2^-11"
    )


RECORD_SETTINGS = tuple(each.name for each in dataclasses.fields(RecordSettings))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkSettings:
    """What a model reads, and its network."""

    edge_features: bool = setting(
        True,
        "whether to read the features of the latest events, where the data has any",
        "false where they will not be there when you ask",
    )
    encoder: EncoderName | Callable[..., Any] | None = setting(
        None,
        "a sequence model over a node's latest changes; in Python also a callable that makes an"
        " nn.Module from (columns, width)",
        "see whether validation gains; costs most of the training time",
    )
    encoder_options: dict[str, Any] | None = setting(
        None, 'options of the encoder, as {"heads": 4}'
    )
    window: int = setting(8, "how many of the latest changes an encoder sees", least=1, most=_MANY)
    width: int = setting(64, "width of an encoder's output", least=1, most=_WIDEST)
    hidden: int = setting(
        256, "width of the network's layers", "less for small data", least=1, most=_WIDEST
    )
    layers: int = setting(2, "hidden layers of the network", least=1, most=1000)
    dropout: float = setting(
        0.1, "share of its inputs that a layer drops in training", least=0, below=1
    )


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingSettings:
    """How to fit the network: Adam, with a learning rate that rises and then falls."""

    epochs: int | None = setting(
        None,
        "passes over the examples, at most; none: 5, up to 10 for fewer than 300,000 examples, and"
        " from 1.6 million on fewer, but 3 at least",
        "more where the curves still fall",
        least=1,
    )
    batch_size: int = setting(2000, "examples per step of training", least=1)
    in_order: bool = setting(
        False,
        "whether batches follow each other in time instead of being drawn at random",
        "with an encoder where many events share a time: it then encodes a node once for all",
    )
    learning_rate: float = setting(
        3e-3, "the highest learning rate of the training", above=0, below=100
    )
    patience: int | None = setting(
        5,
        "epochs without a better validation score after which to stop, with the network of the best"
        " one; none: train through all, and keep the last",
        least=1,
    )
    seed: int = setting(
        0,
        "seed of features, weights and negatives",
        "several, to see the spread",
        least=0,
        most=_LARGEST_SEED,
        by_run=True,
    )
    device: str = setting("cpu", "where to train the network, such as cpu or cuda")


@dataclass(kw_only=True, eq=False, repr=False)
class ModelSettings(TrainingSettings, NetworkSettings, RecordSettings):
    """The settings that all models share."""

    model: ClassVar[str]  # the class that has these settings

    max_examples: int = setting(
        200_000,
        "how many events or labels to train on, the latest ones",
        "memory and time grow with it",
        least=1,
    )
    threads: int | None = setting(
        None, "threads of the propagation; none: all cores", least=1, inert=True
    )
    path: str | PathLike[str] | None = setting(
        None, "where to keep the record; none: a temporary directory", by_run=True, inert=True
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(kw_only=True, eq=False, repr=False)
class LinkSettings(ModelSettings):
    """The settings of `LinkPredictor`."""

    model = "LinkPredictor"

    # The learning rate falls until the last epoch, and networks of early ones do worse later on.
    patience: int | None = inherited(TrainingSettings, "patience", None)
    learning_rate: float = inherited(TrainingSettings, "learning_rate", 6e-3)
    hidden: int = setting(
        256,
        "width of the network's first layer; with the decoder pair the others have a quarter of it,"
        " but at least 64 where the first has",
        "less for small data",
        least=1,
        most=_WIDEST,
    )
    # Examples are many, and passes over them few.
    dropout: float = inherited(NetworkSettings, "dropout", 0.0)
    decoder: DecoderName | Callable[..., Any] = setting(
        "pair",
        "how to combine two nodes, where all but pair need an encoder; in Python also a callable"
        " that makes an nn.Module from (width, pair, hidden=, layers=, dropout=)",
        "the others do worse",
    )
    pair_features: tuple[PairPart, ...] = setting(
        ("history", "local"),
        "what to read of a pair: history, counts and gaps of both nodes and of the pair; local,"
        " walks over the latest events of both; sketches, products of representations",
        "to see what each part adds",
    )
    random_negatives: int = setting(
        6,
        "negatives per event with the same source and a random destination; of several, one is any"
        " node",
        "more helps ranking",
        least=0,
        most=_MANY,
    )
    past_negatives: int = setting(
        1,
        "negatives per event that are pairs which met before",
        "more to predict *when* (historical negatives), at the price of *who*",
        least=0,
        most=_MANY,
    )
    past_weight: float = setting(0.3, "weight of each of those in the loss", least=0, most=_MANY)
    any_node: bool = setting(
        False, "whether random negatives come from all nodes, not just from destinations"
    )
    knowledge: Knowledge = setting(
        "event",
        "what the model learns to answer from: all before each event, or all before its batch of"
        " 200; set by the protocol of an evaluation",
        by_run=True,
    )

    def __post_init__(self) -> None:
        if isinstance(self.pair_features, list):  # as files have it
            self.pair_features = tuple(self.pair_features)
        super().__post_init__()
        if not self.pair_features:
            raise ParameterError(
                f"pair_features is empty; give some of {', '.join(get_args(PairPart))}"
            )
        if self.encoder is None and self.decoder in ("concatenation", "hadamard"):
            raise ParameterError(f"decoder {self.decoder!r} needs an encoder; 'pair' does not")
        if not self.random_negatives + self.past_negatives:
            raise ParameterError(
                "random_negatives and past_negatives are 0; at least one negative per event is"
                " needed"
            )


@dataclass(kw_only=True, eq=False, repr=False)
class ClassSettings(ModelSettings):
    """The settings of classifiers; labels are fewer than pairs, so their networks are small."""

    columns: int = inherited(RecordSettings, "columns", 64)
    hidden: int = inherited(NetworkSettings, "hidden", 64)
    epochs: int | None = inherited(TrainingSettings, "epochs", 12)
    batch_size: int | None = setting(  # type: ignore[assignment]
        None, "labels per step of training; none: a fiftieth of them, from 64 to 2,000", least=1
    )
    known_labels: bool = setting(
        True,
        "whether to read labels of the node and of those it met, or of earlier events of both ends,"
        " as far as known by then",
        "false where labels will not be there when you ask",
    )
    members: int = setting(
        4,
        "networks whose answers are averaged",
        "1 is faster, with more spread between seeds",
        least=1,
        most=1000,
    )
    weight_decay: float = setting(
        1e-4,
        "how strongly weights are drawn towards zero",
        "more where training and validation part early",
        least=0,
        below=100,
    )
    balance: float = setting(
        0.5,
        "the power of its rarity that a class weighs: 0 as frequent as in the data, 1 all alike",
        "0 for probabilities as frequent as the data; 1 where only the rare class counts",
        least=0,
        most=1,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class NodeSettings(ClassSettings):
    """The settings of `NodeClassifier`."""

    model = "NodeClassifier"

    states: bool | None = setting(
        None, "whether to read representations themselves; none: where nodes have features"
    )
    since_first: bool = setting(
        False, "whether to read these as differences from those before the first event"
    )
    products: bool = setting(
        True, "whether to read norms and inner products of the node's representations"
    )
    activity: bool = setting(
        True, "whether to read how often and when the node and its last partner met others"
    )
    ask_after: int = setting(
        0,
        "how long after the time of a label it is asked for",
        "1 where the events of the same time, such as the one labelled, may be known",
        least=0,
        below=2**62,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class EventSettings(ClassSettings):
    """The settings of `EventClassifier`."""

    model = "EventClassifier"

    label_delay: int = setting(
        0,
        "how long after an event its label becomes known, in the data's unit of time",
        "where it takes time to find out, as with fraud",
        least=0,
        below=2**62,
    )


TASKS: Mapping[str, type[ModelSettings]] = {
    "link": LinkSettings,
    "node": NodeSettings,
    "events": EventSettings,
}


def task_name(task: str) -> str:
    """Return the name of a task, which may be given in the singular or the plural.

    >>> task_name("nodes"), task_name("node")
    ('node', 'node')
    """
    return next((name for name in TASKS if name.rstrip("s") == task.rstrip("s")), task)


def model_settings_of(task: str) -> type[ModelSettings]:
    """Return the class that declares the settings of a task's model."""
    if task not in TASKS:
        raise ParameterError(f"task is {task!r}; give one of {', '.join(TASKS)}")
    return TASKS[task]


SECTIONS: Mapping[str, type] = {"data": Data, "evaluation": Evaluation, "report": Report}
