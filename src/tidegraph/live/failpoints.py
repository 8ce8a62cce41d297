"""Points at which a test kills the process, to see what a crash there leaves behind.

`TIDEGRAPH_FAILPOINT=log.commit.before:3` kills it as it reaches that point for the third time.
"""

from __future__ import annotations

import os
import signal

NAMES = (
    "log.create.before",
    "log.create.after",
    "log.insert.before",
    "log.insert.after",
    "log.commit.before",
    "log.commit.after",
    "log.checkpoint.before",
    "log.checkpoint.after",
    "log.compact.before",
    "log.compact.after",
    "log.forget.before",
    "log.forget.after",
    "log.purge.before",
    "log.purge.after",
    "state.apply.before",
    "state.apply.after",
    "snapshot.write.before",
    "snapshot.rename.before",
    "snapshot.rename.after",
    "snapshot.prune.before",
    "snapshot.prune.after",
    "version.write.before",
    "version.rename.before",
    "version.switch.before",
    "version.switch.after",
)
_point = ""
_left = 0


def arm(where: str) -> None:
    """Let the process die at a point, at the time given after a colon: the first one by default."""
    global _point, _left
    _point, _, times = where.partition(":")
    _left = int(times or 1)


def reach(name: str) -> None:
    """Kill the process if this is where, and when, it is to die."""
    global _left
    if name == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("TIDEGRAPH_FAILPOINT", ""))
