"""Learn from labelled payments which new ones are fraud."""

import csv
import random
import tempfile
from pathlib import Path

import tidegraph

random.seed(0)
path = Path(tempfile.mkdtemp()) / "payments.csv"
with path.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["payer", "payee", "when", "amount", "channel", "outcome"])
    for minute in range(3000):
        payer, payee = random.randrange(80), random.randrange(80)
        mule = 80 + minute // 300  # every 300 minutes another account collects from victims
        if fraud := random.random() < 0.08:
            payee = mule
        amount = round(random.lognormvariate(3.4 if fraud else 3, 0.8), 2)
        when = f"2024-05-{1 + minute // 1440:02d} {minute // 60 % 24:02d}:{minute % 60:02d}"
        channel = random.choice(["card", "app", "transfer"])
        outcome = "fraud" if fraud and random.random() < 0.8 else "ok"
        writer.writerow([payer, payee, when, amount, channel, outcome])

payments = tidegraph.read(path, label="outcome", weight=False, edge_features=["amount", "channel"])
print(payments.report)

split = tidegraph.evaluation.tgb_split(payments)  # 70 % train, 15 % validate, 15 % test
classifier = tidegraph.EventClassifier(columns=16, epochs=6, members=2).fit(payments, split)
print(classifier.inputs)
print(classifier.evaluate(split, parts=["test"]))

latest = payments[-5:]  # what is read of each lies before it, except its own columns
for probability, label in zip(classifier.predict_proba(latest)[:, 1], latest.labels, strict=True):
    print(f"fraud with {probability:.0%}; it was {classifier.class_names[label]}")
