"""``python -m loopline_simulator what-if``: replay an event log under other decisions."""

from __future__ import annotations

import difflib
import json as json_format
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from loopline_master.core.policies import REGISTRY
from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator.experiments.answers import write_csv
from loopline_simulator.whatif import compare, outlook
from loopline_simulator.whatif.durations import Durations
from loopline_simulator.whatif.forecast import forecasts
from loopline_simulator.whatif.inputs import batches, broken, read_job
from loopline_simulator.whatif.recording import Recording, rebased, record
from loopline_simulator.whatif.replay_world import WhatIfWorld
from loopline_simulator.whatif.tally import Tally

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def what_if(
    log: str = "-",
    /,
    *,
    policy: str | None = None,
    order: str | None = None,
    what_if_submit: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    at: float | None = None,
    seeds: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 20,
    json: bool = False,
    csv: bool = False,
) -> int:
    """Replay a master's event log under another policy or order, or with one more job.

    `loopline replay DATABASE` takes the same options, and reads the log from the database. Without any option the
    decisions stay as they were: any difference then is the model's.

    Parameters
    ----------
    log
        Lines of JSON, as `python -m loopline_master.store.replay DATABASE --events` writes them; `-`: from stdin.
    policy
        Replay with this policy.
    order
        Replay with this order guarantee.
    what_if_submit
        Submit this job at the log's end: JSON, TOML or YAML, as `POST /api/v1/jobs` takes it.
    at
        Submit it at this time, in seconds since 1970, if the log ended at most a lease before: a grid at work has
        nothing to write for a while. Otherwise at the log's end.
    seeds
        Runs for `--what-if-submit`, where something must be drawn at random.
    json
        Answer with JSON only, on stdout.
    csv
        Answer with a line of CSV for each job only; with `--what-if-submit`, for each job that it would delay.
    """
    if json and csv:
        raise LooplineError("usage", "an answer is either --json or --csv", "leave one of them out")
    policy, order = _known("policy", policy, REGISTRY), _known("order", order, Order)
    new = None if what_if_submit is None else read_job(what_if_submit)
    recording = _read(log)  # after all checks of the options
    settings = rebased(recording.settings, policy, order)
    if new is not None:
        _go_on_until(recording, at)
        runs = forecasts(recording, Durations(recording), new, settings, seeds)
        found = outlook.outlook(recording, new, settings, runs)
        return _answer(outlook.text(found), found.to_json(), found.delays, json=json, csv=csv)
    tally = Tally()
    world = WhatIfWorld(recording, tally, policy=policy, order=order)
    world.run()
    comparison = compare.compare(recording, tally, settings, world.jobs_as)
    return _answer(compare.text(comparison), comparison.to_json(), comparison.jobs, json=json, csv=csv)


def _answer(
    text: str, document: dict[str, object], rows: Sequence[DataclassInstance], *, json: bool, csv: bool
) -> int:
    """Print the answer in the form that was asked for, and return the exit code."""
    if csv:
        write_csv([asdict(row) for row in rows], sys.stdout)
    else:
        print(json_format.dumps(document, indent=2) if json else text)
    return 0


def _read(log: str) -> Recording:
    with ExitStack() as stack:
        try:
            lines = sys.stdin.buffer if log == "-" else stack.enter_context(Path(log).open("rb"))
        except OSError as error:
            raise broken(f"{log} cannot be read: {error.strerror}") from None
        return record(batches(lines))


def _go_on_until(recording: Recording, at: float | None) -> None:
    """Advance from the log's end to ``at``, unless the gap is so long that the master must have stopped."""
    if at is not None and recording.ended < at - recording.began <= recording.ended + recording.settings.lease_s:
        recording.ended = at - recording.began


def _known(what: str, name: str | None, known: Iterable[str]) -> str | None:
    names = [str(each) for each in known]
    if name is None or name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    raise LooplineError("usage", f"there is no {what} {name!r}", hint)
