"""Read mails, some people's teams and a table of people; predict the teams of all others."""

import csv
import random
import tempfile
from pathlib import Path

import tidegraph
from tidegraph import evaluation

random.seed(0)
folder = Path(tempfile.mkdtemp())
team = {f"person {k}": random.choice(["sales", "support", "research"]) for k in range(150)}
people = list(team)


def write(name: str, *rows: tuple[object, ...]) -> Path:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder / name


mails = []
for hour in range(3000):
    sender = random.choice(people)
    team_mates = [name for name in people if team[name] == team[sender]]
    receiver = random.choice(team_mates if random.random() < 0.5 else people)
    day = f"2024-{1 + hour // 720:02d}-{1 + hour // 24 % 28:02d}T{hour % 24:02d}:00"
    mails.append((sender, receiver, day))
mails.sort(key=lambda mail: mail[2])
events = write("mails.csv", ("sender", "receiver", "when"), *mails)
teams = write("teams.csv", ("person", "team"), *list(team.items())[:90])  # of the others unknown
ages = write("people.csv", ("person", "age"), *((name, random.randint(20, 60)) for name in people))

stream = tidegraph.read(events, src="sender", dst="receiver", t="when")
stream = tidegraph.with_node_features(stream, ages)
stream = tidegraph.with_node_labels(stream, teams)
print(stream.report)

split = evaluation.node_split(stream)  # 60 % of the labelled people train, 20 % test
classifier = tidegraph.NodeClassifier(columns=16).fit(stream, split)
print(classifier.evaluate(split, parts=("test",)))

unknown = people[90:]
found = classifier.predict(unknown)
right = sum(found[k] == team[name] for k, name in enumerate(unknown))
print(f"{right} of {len(unknown)} people without a label are in the team predicted for them")
