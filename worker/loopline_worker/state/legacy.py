"""Migration of the files of release 0.1: one for each result (``spool/12.3.1.json``), and ``inbox.jsonl``.

Both are taken into the journal once. A file that is not a result is moved to ``spool/bad``, with a warning.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core.instructions import Entry
from loopline_worker.state.journal import Journal

log = logging.getLogger(__name__)


def take_over(journal: Journal, inbox: Path, spool: Path) -> None:
    """Take old files into the journal. Raises LooplineError if the disk is full: then they stay as they were."""
    files = sorted(spool.glob("*.json"), key=lambda file: file.stat().st_mtime)
    if not files and not inbox.exists():
        return
    results = {file: result for file in files if (result := _result(file))}
    waiting, begun = _left(inbox.read_bytes().splitlines() if inbox.exists() else [])
    came = Assign(0, 0, tuple(waiting.values()))
    try:
        journal.write(Entry(list(results.values()), came=[(came, link_session.encode(came))], began=begun))
    except OSError as error:
        raise LooplineError(
            "data_dir", f"cannot take over what the last release left: {error}", "make room"
        ) from None
    for file in (*results, inbox):
        file.unlink(missing_ok=True)


def _left(lines: list[bytes]) -> tuple[dict[AttemptId, Run], list[AttemptId]]:
    """Return every run that is not over, and the attempts that had begun."""
    adapter = TypeAdapter(Run)
    runs, begun = dict[AttemptId, Run](), dict[AttemptId, None]()
    for text in lines:
        try:
            ((what, told),) = json.loads(text).items()
            run = adapter.validate_python(told) if what == "run" else None
            attempt = run.attempt if run else AttemptId.parse(told)
        except (ValueError, TypeError, AttributeError):
            continue  # never finished
        if run:
            runs[attempt] = run
        elif what == "began" and attempt in runs:
            begun[attempt] = None
        elif what == "over":
            runs.pop(attempt, None)
            begun.pop(attempt, None)
    return runs, list(begun)


def _result(file: Path) -> Result | None:
    try:
        result = link_session.read_result(file.read_bytes())
        if file.name == f"{result.attempt}.json":
            return result
        reason = f"it is about attempt {result.attempt}"
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
    bad = file.parent / "bad"
    log.warning("%s is not a result (%s): moved to %s", file, reason, bad)
    bad.mkdir(exist_ok=True)
    file.replace(bad / file.name)
    return None
