"""Calibration: correct forecasts by how past ones turned out.

How far a completion was from its forecast is counted in the forecast's own spreads, so that it can be compared with
others. The quantiles of what was found correct those that the model believes in, the more so the more was found.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from loopline_master.core.estimates.eta import Forecast

MOMENTS = (0, 25, 50, 75)
"""Moments at which a job is forecast for the record: at its first finished task, and at so many per cent of them."""

_BELIEF = 20
"""The model counts as so many completions that were as it said."""
_Z90 = 1.2816
_UNPROVEN = {0: 1.4, 25: 1.6, 50: 1.6, 75: 1.4}
"""By moment: the p90 in spreads, before completions have shown it (eta_calibration.py of benchmarks)."""
_LEAST_SPREAD = 0.02
_FARTHEST = 5.0


@dataclass(frozen=True, slots=True)
class EtaOutcome:
    """An ETA of the past, in seconds from some moment of a job, and the seconds that the job really took."""

    moment: int
    p50_s: float
    p90_s: float
    took_s: float


def moment_of(done: int, count: int) -> int | None:
    """Return the latest moment passed by a job with ``done`` tasks over; None before the first, and at the end."""
    if not 0 < done < count:
        return None
    return max(moment for moment in MOMENTS if 100 * done >= moment * count)


def is_told(moment: int, *, is_given: bool, judged: int) -> bool:
    """True if a forecast at this moment is good enough to be shown: by its record, or by its kind.

    Without a record, of a job without sizes the first finished tasks say too little, and of one with sizes the last
    tasks take longer than any law of theirs says: fewer than eight in ten ended by their p90.
    """
    return judged >= _BELIEF or moment != (75 if is_given else 0)


class Calibration:
    def __init__(self, outcomes: Iterable[EtaOutcome] = ()) -> None:
        found: dict[int, list[float]] = defaultdict(list)
        for outcome in outcomes:
            found[outcome.moment].append(_deviation(outcome))
        self._quantiles = {moment: _quantiles(moment, found[moment]) for moment in found}

    def applied(self, moment: int, forecast: Forecast) -> Forecast:
        half, most = self._quantiles.get(moment, (0.0, _UNPROVEN[moment]))
        spread = _spread(forecast.p50_s, forecast.p90_s)
        p50_s = forecast.p50_s * math.exp(half * spread)
        return replace(forecast, p50_s=p50_s, p90_s=max(p50_s, forecast.p50_s * math.exp(most * spread)))


def _quantiles(moment: int, found: list[float]) -> tuple[float, float]:
    return _at(0.5, found, 0.0), _at(0.9, found, _UNPROVEN[moment])


def _deviation(outcome: EtaOutcome) -> float:
    off = math.log(max(outcome.took_s, 1e-3) / max(outcome.p50_s, 1e-3)) / _spread(outcome.p50_s, outcome.p90_s)
    return min(_FARTHEST, max(-_FARTHEST, off))


def _spread(p50_s: float, p90_s: float) -> float:
    return max(_LEAST_SPREAD, math.log(max(p90_s, 1e-3) / max(p50_s, 1e-3)) / _Z90)


def _at(share: float, found: list[float], believed: float) -> float:
    """Return the quantile of the deviations found, drawn towards the one that the model believes in."""
    ordered = sorted(found)
    quantile = ordered[min(len(ordered) - 1, math.ceil(share * (len(ordered) + 1)) - 1)]
    return (len(ordered) * quantile + _BELIEF * believed) / (len(ordered) + _BELIEF)
