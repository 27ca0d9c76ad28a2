"""Laws of the scheduler's wings. New wings are found by their folders."""

from __future__ import annotations

import re

from tests.house.circles import imports
from tests.house.sources import sources

_WING = re.compile(r"master/loopline_master/core/wings/(\w+)/")


def test_no_wing_imports_another_one() -> None:
    """Not even for types: wings use one another only through the kernel's door."""
    faults = [
        f"{file} imports {needed}: ask through kernel/door/mechanism.py"
        for file, needs in imports(sources(), late=True).items()
        for needed in sorted(needs)
        if (own := _WING.match(file)) and (other := _WING.match(needed)) and own[1] != other[1]
    ]
    assert not faults, "\n".join(faults)
