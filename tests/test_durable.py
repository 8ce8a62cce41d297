"""Files that are whole or as they were, and directories with one writer."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from tidegraph.core.durable import only_writer, put_in_place, replace_file
from tidegraph.core.errors import StorageError

PACKAGE = Path(__file__).parents[1] / "src" / "tidegraph"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is renamed and what is made safe, by inode, in the order in which it happens."""
    seen: list[tuple[str, int]] = []
    replace, fsync = os.replace, os.fsync

    def seen_replace(source: Any, target: Any) -> None:
        seen.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    def seen_fsync(handle: int) -> None:
        seen.append(("sync", os.fstat(handle).st_ino))
        fsync(handle)

    monkeypatch.setattr(os, "replace", seen_replace)
    monkeypatch.setattr(os, "fsync", seen_fsync)
    return seen


def test_a_file_is_safe_before_it_has_its_name_and_the_name_is_safe_after(
    tmp_path: Path, calls: list[tuple[str, int]]
) -> None:
    path = tmp_path / "file"
    replace_file(path, "content")
    file, directory = path.stat().st_ino, tmp_path.stat().st_ino
    assert calls == [("sync", file), ("rename", file), ("sync", directory)]
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_writer_left_aside_is_used_up_by_the_next_where_there_is_one_at_a_time(
    tmp_path: Path,
) -> None:
    class Killed(BaseException):
        pass

    def dying(file: Any) -> None:
        file.write(b"half")
        # As after a kill, what was written stays: its name is changed before it can be removed.
        os.link(file.name, tmp_path / "left")
        raise Killed

    path = tmp_path / "file"
    with pytest.raises(Killed):
        replace_file(path, dying, only_writer=True)
    os.rename(tmp_path / "left", tmp_path / "file.new")
    replace_file(path, "whole", only_writer=True)
    assert path.read_text() == "whole"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_is_given_its_name_durably_too(
    tmp_path: Path, calls: list[tuple[str, int]]
) -> None:
    (tmp_path / "aside").mkdir()
    put_in_place(tmp_path / "aside", tmp_path / "whole")
    assert calls[-1] == ("sync", tmp_path.stat().st_ino)
    assert os.listdir(tmp_path) == ["whole"]


@pytest.mark.parametrize(
    "path",
    sorted(path for path in PACKAGE.rglob("*.py") if path.name != "durable.py"),
    ids=lambda path: str(path.name),
)
def test_nothing_is_renamed_but_by_what_makes_names_safe(path: Path) -> None:
    renaming = {
        f"{ast.unparse(node.func)}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        # Texts have a `replace` of two arguments, paths one of a single argument.
        and (
            node.func.attr in ("rename", "renames", "move")
            or (node.func.attr == "replace" and len(node.args) == 1 and not node.keywords)
            or ast.unparse(node.func) == "os.replace"
        )
    }
    assert renaming == set()


def test_a_file_system_without_locks_is_not_taken_for_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unknown)
    with pytest.raises(StorageError, match="flock"), only_writer(tmp_path):
        pass


def test_a_directory_has_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path),
        pytest.raises(StorageError, match=str(tmp_path)),
        only_writer(tmp_path),
    ):
        pass
    with only_writer(tmp_path):
        pass
