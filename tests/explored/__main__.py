"""Print how many states of each tiny grid are explored: ``python -m tests.explored``."""

from __future__ import annotations

from tests.explored.configurations import LARGE, LARGEST, QUICK
from tests.explored.explorer import Explorer

if __name__ == "__main__":
    seen = 0
    for about in (*QUICK, *LARGE, *LARGEST):
        explored = Explorer(about).run()
        seen += explored.states
        print(
            f"{explored.states:7,} states, {explored.events:8,} events, at most {explored.longest} on the way, "
            f"{explored.cpu_s:5.1f} s: {about.name}",
            flush=True,
        )
    print(f"{seen:,} states in all, and no violation")
