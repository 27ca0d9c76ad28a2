"""Summary of the forecasts of several seeds, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from statistics import fmean, median

from loopline_master.core.events import SchedulerSettings
from loopline_shared.spec import JobSpec
from loopline_simulator.whatif.compare import seconds
from loopline_simulator.whatif.forecast import ForecastRun
from loopline_simulator.whatif.recording import Recording

NOTICED_S = 0.5
"""Shortest delay that is mentioned."""
MARGIN = 0.1
"""Share by which a drawn range is widened on either side, for effects that are not drawn, such as races of frames."""


@dataclass(frozen=True, slots=True)
class QuantileRange:
    """Median and extremes in seconds, over the seeds where the event occurred; with a margin if there are several."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Delay:
    job: int
    name: str
    mean_s: float  # negative: it would end sooner
    most_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Forecast over all seeds. ``start`` and ``end`` count from now; None if no run came to them."""

    name: str
    tasks: int
    size: float | None
    _: KW_ONLY
    policy: str
    order: str
    runs: int  # 1: no random draws
    ended: int  # number of runs where it ended
    start: QuantileRange | None
    end: QuantileRange | None
    waits_for: list[int]  # jobs that it must not pass
    delays: list[Delay]  # of jobs that would still end, the longest first
    stopped: list[int]  # jobs that in some run would no longer end

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def outlook(recording: Recording, new: JobSpec, settings: SchedulerSettings, runs: Sequence[ForecastRun]) -> Outlook:
    jobs = sorted({job for run in runs for job in run.delays})
    delays = [_delay(recording, job, runs) for job in jobs]
    return Outlook(
        new.name,
        new.task_count,
        new.known_size,
        policy=settings.policy,
        order=settings.order.value,
        runs=len(runs),
        ended=sum(run.end is not None for run in runs),
        start=_range(run.start for run in runs),
        end=_range(run.end for run in runs),
        waits_for=runs[0].waits_for,
        delays=sorted((delay for delay in delays if delay is not None), key=lambda delay: (-delay.mean_s, delay.job)),
        stopped=[job for job in jobs if any(run.delays.get(job, 0.0) is None for run in runs)],
    )


def text(found: Outlook) -> str:
    """Return the forecast as text."""
    tasks = "1 task" if found.tasks == 1 else f"{found.tasks:,} tasks"
    size = "of unknown size" if found.size is None else f"size {seconds(found.size)}"
    lines = [f"{found.name or 'the job'} ({tasks}, {size}), submitted now under {found.policy}, order {found.order}:"]
    lines += [f"  would start in  {_range_text(found.start)}", f"  would end in    {_range_text(found.end)}"]
    if found.ended < found.runs:
        lines.append(
            f"  in {found.runs - found.ended} of {found.runs} runs it would not end on the machines there are"
        )
    if found.waits_for:
        lines.append(f"  may not pass    {_jobs(found.waits_for)}: its last task is held for them")
    else:
        lines.append("  need not wait for any job")
    lines += _delay_lines(found)
    drawn = "no random draws" if found.runs == 1 else f"{found.runs} runs with different random draws"
    return "\n".join([*lines, f"  ({drawn})"])


def _delay_lines(found: Outlook) -> list[str]:
    later = [delay for delay in found.delays if delay.mean_s >= NOTICED_S]
    lines = [
        f"  would delay     job {delay.job}{f' ({delay.name})' if delay.name else ''} by {seconds(delay.mean_s)}"
        + (f" on average, at most {seconds(delay.most_s)}" if found.runs > 1 else "")
        for delay in later
    ]
    lines += [f"  would keep      job {job} from ending" for job in found.stopped]
    return lines or ["  would delay no job"]


def _delay(recording: Recording, job: int, runs: Sequence[ForecastRun]) -> Delay | None:
    known = [delay for run in runs if (delay := run.delays.get(job)) is not None]
    if not known:
        return None
    return Delay(job, recording.tally.jobs[job].spec.name, fmean(known), max(known))


def _range(values: Iterable[float | None]) -> QuantileRange | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    margin = MARGIN if len(set(known)) > 1 else 0.0
    return QuantileRange(median(known), min(known) * (1 - margin), max(known) * (1 + margin))


def _range_text(found: QuantileRange | None) -> str:
    if found is None:
        return "never, on the machines there are"
    if found.most - found.least < NOTICED_S:
        return seconds(found.median)
    return f"{seconds(found.median)} (between {seconds(found.least)} and {seconds(found.most)})"


def _jobs(numbers: Sequence[int], most: int = 10) -> str:
    listed = ", ".join(str(number) for number in numbers[:most])
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{'job' if len(numbers) == 1 else 'jobs'} {listed}{more}"
