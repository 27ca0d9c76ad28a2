"""``loopline replay``: what a master's event log proves, and what would have been.

Two programs do the work: the master's store reads the database, the simulator tries the other way; here they are
put together. Neither is ever loaded into this one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Annotated

from cyclopts import Parameter

from loopline.cli.daemons import become, program
from loopline.cli.errors import Exit, usage


def replay(
    database: str,
    /,
    *,
    policy: str | None = None,
    order: str | None = None,
    what_if_submit: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    seeds: int | None = None,
    events: bool = False,
    json: bool = False,
) -> int:
    """Replay a master's event log and compare what comes out: with its rows, or with what would have been.

    The database is only read, and its master may go on meanwhile. Without options: do log and rows agree?
    With `--policy` or `--order`: what if the same jobs had come to the same machines under another policy?
    With `--what-if-submit`: when would one more job start and end, submitted now, and whom would it delay?

    Parameters
    ----------
    database
        SQLite's file, or a database URL.
    policy
        What if this policy had decided.
    order
        What if this had been promised about the order of completions.
    what_if_submit
        What if this job were submitted now: JSON, TOML or YAML, as `POST /api/v1/jobs` takes it.
    seeds
        Runs for `--what-if-submit`, where something must be drawn at random; 20 unless given.
    events
        Write the log itself instead, a line of JSON for each step.
    json
        Answer with JSON on stdout, and nothing else.
    """
    asked = {"--policy": policy, "--order": order, "--what-if-submit": what_if_submit, "--seeds": seeds}
    options = [word for name, value in asked.items() if value is not None for word in (name, str(value))]
    if not options:
        flags = ["--events"] * events + ["--json"] * json
        return become(program("loopline_master.store.replay", "master", *flags, "--", database))
    if events:
        raise usage("--events writes the log as it is: it takes no other option")
    reader = program("loopline_master.store.replay", "master", "--events", "--", database)
    return _piped(reader, program("loopline_simulator", "sim", "what-if", *options, *["--json"] * json))


def _piped(reader: list[str], teller: list[str]) -> int:
    """Show the second's answer where both succeed, else what the first to fail has to say: a log that could not be
    read to its end has no answer.
    """
    with (
        tempfile.TemporaryFile() as complaint,
        subprocess.Popen(reader, stdout=subprocess.PIPE, stderr=complaint) as reading,
        subprocess.Popen(
            teller, stdin=reading.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as telling,
    ):
        assert reading.stdout is not None
        reading.stdout.close()  # the teller's now: should it end early, the reader learns of it
        answer, error = telling.communicate()
        code = reading.wait()
        said = _text(complaint)
    if code or said:
        sys.stderr.write(said or f"error: the database's reader ended with exit code {code}\n")
        return code or Exit.FAILED
    sys.stderr.write(error)
    sys.stdout.write(answer)
    return telling.returncode


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
