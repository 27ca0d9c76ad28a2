"""ETAs for users: the scheduler's forecasts, calibrated by the record of past ETAs, which is kept here.

A forecast costs time in proportion to jobs and machines: it is computed on demand, at most once a second, and never
inside a step. At certain moments of each job a forecast is always made: it is stored, and compared with the job's
completion.

The deviation of a completion from its forecast is measured in spreads of that forecast, so that forecasts can be
compared. The quantiles of past deviations correct those of the model, with a weight that grows with their number.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TypeVar

from loopline_master.change_feed import ChangeFeed
from loopline_master.core.estimates import eta
from loopline_master.core.estimates.eta import Forecast, Outlook, Unknown
from loopline_master.core.explain import submission_notes
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.planning.explain_plan import estimated_start, latest_end
from loopline_master.store.records import EtaRecords, JudgedEta, ToldEta
from loopline_master.task_progress import TaskProgress
from loopline_master.timings import ETA_CALIBRATE_EVERY_S, ETA_FRESH_FOR_S, ETA_FRESH_SHARE
from loopline_shared.model import SizeSource
from loopline_shared.rest.bodies import Eta, ForecastReport, JobView, MomentReport, PlanView

MOMENTS = (0, 25, 50, 75)
"""When a job is forecast for the record: its first finished task, and these percentages of its tasks."""
_BELIEF = 20
"""Weight of the model, in completions that matched it."""
_Z90 = 1.2816
_UNPROVEN: dict[tuple[str, bool], dict[int, float]] = {
    ("", True): {0: 0.8, 25: 1.6, 50: 1.5},
    ("", False): {25: 1.6, 50: 1.5, 75: 1.4},
    ("fair", True): {0: 0.5, 25: 0.6, 50: 0.8},
    ("fair", False): {25: 0.6, 50: 0.8, 75: 0.2},
    ("round-robin", True): {0: 2.4, 25: 2.2, 50: 1.6},
    ("round-robin", False): {25: 1.4, 50: 0.8, 75: 0.8},
    ("space-partition", True): {0: 1.8, 25: 2.0, 50: 1.6},
    ("space-partition", False): {25: 1.4, 50: 1.0, 75: 1.0},
}
"""The p90 in spreads, used until completions have shown it: by policy, sizes given or not, and moment.

The empty name stands for all other policies. Where later jobs take machines from earlier ones, a forecast is early;
under ``fair``, which gives the first jobs the fastest machines, it is late. Moments that are missing are not shown to
users: fewer than eight jobs in ten ended by their p90 (eta_calibration.py of benchmarks).
"""
_LEAST_SPREAD = 0.02
_FARTHEST = 5.0

View = TypeVar("View", bound=JobView)
_NOTHING = MomentReport(moment=0, jobs=0)


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


@dataclass(frozen=True, slots=True)
class Situation:
    """The moment and kind of a job, which decide whether an unproven forecast is shown."""

    moment: int
    policy: str
    is_given: bool  # the sizes of its tasks are given

    @property
    def unproven(self) -> float | None:
        """The p90 in spreads, until completions have shown it; None: not shown to users."""
        by_moment = _UNPROVEN.get((self.policy, self.is_given)) or _UNPROVEN["", self.is_given]
        return by_moment.get(self.moment)

    def is_shown(self, judged: int) -> bool:
        """Return True if a forecast is good enough to be shown, after ``judged`` completions."""
        return judged >= _BELIEF or self.unproven is not None


def situation_of(state: State, job: Job, moment: int) -> Situation:
    """Return the situation of the job at this moment."""
    return Situation(moment, state.settings.policy, job.size_source is SizeSource.GIVEN)


class Calibration:
    """Corrects forecasts by the deviations of past ones at the same moment."""

    def __init__(self, outcomes: Iterable[EtaOutcome] = ()) -> None:
        found: dict[int, list[float]] = defaultdict(list)
        for outcome in outcomes:
            found[outcome.moment].append(_deviation(outcome))
        self._found = {moment: sorted(those) for moment, those in found.items()}

    def applied(self, situation: Situation, forecast: Forecast) -> Forecast:
        """Return the corrected forecast, which users see."""
        found, unproven = self._found.get(situation.moment, []), situation.unproven
        half, most = _quantile_of(0.5, found, 0.0), _quantile_of(0.9, found, _Z90 if unproven is None else unproven)
        spread = _spread_of(forecast.p50_s, forecast.p90_s)
        p50_s = forecast.p50_s * math.exp(half * spread)
        return replace(forecast, p50_s=p50_s, p90_s=max(p50_s, forecast.p50_s * math.exp(most * spread)))


def _deviation(outcome: EtaOutcome) -> float:
    off = math.log(max(outcome.took_s, 1e-3) / max(outcome.p50_s, 1e-3)) / _spread_of(outcome.p50_s, outcome.p90_s)
    return min(_FARTHEST, max(-_FARTHEST, off))


def _spread_of(p50_s: float, p90_s: float) -> float:
    return max(_LEAST_SPREAD, math.log(max(p90_s, 1e-3) / max(p50_s, 1e-3)) / _Z90)


def _quantile_of(share: float, found: Sequence[float], believed: float) -> float:
    """Return a quantile of the sorted deviations, weighted with the model's own."""
    count = len(found)
    quantile = found[min(count - 1, math.ceil(share * (count + 1)) - 1)] if count else 0.0
    return (count * quantile + _BELIEF * believed) / (count + _BELIEF)


