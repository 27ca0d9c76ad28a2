"""Puts the tasks' results together: prints the year that explains most, and draws it.

python3 picture.py RESULTS [PICTURE.png]: in the folder, every task has left a change.csv. Drawing needs matplotlib.
"""

import csv
import sys
from pathlib import Path

HERE = Path(__file__).parent


def read(file):
    with file.open(newline="") as opened:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(opened)]


def draw(years, best, picture):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    flow = read(HERE / "flow.csv")
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 5), height_ratios=(3, 2))
    above.plot([row["year"] for row in flow], [row["flow"] for row in flow], color="0.5", linewidth=1)
    first, last = flow[0]["year"], flow[-1]["year"]
    above.hlines([best["before"], best["since"]], [first, best["year"]], [best["year"], last], color="C3")
    above.set_ylabel("flow at Aswan (10⁸ m³ a year)")
    below.plot([row["year"] for row in years], [row["unexplained"] / 1e6 for row in years], ".-", color="C0")
    below.axvline(best["year"], color="C3", linewidth=1)
    below.set_ylabel("left unexplained (10⁶)")
    below.set_xlabel("year of the change: one task each")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def main():
    years = [row for file in Path(sys.argv[1]).rglob("change.csv") for row in read(file)]
    years.sort(key=lambda row: row["year"])
    best = min(years, key=lambda row: row["unexplained"])
    print(f"{len(years)} years tried: the flow fell in {best['year']:.0f}")
    print(
        f"from {best['before']:.0f} to {best['since']:.0f}; chance does as much in {best['by_chance']:.1%} of cases"
    )
    if len(sys.argv) > 2:
        draw(years, best, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
