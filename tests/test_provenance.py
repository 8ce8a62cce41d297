"""Results are kept under the code that made them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidegraph.core import provenance


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("engine/propagator.py", True),
        ("evaluation/metrics.py", True),
        ("new.py", True),
        ("events/tables/new.py", True),
        ("cli/run.py", False),
        ("core/display.py", False),
        ("reproduce/published.toml", False),
    ],
)
def test_a_change_of_what_computes_is_another_code(
    file: str, matters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = provenance.code_digest()
    package = tmp_path / "tidegraph"
    shutil.copytree(Path(provenance.__file__).parents[1], package)
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    assert provenance.code_digest.__wrapped__() == ours  # wherever it lies
    with (package / file).open("a", encoding="utf-8") as source:
        source.write("\n")
    assert (provenance.code_digest.__wrapped__() != ours) == matters


def test_a_native_module_that_was_built_anew_is_another_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        origin = str(tmp_path / "_native.so")

    ours = provenance.code_digest()
    (tmp_path / "_native.so").write_bytes(b"built anew")
    monkeypatch.setattr(provenance, "find_spec", lambda name: Spec)
    assert provenance.code_digest.__wrapped__() != ours
