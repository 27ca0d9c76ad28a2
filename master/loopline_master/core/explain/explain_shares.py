"""Explanations of shares: users whose turn comes before a user's own, and use against share."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.shares.user_slots import may_take, slots_of_task, slots_taken
from loopline_shared.rest.bodies import LimitUse, Reason, SharesView, UserShare


def shares_view(state: State) -> SharesView:
    """Return use against share of all users, in the order of their turns."""
    accounts = state.own(Accounts)
    asking = {state.jobs[job].owner for jobs in state.index.requirements.jobs.values() for job in jobs}
    total = sum(user.share for user in accounts.users.values() if user.name in asking)
    used = {name: user.usage_now(state.now, accounts.half_life_s) for name, user in accounts.users.items()}
    whole, users = sum(used.values()), []
    for name in sorted(accounts.users, key=lambda name: (accounts.rank(name, state.now), name)):
        user = accounts.users[name]
        users.append(
            UserShare(
                user=name,
                share=user.share,
                due=user.share / total if name in asking else None,
                used_s=used[name],
                used=used[name] / whole if whole else None,
                slots=user.at_work,
                jobs=sum(job.owner == name for job in state.index.live.values()),
                limits=_limits_of(state, name),
            )
        )
    return SharesView(is_kept=accounts.are_kept, half_life_s=accounts.half_life_s, users=users)


def _limits_of(state: State, name: str) -> list[LimitUse]:
    """Return a user's use of each limited thing."""
    (jobs, tasks, spec_bytes), settings = state.index.users.of(name), state.settings
    uses = (
        ("jobs", jobs, settings.user_jobs),
        ("tasks", tasks, settings.user_tasks),
        ("spec_bytes", spec_bytes, settings.user_spec_bytes),
        ("slots", slots_taken(state, name), settings.user_slots),
    )
    return [LimitUse(what=what, used=used, allowed=most) for what, used, most in uses if most is not None]


def slots_used_up(state: State, job: Job) -> list[Reason]:
    """Return the reason that another task of the job would exceed its user's limit of slots; empty otherwise."""
    slots = slots_of_task(state, job)
    if may_take(state, job.owner, slots):
        return []
    taken, allowed = slots_taken(state, job.owner), state.settings.user_slots
    counts_as = f", and a task of this job counts as {slots}" if slots > 1 else ""
    detail = f"{job.owner} has {taken} of the {allowed} slots that one user may have at once{counts_as}"
    return [Reason(code="user_slots", count=taken, detail=detail)]


def users_ahead(state: State, job: Job) -> list[Reason]:
    """Return the reason that other users' tasks come before those of this job's user; empty if it is their turn."""
    accounts = state.own(Accounts)
    if not accounts.are_kept:
        return []
    asking = state.index.requirements.owners_in(state.index.ready)
    rank = accounts.rank(job.owner, state.now)
    ahead = [name for name in asking if name != job.owner and accounts.rank(name, state.now) < rank]
    if not ahead:
        return []
    ahead.sort(key=lambda name: accounts.rank(name, state.now))
    more = f" and {len(ahead) - 1} other user{'s' * (len(ahead) > 2)}" if len(ahead) > 1 else ""
    detail = f"it is the turn of {ahead[0]}{more} first: {job.owner} has used more of their share lately"
    return [Reason(code="share", count=len(ahead), detail=detail)]
