"""The colours of every page that tidegraph writes, as CSS variables for light and dark screens."""

from __future__ import annotations

SERIES = 6  # colours of series, c0 to c5, which most eyes can distinguish in both schemes
GREY = 6  # c6, for what belongs to no series

LIGHT = """--ink: #1d2530; --soft: #596575; --line: #dfe3e8; --paper: #ffffff; --card: #f6f7f9;
  --good: #14713d; --bad: #a8341c;
  --c0: #1f66b0; --c1: #c2570c; --c2: #15805f; --c3: #9a3f93; --c4: #8a6d00; --c5: #3b8fb8;
  --c6: #8b929c;"""
_DARK = """--ink: #e5e9ef; --soft: #9ca7b5; --line: #333b46; --paper: #13171c; --card: #1b2027;
  --good: #66cc8f; --bad: #f09a80;
  --c0: #6aaef2; --c1: #f0975a; --c2: #55c9a1; --c3: #d990d2; --c4: #d9bd4f; --c5: #86cfee;
  --c6: #7d8794;"""

SCHEMES = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
"""
SERIES_CLASSES = " ".join(f".c{k} {{ color: var(--c{k}); }}" for k in range(GREY + 1))
