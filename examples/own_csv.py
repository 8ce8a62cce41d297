"""Read a CSV file of calls and predict who calls whom next."""

import csv
import random
import tempfile
from pathlib import Path

import tidegraph

random.seed(0)
people = ["ann", "bob", "cem", "dan", "eve", "fay", "gil", "hal"]
path = Path(tempfile.mkdtemp()) / "calls.csv"
with path.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["caller", "callee", "when", "tariff"])
    for hour in range(600):
        caller = random.randrange(8)
        callee = (caller + random.choice([1, 1, 1, 2, 5])) % 8
        when = f"2024-05-{1 + hour // 24:02d}T{hour % 24:02d}:00"
        writer.writerow([people[caller], people[callee], when, random.choice("ab")])

calls = tidegraph.read(path, src="caller", dst="callee", t="when")
print(calls.report)

predictor = tidegraph.LinkPredictor(columns=32, epochs=5).fit(calls)
now = calls.time("2024-05-26")
for person in ("ann", "eve"):
    nodes, probability = predictor.rank(int(calls.number([person])[0]), now, k=3)
    names = calls.name(nodes)
    print(person, "->", ", ".join(f"{n} {p:.2f}" for n, p in zip(names, probability, strict=True)))
