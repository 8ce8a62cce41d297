"""Measure the peak memory of scanning a large Parquet file of events, with every chunk checked.

python benchmarks/scan_memory.py [--rows 200000000] [--nodes 10000000] [--directory SCRATCH]

The file is generated in bounded memory, scanned in a new process for each way of numbering nodes,
and deleted. The result is printed as JSON and, with --out, written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.bench.results import circumstances, script_command, write_json

CHUNK = 1 << 20

# Not getrusage: its maximum includes the size of the parent process.
SCAN = """
import json, sys, time
import numpy as np
import tidegraph
begin = time.perf_counter()
scan = tidegraph.scan_table(sys.argv[1], ids=sys.argv[2])
rows = weight = 0
for chunk in scan:
    rows += len(chunk)
    weight += int((chunk.dst - chunk.src).sum())
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({
    "ids": sys.argv[2],
    "rows": rows,
    "nodes": scan.nodes,
    "peak_rss_mb": round(int(peak.split()[1]) / 1024, 1),
    "seconds": round(time.perf_counter() - begin, 1),
}))
"""


def generate(path: Path, rows: int, nodes: int) -> None:
    """Write events between random nodes, several per second, in row groups of a million."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    schema = pa.schema([(name, pa.int64()) for name in ("src", "dst", "t")])
    encoding = dict.fromkeys(schema.names, "DELTA_BINARY_PACKED")
    with pq.ParquetWriter(
        path, schema, compression="none", use_dictionary=False, column_encoding=encoding
    ) as writer:
        clock = 0
        for first in range(0, rows, CHUNK):
            size = min(CHUNK, rows - first)
            t = clock + np.cumsum(random.integers(0, 2, size))
            clock = int(t[-1])
            ids = random.integers(0, nodes, (2, size))
            writer.write_table(pa.table([ids[0], ids[1], t], schema=schema))


def scan(path: Path, ids: str) -> dict[str, Any]:
    """Scan the file in a new process; return its peak memory and time."""
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(path), ids], check=True, capture_output=True, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=200_000_000)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "events.parquet"
        begin = time.perf_counter()
        generate(path, options.rows, options.nodes)
        result = {
            **circumstances(script_command()),
            "rows": options.rows,
            "nodes": options.nodes,
            "file_mb": round(path.stat().st_size / 2**20, 1),
            "seconds_to_generate": round(time.perf_counter() - begin, 1),
            "scans": [scan(path, ids) for ids in ("keep", "number")],
        }
    print(json.dumps(result, indent=2))
    if options.out is not None:
        write_json(result, options.out)


if __name__ == "__main__":
    main()
