"""Docstrings of tidegraph as Markdown.

Arguments are written as `name: what it means`, one per line with the rest indented, which becomes a
list; examples after `>>>` become blocks of code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ARGUMENT = re.compile(r"(?P<names>\w+(, \w+)*): (?P<text>\S.*)")


def as_markdown(text: str) -> str:
    """Return the docstring with lists for arguments and fences around examples.

    >>> print(as_markdown("Do it.\\n\\nspeed: how fast,\\n    in m/s\\n\\n>>> 1 + 1\\n2"))
    Do it.
    <BLANKLINE>
    - `speed`: how fast,
        in m/s
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_paragraph(lines) for lines in re.split(r"\n\s*\n", text.strip("\n")))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    arguments = [_ARGUMENT.fullmatch(line) for line in lines]
    others = (line for line, match in zip(lines, arguments, strict=True) if match is None)
    if arguments[0] is None or any(not line.startswith("    ") for line in others):
        return text
    out = []
    for line, match in zip(lines, arguments, strict=True):
        if match is None:
            out.append(line)
        else:
            names = ", ".join(f"`{name}`" for name in match["names"].split(", "))
            out.append(f"- {names}: {match['text']}")
    return "\n".join(out)


class Docstrings(griffe.Extension):
    """Rewrites docstrings while the package is read, and leaves out special methods."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name in [name for name in cls.members if name.startswith("__")]:
            if name != "__init__":
                cls.del_member(name)
