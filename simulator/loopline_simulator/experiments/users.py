"""``loopline simulate users``: cost of the order for each user, over all jobs and within their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job
from loopline_shared.job.parameters import Range
from loopline_shared.model import Facts, Order, OrderWithin
from loopline_shared.spec import JobSpec
from loopline_simulator.experiments.answers import publish
from loopline_simulator.experiments.options import RUNS, Several, SweepOptions, known_policy
from loopline_simulator.experiments.tables import bare_table, half_width, number
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.passings import JobSpan, count
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.statistics import estimate
from loopline_simulator.streams import stream

PROMISES = ((Order.HOLD, OrderWithin.GRID), (Order.HOLD, OrderWithin.USER), (Order.NONE, OrderWithin.GRID))
NAMES = dict(zip(PROMISES, ("hold, over all", "hold, each user", "none"), strict=True))
USERS = ("ann", "bob")
_COMPUTERS, _JOBS, _EVERY_S, _ALL_CAME_S = 20, 60, 120.0, 600.0
_LEASE_S = 1e9


@dataclass(frozen=True, slots=True)
class UsersCase:
    seed: int
    policy: str
    order: Order
    within: OrderWithin


@dataclass(frozen=True, slots=True)
class UsersAnswer:
    case: UsersCase
    events: int
    total_s: dict[str, float]  # by user: mean time from a job's submission to its end
    passings: int  # pairs, whoever's they are
    own_passings: int  # ... of one user


def users(
    *,
    policies: Annotated[tuple[str, ...], Several] = ("fair", "round-robin", "first-come"),
    runs: SweepOptions = RUNS,
) -> int:
    """Compare the order over all jobs with the order among each user's, under equal shares.

    Twenty computers of speeds 1 and 2. Ann submits sixty jobs of 2 to 40 tasks of a minute in the first ten minutes;
    Bob a job of 5 to 30 such tasks every two minutes.

    Parameters
    ----------
    policies
        Policies to compare.
    """
    chosen = tuple(dict.fromkeys(map(known_policy, policies)))
    cases = [UsersCase(seed, policy, *one) for policy in chosen for one in PROMISES for seed in runs.seed_numbers]
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    found = [{**asdict(answer.case), **_figures(answer)} for answer in answers]
    publish(runs, {"experiment": "users", "runs": found}, lambda console: console.print(_table(chosen, answers)))
    return 0


def _figures(answer: UsersAnswer) -> dict[str, Any]:
    return {name: value for name, value in asdict(answer).items() if name != "case"}


def run(case: UsersCase) -> UsersAnswer:
    """Return what both users had of one run."""
    jobs: dict[int, Job] = {}
    facts = Facts("linux", "x86_64", "3", "0", "model", cpus=1, memory_bytes=2**30, slots=1)
    hosts = [Host(f"pc{number}", facts, Steady(1.0 + number % 2)) for number in range(_COMPUTERS)]
    settings = SchedulerSettings(
        case.policy, case.order, case.within, shares=True, lease_s=_LEASE_S, report_every_s=_LEASE_S
    )

    def observe(effects: Effects) -> None:
        jobs.update(effects.jobs)

    world = FastWorld(settings, hosts, _arrivals(case.seed), observe)
    world.run()
    spans = {user: [_span(job) for job in jobs.values() if job.owner == user] for user in USERS}
    return UsersAnswer(
        case,
        events=world.kernel.events,
        total_s={user: sum(one.completed - one.submitted for one in own) / len(own) for user, own in spans.items()},
        passings=count([_span(jobs[number]) for number in sorted(jobs)]).passed,
        own_passings=sum(count(own).passed for own in spans.values()),
    )


def _arrivals(seed: int) -> list[Arrival]:
    draw = stream(seed, "users")
    hers = [
        Arrival(float(draw.uniform(0.0, _ALL_CAME_S)), _job(int(draw.integers(2, 41))), owner="ann")
        for _ in range(_JOBS)
    ]
    his = [Arrival(_EVERY_S * number, _job(int(draw.integers(5, 31))), owner="bob") for number in range(_JOBS)]
    return sorted([*hers, *his], key=lambda arrival: arrival.at)


def _job(tasks: int) -> JobSpec:
    return JobSpec(command=["work"], parameters={"i": Range(range=[1, tasks])}, size=60.0 * tasks)


def _span(job: Job) -> JobSpan:
    completed = job.finished_at if job.finished_at is not None else float("inf")
    return JobSpan(job.submitted_at, job.size, completed, job.shown)


def _table(policies: Sequence[str], answers: Sequence[UsersAnswer]) -> Table:
    made = bare_table("mean time from a job's submission to its end, in seconds")
    made.add_column("policy", style="bold cyan")
    made.add_column("order")
    for user in USERS:
        made.add_column(user, justify="right", style="bold")
        made.add_column("±", justify="right")
    for name in ("passings", "of one user"):
        made.add_column(name, justify="right")
    for policy in policies:
        for order, within in PROMISES:
            own = [one for one in answers if _kind(one.case) == (policy, order, within)]
            means = [estimate([one.total_s[user] for one in own]) for user in USERS]
            cells = [text for mean in means for text in (number(mean.mean), half_width(mean))]
            passings = (sum(one.passings for one in own), sum(one.own_passings for one in own))
            made.add_row(Text(policy), NAMES[order, within], *cells, *(f"{pairs:,}" for pairs in passings))
    return made


def _kind(case: UsersCase) -> tuple[str, Order, OrderWithin]:
    return case.policy, case.order, case.within