class Forecaster:
    """Computes ETAs, and measures how accurate past ones were."""

    def __init__(
        self, scheduler: Scheduler, store: EtaRecords, clock: Callable[[], float], progress: TaskProgress
    ) -> None:
        self._scheduler, self._store, self._clock, self._progress = scheduler, store, clock, progress
        self._outlook: Outlook = {}
        self._took_s = 0.0
        self._outlook_at = self._calibrated_at = float("-inf")
        self._calibration = Calibration()
        self._record: dict[int, MomentReport] = {}
        self._stored: dict[int, tuple[int, int]] = {}  # by job: its arrival and the moment last stored
        self._has_more_to_judge = False  # a job has ended whose ETAs are stored

    async def watch(self, changes: ChangeFeed) -> None:
        """Store the ETAs of each job at its moments, until cancelled."""
        with changes.read() as reader:
            await self._calibrate()
            while True:
                change = await reader.next()
                jobs = change.jobs if not change.missed else {*self._scheduler.state.jobs, *self._stored}
                if due := self._due(jobs):
                    await self._store_due(due)
                if self._has_more_to_judge and self._clock() - self._calibrated_at >= ETA_CALIBRATE_EVERY_S:
                    await self._calibrate()
                await asyncio.sleep(ETA_FRESH_FOR_S)  # changes gather during the pause

    def with_eta(self, view: View) -> View:
        """Return the view of an unfinished job with its progress and its ETA, or with the reason why there is none.

        Running tasks that wait at their workers for a slot count as prefetched; a job with no others is queued.
        """
        state = self._scheduler.state
        job = state.jobs.get(view.id)
        if job is None or job.is_over:
            return view
        ahead = min(state.index.attempts.queues.of_job.get(view.id, 0), view.tasks.running)
        news: dict[str, object] = {"tasks": view.tasks.model_copy(update={"prefetched": ahead})}
        if view.condition == "running" and ahead and ahead == view.tasks.running:
            news["condition"] = "queued"
        news["progress"] = self._progress.of_job(state, job)
        view = view.model_copy(update=news)
        found = self._current_outlook().get(view.id, Unknown("nothing is known of it yet"))
        if isinstance(found, Unknown):
            reasons = filter(None, (found.reason, latest_end(state, job)))
            return view.model_copy(update={"eta_note": "; ".join(reasons)})
        situation = situation_of(state, job, moment_of(job.succeeded + job.failed, job.task_count) or 0)
        if not found.by_progress and not situation.is_shown(self._record.get(situation.moment, _NOTHING).jobs):
            return view.model_copy(update={"eta_note": "too few jobs have ended to say when one at this point will"})
        return view.model_copy(update={"eta": self._eta(situation, found)})

    def warnings_about(self, job: int) -> list[str]:
        """Return warnings about a new job: the job that holds it, and a size that cannot be true."""
        state = self._scheduler.state
        warnings = []
        if state.index.blocked and submission_notes.is_held(state, job):
            warnings.append(submission_notes.held_behind(state, job, self._current_outlook()))
        if (doubt := submission_notes.implausible_size(state, job)) is not None:
            warnings.append(doubt)
        return warnings

    def notes_on(self, job: int) -> list[str]:
        """Return notes on a job that was just submitted, such as that later jobs may pass it."""
        found = self._scheduler.state.jobs.get(job)
        note = submission_notes.without_claim(found) if found is not None and found.is_live else None
        return [] if note is None else [note]

    def start_of(self, job: int) -> PlanView | None:
        """Return the estimated start of a held gang that has no plan yet; None if it is unknown."""
        state = self._scheduler.state
        found = state.jobs.get(job)
        told = estimated_start(state, found, self._current_outlook()) if found is not None else None
        return told if isinstance(told, PlanView) else None

    def report(self) -> ForecastReport:
        """Return how accurate past ETAs were."""
        return ForecastReport(moments=[self._record.get(m, MomentReport(moment=m, jobs=0)) for m in MOMENTS])

    def _eta(self, situation: Situation, found: Forecast) -> Eta:
        told, record = self._calibration.applied(situation, found), self._record.get(situation.moment, _NOTHING)
        return Eta(
            p50_at=self._outlook_at + told.p50_s,
            p90_at=self._outlook_at + told.p90_s,
            based_on=told.based_on,
            judged=record.jobs,
            p50_held=record.p50_held,
            p90_held=record.p90_held,
        )

    def _current_outlook(self) -> Outlook:
        """Return the outlook. With very many jobs it is computed so rarely that other work is hardly delayed."""
        now = self._clock()
        if now - self._outlook_at >= max(ETA_FRESH_FOR_S, ETA_FRESH_SHARE * self._took_s):
            start = perf_counter()
            state = self._scheduler.state
            self._outlook, self._outlook_at = eta.outlook(state, self._progress.of_running(state)), now
            self._took_s = perf_counter() - start
        return self._outlook

    def _due(self, jobs: Iterable[int]) -> list[tuple[int, int]]:
        """Return the jobs that have reached a moment, with that moment."""
        due = []
        for number in jobs:
            job = self._scheduler.state.jobs.get(number)
            if job is None or not job.is_live:
                self._has_more_to_judge |= self._stored.pop(number, None) is not None
                continue
            moment = moment_of(job.succeeded + job.failed, job.task_count)
            if moment is not None and (job.arrival, moment) > self._stored.get(number, (0, -1)):
                self._stored[number] = (job.arrival, moment)
                due.append((number, moment))
        return due

    async def _store_due(self, due: list[tuple[int, int]]) -> None:
        etas = []
        for number, moment in due:
            state, model = self._scheduler.state, self._current_outlook().get(number)
            if isinstance(model, Forecast):
                job = state.jobs[number]
                told, at = self._calibration.applied(situation_of(state, job, moment), model), self._outlook_at
                etas.append(
                    ToldEta(
                        job=number,
                        arrival=job.arrival,
                        moment=moment,
                        at=at,
                        p50_at=at + told.p50_s,
                        p90_at=at + told.p90_s,
                        model_p50_s=model.p50_s,
                        model_p90_s=model.p90_s,
                    )
                )
        await self._store.add(etas)

    async def _calibrate(self) -> None:
        self._has_more_to_judge = False
        judged = await self._store.judged()
        self._calibration = Calibration(_outcome(one) for one in judged)
        by_moment: dict[int, list[JudgedEta]] = defaultdict(list)
        for one in judged:
            by_moment[one.eta.moment].append(one)
        self._record = {moment: _report(moment, those) for moment, those in by_moment.items()}
        self._calibrated_at = self._clock()


def _outcome(judged: JudgedEta) -> EtaOutcome:
    eta = judged.eta
    return EtaOutcome(eta.moment, eta.model_p50_s, eta.model_p90_s, judged.completed_at - eta.at)


def _report(moment: int, judged: list[JudgedEta]) -> MomentReport:
    count = len(judged)
    return MomentReport(
        moment=moment,
        jobs=count,
        p50_held=sum(one.completed_at <= one.eta.p50_at for one in judged) / count,
        p90_held=sum(one.completed_at <= one.eta.p90_at for one in judged) / count,
    )
