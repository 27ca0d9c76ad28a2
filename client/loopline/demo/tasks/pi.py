"""Prints an estimate of pi: the share of random throws at a square that hit the circle in it.

python3 pi.py --seed 7 --throws 1000000
"""

import argparse
from random import Random


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--throws", type=int, default=100_000)
    given = arguments.parse_args()
    throw = Random(given.seed).random  # noqa: S311
    hits = sum(throw() ** 2 + throw() ** 2 < 1 for _ in range(given.throws))
    print(4 * hits / given.throws)


if __name__ == "__main__":
    main()
