"""The event log as lines of JSON, a batch on each line: the output of ``loopline replay DATABASE --events``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from loopline_master.core.events import BATCH, Batch, MasterStarted
from loopline_shared.errors import LooplineError


def batches(lines: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the batches one by one. Raises LooplineError with the number of an invalid line, or for an empty log."""
    number = 0
    for number, line in enumerate(lines, 1):
        batch = _batch(number, line)
        if number == 1 and not any(isinstance(event, MasterStarted) for event in batch.events):
            raise broken("the log does not begin with the start of a master", "it must be whole, from its first line")
        yield batch
    if not number:
        raise broken("the log is empty: nothing has happened yet", "a master writes it from its first start on")


def broken(message: str, hint: str = "") -> LooplineError:
    return LooplineError("log", message, hint)


def _batch(number: int, line: bytes) -> Batch:
    try:
        return BATCH.validate_json(line)
    except ValidationError as error:
        if not line.endswith(b"\n"):
            raise broken(f"the log breaks off in line {number}", "write it again, to its end") from None
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise broken(f"line {number} of the log is not a batch of events: {what}") from None
