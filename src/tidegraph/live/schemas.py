"""Bodies and answers of the service as pydantic models: what requests are checked against, and
what `/openapi.json` describes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

MOST_PAIRS = 10_000
MOST_NODES = 1_000

Name = str | int
Moment = int | str


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Event(BaseModel):
    """One event: `src` and `dst`, or `node` for one that is removed or changed."""

    model_config = ConfigDict(extra="allow")

    src: Name | None = Field(None, description="who acts")
    dst: Name | None = Field(None, description="on whom")
    t: Moment | None = Field(
        None, description="when: a number in the unit of the server, or an ISO date; none: now"
    )
    id: str | int | None = Field(
        None, description="a repeated event with the same id changes nothing"
    )
    op: str | None = Field(None, description="add (the default), remove or set")
    weight: float | None = Field(None, description="of the edge; none: 1")
    node: Name | None = Field(None, description="a node that is removed, or gets features")
    features: list[float] | None = None


class ScoreBody(_Body):
    """Pairs to score, as `src` and `dst` of the same length, or as `pairs`."""

    src: Name | list[Name] | None = None
    dst: Name | list[Name] | None = None
    pairs: list[tuple[Name, Name]] | None = Field(
        None, max_length=MOST_PAIRS, description="instead of src and dst", strict=False
    )
    at: Moment | None = Field(None, description="as of this time; none: now")


class PairBody(_Body):
    """A pair to explain."""

    src: Name
    dst: Name
    at: Moment | None = Field(None, description="as of this time; none: now")


class ForgetBody(_Body):
    """A node to forget."""

    node: Name
    refit: StrictBool = Field(False, description="whether to learn anew without it")


class TrainBody(_Body):
    """How to train."""

    wait: StrictBool = Field(False, description="whether to answer only once it is trained")


class RollbackBody(_Body):
    """The version to go back to."""

    version: str


# Answers ------------------------------------------------------------------------------------------


class Receipt(BaseModel):
    """What became of the events of a request. They are on disk when this arrives."""

    accepted: int
    duplicate: int = Field(description="events whose id, or request whose key, was known")
    late: int = Field(description="events before the watermark, rejected or applied now")
    seq: int = Field(description="of the last event that was taken in")
    first_seq: int | None
    watermark: int | None = Field(description="events before this time are late")
    applied: bool = Field(description="whether answers already reflect these events")
    unit: str
    as_of_seq: int
    as_of_time: int | None
    error: None = None


class Answer(BaseModel):
    """An answer, with the moment it stands for."""

    as_of_seq: int = Field(description="the last event that it reflects")
    as_of_time: int | None = Field(description="the time that it is for")
    error: Any = Field(
        None, description="the certified error of representations that were read, else null"
    )
    version: str = Field(description="of the model, or heuristics")
    data: dict[str, Any]


class Figures(BaseModel):
    """Numbers about the server, with the moment they stand for."""

    model_config = ConfigDict(extra="allow")

    as_of_seq: int
    as_of_time: int | None
    error: Any = None


class Problem(BaseModel):
    """What is wrong with a request, and what to do."""

    code: str
    message: str
    line: int | None = Field(None, description="of the body, from 1 on")
    field: str | None = None


class Failed(BaseModel):
    """The answer to every request that failed."""

    error: Problem


class State(BaseModel):
    """Whether the server is there."""

    status: Literal["ok", "stopping"]
