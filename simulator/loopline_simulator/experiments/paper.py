"""Figures of the no-passing paper: Tables 3, 4 and 5, mean and variance over the 32 jobs of one setting."""

from __future__ import annotations

from loopline_shared.model import Order
from loopline_simulator.statistics import Moments

TABLE_OF_INTERVAL = {50.0: 3, 100.0: 4, 200.0: 5}
BASELINES = ("first-come", "space-partition")
"""Policies without a guarantee about the order of completions."""
POLICIES = ("round-robin", *BASELINES)
TIMES = ("waiting", "execution", "total")

MEASURED: dict[tuple[float, str], dict[str, Moments]] = {
    (interval, policy): dict(zip(TIMES, (Moments(*pair) for pair in pairs), strict=True))
    for interval, policy, *pairs in (
        (50.0, "round-robin", (17.46, 288.25), (6038.94, 1520696.30), (6056.40, 1540032.09)),
        (50.0, "first-come", (2481.22, 2151992.71), (861.47, 30197.87), (3342.70, 1875579.13)),
        (50.0, "space-partition", (946.06, 1681811.36), (3736.71, 1771239.26), (4682.78, 3230730.94)),
        (100.0, "round-robin", (12.80, 103.21), (4480.38, 1389558.67), (4493.19, 1401586.82)),
        (100.0, "first-come", (1712.72, 993998.45), (858.39, 27868.82), (2571.12, 826775.51)),
        (100.0, "space-partition", (338.91, 476401.08), (3712.50, 1745349.17), (4051.42, 2333383.48)),
        (200.0, "round-robin", (5.85, 22.58), (1679.17, 97433.16), (1685.02, 98187.77)),
        (200.0, "first-come", (209.11, 8578.96), (846.82, 25156.13), (1055.94, 11847.35)),
        (200.0, "space-partition", (85.70, 21311.28), (2416.54, 290454.05), (2502.24, 364775.54)),
    )
}


def order_of(policy: str) -> Order:
    """Return the guarantee that a policy gave in the paper: none for the baselines, the hold for all others."""
    return Order.NONE if policy in BASELINES else Order.HOLD
