"""Numbers as people write them: counts of things, amounts of bytes."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural where needed.

    >>> counted(1, "event"), counted(2000, "event"), counted(2, "pass")
    ('1 event', '2,000 events', '2 passes')
    """
    several = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else several}"


def bytes_in_words(size: int) -> str:
    """Return a number of bytes with a suitable unit.

    >>> bytes_in_words(534_000_000)
    '534 MB'
    """
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"
