"""Full disks, too little memory, damaged blocks: errors, what survives, and resuming."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tidegraph import EventStream, Sketch, record_shards
from tidegraph.cli import main
from tidegraph.core.errors import DataError, StorageError
from tidegraph.engine import building, compact
from tidegraph.engine.embeddings import Embeddings
from tidegraph.engine.passes import propagate_in_passes
from tidegraph.engine.planning import pass_bytes

NODES, EDGES = 20_000, 60_000
ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are set as Linux does")


def prepare(path: Path) -> None:
    """Write the inputs of all jobs."""
    src, dst = np.random.default_rng(0).integers(0, NODES, (2, EDGES))
    pq.write_table(pa.table({"src": src, "dst": dst}), path / "edges.parquet")
    building.build(path / "edges.parquet", path / "graph", nodes=NODES)
    EventStream(src[:3000] % 500, dst[:3000] % 500, np.arange(3000)).save(path / "events.tide")


def build(inputs: Path, out: Path) -> None:
    building.build(inputs / "edges.parquet", out, nodes=NODES)


def propagate(inputs: Path, out: Path) -> None:
    graph = compact.open_graph(inputs / "graph")
    four = pass_bytes(NODES, 4, 1)  # columns at a time
    propagate_in_passes(graph, Sketch(12), out, memory=four, threads=1)


def propagate_at_once(inputs: Path, out: Path) -> None:
    graph = compact.open_graph(inputs / "graph")
    propagate_in_passes(graph, Sketch(96), out, memory="1G", threads=1)


def shards(inputs: Path, out: Path) -> None:
    record_shards(inputs / "events.tide", Sketch(12), out, shards=3, segment_bytes=1 << 16)


WORKS: dict[str, Callable[[Path, Path], None]] = {
    "build": build,
    "propagate": propagate,
    "shards": shards,
}


def content(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    }


# A disk that fills up, and one that is given more room -----------------------------------------


def fill_up(work: str, place: Path, kind: str) -> None:
    """Run a job with too little room, three times with more each time, then with enough.

    kind: "disk" is a small file system of memory, "file" a limit of the length of files.
    """
    import resource

    prepare(place)
    whole = place / "whole"
    WORKS[work](place, whole)
    sizes = [file.stat().st_size for file in whole.rglob("*") if file.is_file()]
    needed = sum(sizes) if kind == "disk" else max(sizes)
    room = place / "room"
    room.mkdir()
    if kind == "disk":
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(room)], check=True)

    def limit(size: int) -> None:
        if kind == "disk":
            subprocess.run(["mount", "-o", f"remount,size={size}", str(room)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    for share in (0.1, 0.5, 0.9):
        limit(int(share * needed))
        try:
            WORKS[work](place, room / "out")
        except StorageError as error:
            print(" ".join(str(error).split()))
        else:
            raise AssertionError(f"{share} of the room was enough")
    limit(64 << 20)
    WORKS[work](place, room / "out")
    assert content(room / "out") == content(whole)
    if kind == "disk":
        subprocess.run(["umount", str(room)], check=True)


def in_a_process(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = "from tests.test_faults import *; " + "; ".join(words)
    return subprocess.run(
        [*before, sys.executable, "-c", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def own_mounts() -> bool:
    """Return whether a process may mount a file system that only it sees."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("work", list(WORKS))
@pytest.mark.parametrize("kind", ["disk", "file"])
def test_a_job_that_met_a_full_disk_ends_with_the_same_bytes_once_there_is_room(
    tmp_path: Path, work: str, kind: str
) -> None:
    if kind == "disk" and not own_mounts():
        pytest.skip("mounting a small file system takes rights that this user does not have")
    before = ("unshare", "--mount") if kind == "disk" else ()
    done = in_a_process(f"fill_up({work!r}, Path({str(tmp_path)!r}), {kind!r})", before=before)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert ("No space left" if kind == "disk" else "File too large") in line
        assert "make room" in line or "free some space" in line


# Too little memory -----------------------------------------------------------------------------

STARVED = """
import resource
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
taken = 1024 * int(lines["VmData"].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (taken + {room}, resource.RLIM_INFINITY))
try:
    {call}
except tidegraph.ShortOfMemoryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
{call}
"""


@pytest.mark.parametrize("work", [build, propagate_at_once])
def test_a_job_that_ran_out_of_memory_reports_it_and_can_be_repeated(
    tmp_path: Path, work: Callable[[Path, Path], None]
) -> None:
    prepare(tmp_path)
    work(tmp_path, tmp_path / "whole")
    out = tmp_path / "out"
    script = STARVED.format(
        room=1 << 18, call=f"{work.__name__}(Path({str(tmp_path)!r}), Path({str(out)!r}))"
    )
    done = in_a_process(f"import tidegraph; exec({script!r})")
    assert done.returncode == 0, done.stderr
    assert "repeat the command" in done.stdout
    assert content(out) == content(tmp_path / "whole")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_a_command_without_memory_to_start_reports_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def starting(failing: Exception) -> Callable[..., None]:
        def start(_: threading.Thread) -> None:
            raise failing

        return start

    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    order = ["graph", "build", str(tmp_path / "edges.csv"), "-o", str(tmp_path / "graph")]
    monkeypatch.setattr(threading.Thread, "start", starting(error))
    ended = CliRunner().invoke(main, order)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Error: the system denied memory")
    assert ended.stderr.count("\n") == 1
    monkeypatch.setattr(threading.Thread, "start", starting(RuntimeError("a fault")))
    assert str(CliRunner().invoke(main, order).exception) == "a fault"


# Damage ----------------------------------------------------------------------------------------


def test_the_error_names_a_damaged_block_of_embeddings(tmp_path: Path) -> None:
    prepare(tmp_path)
    out = tmp_path / "out"
    propagate(tmp_path, out)
    Embeddings.open(out, verify=True)
    block = out / "block-001.npy"
    data = bytearray(block.read_bytes())
    data[-100] ^= 1
    block.write_bytes(data)
    with pytest.raises(DataError, match=r"block-001\.npy"):
        Embeddings.open(out, verify=True)
    block.write_bytes(data[:-8])
    with pytest.raises(DataError):
        Embeddings.open(out)
