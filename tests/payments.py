"""Payments with fraud rings, made for tests: what is fraud depends on more than the payment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

_CHANNELS = ("card", "transfer", "app", "cash")


def payments(events: int = 20_000, *, accounts: int = 1_500, seed: int = 0) -> pd.DataFrame:
    """Return payments in order of time: payer, payee, when, amount, channel, device, outcome.

    People pay a few others again and again. From time to time a ring starts: some accounts that
    were ordinary until then collect from victims who never paid them before, for some days, with
    amounts a little above the usual and more often by transfer. Each of its payments is fraud with
    a probability that grows with the amount, so amount and channel alone say little.
    """
    random = np.random.default_rng(seed)
    usual = [random.choice(accounts, 6, replace=False) for _ in range(accounts)]
    activity = random.pareto(1.5, accounts) + 0.2
    activity /= activity.sum()
    level = random.normal(3.5, 0.6, accounts)  # the logarithm of what an account usually pays
    when = np.sort(random.integers(0, 180 * 86_400, events)) + 1_704_067_200
    collectors: list[tuple[int, int]] = []  # account, and until when it collects
    rows = []
    for t in when.tolist():
        collectors = [(account, end) for account, end in collectors if end > t]
        if random.random() < 30 / events and len(collectors) < 12:
            members = random.choice(accounts, 3, replace=False).tolist()
            collectors += [
                (account, t + int(random.exponential(12 * 86_400))) for account in members
            ]
        payer = int(random.choice(accounts, p=activity))
        bad = bool(collectors) and random.random() < 0.06
        payee = (
            collectors[random.integers(len(collectors))][0]
            if bad
            else int(
                usual[payer][random.integers(6)]
                if random.random() < 0.8
                else random.integers(accounts)
            )
        )
        logarithm = random.normal(level[payer] + (0.5 if bad else 0.0), 0.8)
        likely = [0.25, 0.45, 0.25, 0.05] if bad else [0.45, 0.25, 0.2, 0.1]
        fraud = bad and random.random() < 1 / (1 + np.exp(3 - logarithm))
        rows.append(
            (
                f"A{payer:04d}",
                f"A{payee:04d}",
                t,
                round(float(np.exp(logarithm)), 2) if random.random() > 0.02 else None,
                _CHANNELS[random.choice(4, p=likely)],
                f"device {payer * 7 % 997}",
                "fraud" if fraud else "ok",
            )
        )
    columns = ["payer", "payee", "when", "amount", "channel", "device", "outcome"]
    return pd.DataFrame(rows, columns=columns)


def payments_file(path: Path, events: int = 4_000, **options: int) -> Path:
    """Write payments as CSV and return the path."""
    table = payments(events, **options)
    table["when"] = pd.to_datetime(table["when"], unit="s")
    table.to_csv(path, index=False)
    return path
