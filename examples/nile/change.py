"""Did the Nile's flow change in this year? Writes change.csv: the mean flow before and since, and how sure it is."""

import argparse
import csv
import random
from pathlib import Path
from statistics import fmean

parser = argparse.ArgumentParser()
parser.add_argument("data", type=Path)
parser.add_argument("--year", type=int, required=True)
parser.add_argument("--shuffles", type=int, default=200)
chosen = parser.parse_args()

with chosen.data.open() as file:
    flow = {int(row["year"]): float(row["flow"]) for row in csv.DictReader(file)}
split = sum(year < chosen.year for year in flow)
values = list(flow.values())


def drop(series):
    """Return the decrease of the mean at the split."""
    return fmean(series[:split]) - fmean(series[split:])


def unexplained(series):
    """Return the sum of squares that two levels, one before and one after the split, leave unexplained."""
    parts = series[:split], series[split:]
    return sum((x - mean) ** 2 for part, mean in zip(parts, map(fmean, parts), strict=True) for x in part)


random.seed(chosen.year)
by_chance = sum(abs(drop(random.sample(values, len(values)))) >= abs(drop(values)) for _ in range(chosen.shuffles))
result = {
    "year": chosen.year,
    "before": round(fmean(values[:split]), 1),
    "since": round(fmean(values[split:]), 1),
    "unexplained": round(unexplained(values)),
    "by_chance": by_chance / chosen.shuffles,
}
with Path("change.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, result)
    writer.writeheader()
    writer.writerow(result)
print(f"{chosen.year}: {result['before']} before, {result['since']} since")
