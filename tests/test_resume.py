"""Interrupted work is resumed by its inputs, and never mixed with work on other inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidegraph.core.errors import StateFileError, StorageError
from tidegraph.core.resume import (
    fingerprint,
    make_directory,
    read_json,
    require_same,
    resume_or_create,
    write_json,
)

WORDS: dict[str, Any] = {"file": "work.json", "kind": "a sweep", "advice": "give another directory"}


def test_a_fingerprint_depends_on_names_and_values_and_not_on_their_order() -> None:
    assert fingerprint(a=1, b=[2, None]) == fingerprint(b=[2, None], a=1)
    others = [fingerprint(a=1, b=[2]), fingerprint(a=2, b=[2, None]), fingerprint(c=1, b=[2, None])]
    assert fingerprint(a=1, b=[2, None]) not in others


def test_work_with_the_same_inputs_is_resumed(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    inputs = {"events": "abc", "times": (1, 2)}
    assert not resume_or_create(place, inputs, **WORDS)
    assert json.loads((place / "work.json").read_text()) == {"events": "abc", "times": [1, 2]}
    (place / "result").touch()
    assert resume_or_create(place, inputs, **WORDS)


def test_work_with_other_inputs_is_rejected_and_the_difference_named(tmp_path: Path) -> None:
    resume_or_create(tmp_path, {"events": "abc", "alpha": 0.2}, **WORDS)
    with pytest.raises(StateFileError, match=r"a sweep with alpha 0\.2, .* 0\.3; give another"):
        resume_or_create(tmp_path, {"events": "abc", "alpha": 0.3}, **WORDS)
    assert resume_or_create(tmp_path, {"events": "abc", "alpha": 0.2}, **WORDS)


def test_inputs_may_change_until_there_is_a_result(tmp_path: Path) -> None:
    result = tmp_path / "result"
    resume_or_create(tmp_path, {"alpha": 0.2}, result=result, **WORDS)
    assert not resume_or_create(tmp_path, {"alpha": 0.3}, result=result, **WORDS)
    result.touch()
    with pytest.raises(StateFileError, match=r"alpha 0\.3"):
        resume_or_create(tmp_path, {"alpha": 0.2}, result=result, **WORDS)


def test_a_foreign_directory_is_rejected_and_one_of_a_killed_write_is_not(tmp_path: Path) -> None:
    foreign, killed = tmp_path / "foreign", tmp_path / "killed"
    for directory, name in ((foreign, "letter.txt"), (killed, "work.json.part17")):
        directory.mkdir()
        (directory / name).touch()
    with pytest.raises(StateFileError, match=f"{foreign} is not a sweep"):
        resume_or_create(foreign, {"alpha": 0.2}, **WORDS)
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]
    assert not resume_or_create(killed, {"alpha": 0.2}, **WORDS)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    write_json(path, {"ap": 0.5})
    assert read_json(path) == {"ap": 0.5}
    path.write_text("{")
    with pytest.raises(StateFileError, match=f"{path} is damaged"):
        read_json(path)


def test_an_input_inside_another_is_named_with_it(tmp_path: Path) -> None:
    before = {"settings": {"beta": 0.5, "r_max": 0.01}, "more": 1}
    require_same(tmp_path, before, {"settings": {"beta": 0.5, "r_max": 0.01}}, kind="x", advice="y")
    for now, facts in (
        ({"beta": 0.5, "r_max": 0.1}, r"settings\.r_max 0\.01, .* 0\.1; y"),
        ({"beta": 0.5}, r"settings\.r_max 0\.01, .* None; y"),
    ):
        with pytest.raises(StorageError, match=facts):
            require_same(
                tmp_path, before, {"settings": now}, kind="x", advice="y", error=StorageError
            )


def test_a_file_is_no_place_for_work(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(StorageError, match=r"letter\.txt is a file"):
        make_directory(tmp_path / "letter.txt")
