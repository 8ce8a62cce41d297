"""Where the tests find what the repository does not hold: a directory `shared` next to it."""

from __future__ import annotations

import os
from pathlib import Path

_SHARED = Path(__file__).parents[2] / "shared"

for _variable, _folder in (("TIDEGRAPH_DATA", "data"), ("TIDEGRAPH_YARDSTICK", "yardstick")):
    if (_SHARED / _folder).is_dir():
        os.environ.setdefault(_variable, str(_SHARED / _folder))
