"""Where tests find data that is not shipped: beside the project, unless the environment says."""

from __future__ import annotations

import os
from pathlib import Path

_SHARED = Path(__file__).parents[2] / "shared"

# In the environment, so that the commands which tests start find it as well.
os.environ.setdefault("TIDEGRAPH_DATA", str(_SHARED / "data"))
os.environ.setdefault("TIDEGRAPH_YARDSTICK", str(_SHARED / "yardstick"))
