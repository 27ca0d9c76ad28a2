"""Files that results name: each is on this master's disk and stays, or the result is not accepted.

Workers upload files first, and send results after them. A file may still be gone by then: the link may have been down
for longer than files without a name are retained. A success without its files could never be repaired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

from loopline_master.files.blobs import Blobs
from loopline_shared.model import Outcome, Output, Result
from loopline_shared.protocol.worker_link import Report

log = logging.getLogger(__name__)


async def with_files(blobs: Blobs, report: Report) -> Report:
    """Return the report with results that name only files on this disk, retained until their rows name them.

    An attempt whose outputs or value are gone counts as preempted, and its task runs again; a missing stdout or
    stderr is marked as cut. Reports that name no files cost nothing.
    """
    names = {name for result in report.results for name in _names(result)}
    if not names:
        return report
    missing = await asyncio.to_thread(lambda: {name for name in names if blobs.retain(name) is None})
    if not missing:
        return report
    return replace(report, results=tuple(_without(result, missing) for result in report.results))


def _names(result: Result) -> Iterator[str]:
    for output in (result.stdout, result.stderr, result.value):
        if output is not None and output.sha256 is not None:
            yield output.sha256
    for file in result.outputs:
        yield file.sha256


def _without(result: Result, missing: set[str]) -> Result:
    result = replace(result, stdout=_cut(result.stdout, missing), stderr=_cut(result.stderr, missing))
    gone = next((file.path for file in result.outputs if file.sha256 in missing), "")
    if not gone and (result.value is None or result.value.sha256 not in missing):
        return result
    reason = f"the master does not have {f'its output {gone}' if gone else 'its value'} any more"
    log.warning("the result of attempt %s is not accepted: %s", result.attempt, reason)
    is_over = result.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    outcome = Outcome.GIVEN_BACK if is_over else result.outcome
    return replace(result, outcome=outcome, reason=reason[:500], outputs=(), value=None)


def _cut(output: Output, missing: set[str]) -> Output:
    return Output(output.size_bytes, cut=True) if output.sha256 in missing else output
