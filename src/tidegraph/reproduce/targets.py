"""All targets: the tables and figures of the paper, and two of our own."""

from __future__ import annotations

from tidegraph.reproduce.accuracy import (
    CTDG_LINK,
    DTDG_LINK,
    LARGE,
    NODE_CLASSIFICATION,
    SAMPLERS,
)
from tidegraph.reproduce.studies import (
    ABLATION_HIGH_PASS,
    ERROR_VS_SPEED,
    SENSITIVITY,
    TIME_COST,
    TIME_ENCODING,
)

__all__ = ["TARGETS"]

TARGETS = {
    target.name: target
    for target in (
        CTDG_LINK,
        NODE_CLASSIFICATION,
        DTDG_LINK,
        LARGE,
        ABLATION_HIGH_PASS,
        TIME_ENCODING,
        SENSITIVITY,
        TIME_COST,
        SAMPLERS,
        ERROR_VS_SPEED,
    )
}
