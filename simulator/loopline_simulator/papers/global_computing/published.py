"""Measurements of the paper: Tables 1 to 4, by the settings' titles in the scenario files."""

from __future__ import annotations

TIMES = ("communication", "computing", "total")

_N_600, _N_1000, _N_1400 = "n = 600", "n = 1000", "n = 1400"

RATES: dict[int, dict[tuple[str, str], tuple[float, float]]] = {
    1: {
        (f"{n}, packets of {packet} KB", "Ocha-U"): pair
        for n, pairs in (
            (_N_600, ((159.947, 7.998), (158.169, 7.910), (155.188, 7.760))),
            (_N_1000, ((130.436, 10.873), (129.051, 10.757), (128.124, 10.680))),
            (_N_1400, ((146.672, 17.115), (146.520, 17.097), (145.568, 16.986))),
        )
        for packet, pair in zip((10, 50, 100), pairs, strict=True)
    },
    2: {
        (_N_600, "Ocha-U"): (122.372, 6.121),
        (_N_600, "U-Tokyo"): (182.928, 9.147),
        (_N_600, "NITech"): (85.291, 4.266),
        (_N_600, "TITech"): (29.743, 1.488),
        (_N_1000, "Ocha-U"): (104.670, 8.725),
        (_N_1000, "U-Tokyo"): (159.815, 13.321),
        (_N_1000, "NITech"): (91.476, 7.625),
        (_N_1000, "TITech"): (30.497, 2.543),
        (_N_1400, "Ocha-U"): (124.426, 14.519),
        (_N_1400, "U-Tokyo"): (218.441, 25.487),
        (_N_1400, "NITech"): (126.715, 14.787),
        (_N_1400, "TITech"): (25.879, 3.020),
    },
}
"""Simulated throughput (KB/s) and performance (Mflops), by table, setting and client."""

TIMES_OF: dict[int, dict[tuple[str, str], tuple[float, float, float, float, float]]] = {
    3: {
        ("homogeneous", "LRR"): (76.503, 0.011, 76.514, 10.020, 9.924),
        ("homogeneous", "GRR"): (76.910, 0.011, 76.921, 9.992, 9.941),
        ("homogeneous", "LOAD"): (75.407, 0.012, 75.419, 10.000, 9.934),
        ("heterogeneous", "LRR"): (80.310, 0.012, 80.322, 10.029, 9.955),
        ("heterogeneous", "GRR"): (80.442, 0.012, 80.454, 10.031, 9.960),
        ("heterogeneous", "LOAD"): (108.661, 0.014, 108.675, 10.031, 9.959),
    },
    4: {
        ("homogeneous", "LRR"): (2.582, 83.036, 85.618, 87.395, 92.549),
        ("homogeneous", "GRR"): (2.591, 76.161, 78.752, 89.988, 91.119),
        ("homogeneous", "LOAD"): (2.482, 89.613, 92.095, 88.245, 88.833),
        ("heterogeneous", "LRR"): (2.289, 108.005, 110.294, 45.172, 98.128),
        ("heterogeneous", "GRR"): (2.290, 97.522, 99.812, 46.014, 97.741),
        ("heterogeneous", "LOAD"): (1.812, 32.685, 34.497, 63.671, 79.117),
    },
}
"""Mean communication, computing and total time (s) and use of servers A and B (%), by table, setting and scheduler.
"""
