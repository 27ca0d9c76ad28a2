"""``loopline audit``, ``passing`` and ``replay``: what was done, and what would have been otherwise.

Two programs do the work of a replay: the master's store reads the database, and the simulator tries the alternative.
"""

from __future__ import annotations

import json as json_format
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Annotated

from cyclopts import Parameter

from loopline.cli import values
from loopline.cli.common import PLAIN, Common, page_size, read_by, some
from loopline.cli.errors import Exit, usage
from loopline.cli.render import tables
from loopline.cli.submission import assemble, job_file
from loopline.programs import become, program


async def passing(*, common: Common = PLAIN) -> int:
    """Audit the promise that no job passes another; the exit code is 1 if it was broken."""
    async with common.client() as client:
        report = await client.passing()
    common.show(report, lambda: tables.passing(report))
    return Exit.FAILED if report.passings else Exit.OK


async def audit(
    *,
    user: str | None = None,
    since: Annotated[float, read_by(values.since, "TIME")] = 0.0,
    limit: Annotated[int, Parameter(alias="-n")] = 100,
    common: Common = PLAIN,
) -> None:
    """Show who changed what at the master, and from where (admins only). What was only read is not noted.

    Parameters
    ----------
    user
        Only what this user or worker did.
    since
        Only actions since then: 7d ago, or a time with its zone such as 2027-01-31T08:00:00+01:00 (default: the
        whole log, one year).
    limit
        At most so many lines, the latest first.
    """
    async with common.client() as client:
        items = await some(limit, client.audit_log(user, since, page_size=page_size(limit)))
    common.show(items, lambda: tables.cut(tables.audit_log(items), len(items), limit))


def replay(
    database: str,
    /,
    *,
    policy: str | None = None,
    order: str | None = None,
    what_if_submit: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    at: float | None = None,
    seeds: int | None = None,
    events: bool = False,
    json: bool = False,
    csv: bool = False,
) -> int:
    """Replay a master's event log: compare it with the stored rows, or ask what would have been.

    The database is only read, and its master may run meanwhile. Without options: do log and rows agree?
    With `--policy` or `--order`: what if the same jobs had come to the same workers under another policy?
    With `--what-if-submit`: when would one more job start and end, submitted now, and which jobs would it delay?

    Parameters
    ----------
    database
        A master's data folder, its loopline.db, or a database URL.
    policy
        Replay under this policy.
    order
        Replay under this order of completions: hold, deliver or none.
    what_if_submit
        Submit this job in the replay, now: a job file in YAML, TOML or JSON, as `loopline submit --file` takes it.
    at
        Submit it at this time in place of now, in seconds since 1970: for a copy of a database that was at work then.
    seeds
        Runs of `--what-if-submit` if something is drawn at random (default: 20).
    events
        Write the log itself instead, one line of JSON for each step.
    json
        Answer with JSON on stdout, and nothing else.
    csv
        Answer with CSV on stdout, a line for each job with both courses.
    """
    job = _job(what_if_submit) if what_if_submit else None
    options = _options({"--policy": policy, "--order": order, "--seeds": seeds})
    if not options and job is None:
        if csv:
            raise usage("--csv is about what would have been", "add --policy, --order or --what-if-submit")
        return become(
            program("loopline_master.store.replay", "master", *_flags(events=events, json=json), "--", database)
        )
    if events:
        raise usage("--events writes the log as it is: it takes no other option")
    reader = program("loopline_master.store.replay", "master", "--events", "--", database)
    with tempfile.TemporaryDirectory(prefix="loopline-") as folder:
        if job is not None:
            file = Path(folder) / "job.json"
            file.write_text(job, "utf-8")
            options += ["--what-if-submit", str(file), "--at", str(time.time() if at is None else at)]
        return _piped(reader, program("loopline_simulator", "sim", "what-if", *options, *_flags(json=json, csv=csv)))


def _options(values: dict[str, str | int | None]) -> list[str]:
    return [word for name, value in values.items() if value is not None for word in (name, str(value))]


def _flags(**given: bool) -> list[str]:
    return [f"--{name}" for name, value in given.items() if value]


def _job(path: Path) -> str:
    """Return the job in a file, as `loopline submit --file` would read it but without its inputs, as JSON."""
    file = job_file.read(path)
    file.document.pop("inputs", None)
    return json_format.dumps(assemble.specification(file.document, None, file).to_json())


def _piped(reader: list[str], teller: list[str]) -> int:
    """Pipe the reader into the teller and print the teller's answer.

    If one of them fails, print the first error instead: a log that was read in part has no answer.
    """
    with (
        tempfile.TemporaryFile() as complaint,
        subprocess.Popen(reader, stdout=subprocess.PIPE, stderr=complaint) as reading,
        subprocess.Popen(
            teller, stdin=reading.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as telling,
    ):
        assert reading.stdout is not None
        reading.stdout.close()  # only the teller keeps it open, so that the reader notices if the teller ends early
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
