"""``loopline submit``: from a command line to a job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Annotated

from cyclopts import Group, Parameter

from loopline.cli.common import PLAIN, Common, stderr
from loopline.cli.errors import usage
from loopline.cli.follow import follow
from loopline.cli.submission import (
    assemble,
    failed_of,
    inputs,
    job_file,
    merging,
    missing_inputs,
    receipt,
    shared_folder,
    sweep,
)
from loopline.cli.submission.failed_of import FailedTasks
from loopline.cli.submission.inputs import FileOptions
from loopline.cli.submission.options import STDIN, JobOptions, PlaceOptions, SweepOptions, TaskOptions

_AFTER_SUBMISSION = Group("Then", sort_key=7)
_JOB, _SWEEP, _TASKS, _FILES, _PLACES = JobOptions(), SweepOptions(), TaskOptions(), FileOptions(), PlaceOptions()


async def submit(
    *command: str,
    options: JobOptions = _JOB,
    sweeping: SweepOptions = _SWEEP,
    tasks: TaskOptions = _TASKS,
    files: FileOptions = _FILES,
    places: PlaceOptions = _PLACES,
    wait: Annotated[bool, Parameter(group=_AFTER_SUBMISSION)] = False,
    dry_run: Annotated[bool, Parameter(group=_AFTER_SUBMISSION)] = False,
    common: Common = PLAIN,
) -> int:
    """Submit a job: a command, an array or a parameter sweep.

    Everything after `--` is the command, run once for every task in an empty folder; --input names the files that
    tasks find there:

        loopline submit --input pi.py --wait -- python3 pi.py
        loopline submit --input train --size 2h --param seed=1..100 -- ./train {seed}
        loopline submit --input train --csv settings.csv --dry-run -- ./train --lr {lr} --seed {seed}
        loopline submit --input step --array 1-1000 -- ./step {index}
        loopline submit --input run.py --input data/ --output '*.csv' -- python3 run.py
        loopline submit --file job.yaml

    Parameters
    ----------
    command
        Command to run, and its arguments.
    wait
        Follow the job until it is over; the exit code then tells whether it succeeded.
    dry_run
        Submit nothing: show the number of tasks, the first commands, and the expected duration.
    """
    _check(options, sweeping)
    async with AsyncExitStack() as until_end:
        client = await until_end.enter_async_context(common.client())
        again = await failed_of.read(client, options.only_failed_of) if options.only_failed_of else FailedTasks()
        file = job_file.read(options.file) if options.file else again.job
        found = await inputs.read(files, file)
        document = assemble.document(command, (options, tasks, files, places), file)
        swept = await until_end.enter_async_context(sweep.opened(sweeping, again.rows))
        job = assemble.specification(found.named_in(document), swept.parameters, file)
        missing = missing_inputs.find(job)
        if more := missing_inputs.chosen(missing, takes_all=files.takes_all, may_ask=not (dry_run or common.json)):
            found = (await inputs.read(FileOptions(input=tuple(more)), None)).beside(found)
            job = assemble.specification(found.named_in(document), swept.parameters, file)
        if file is not None:
            merging.check_all_given(job, file, swept.names_in(job))
        await shared_folder.check(client, job)
        receipt.warn(one.warning for one in missing if one.input not in more or one.is_found_on_path_only)
        if dry_run:
            seen = swept.shown_in(await client.preview(job), job)
            common.show(seen, lambda: receipt.preview(seen, job))
            return 0
        with _nothing_submitted():
            await swept.upload(client)
            await found.upload(client)
        submitted = await client.submit(job)
    if wait:
        return await follow(submitted.id, common, submitted.warnings)
    common.show(submitted, lambda: receipt.receipt(submitted))
    return 0


@contextmanager
def _nothing_submitted() -> Iterator[None]:
    """Say after Ctrl-C that there is no job yet."""
    try:
        yield
    except asyncio.CancelledError:
        message = "nothing is submitted; the same command goes on where this one stopped, without sending files again"
        stderr().print(f"\n{message}", soft_wrap=True)
        raise


def _check(options: JobOptions, sweeping: SweepOptions) -> None:
    """Raises LooplineError (usage) if two options want the same."""
    if [options.file, sweeping.each_line, sweeping.csv, sweeping.jsonl].count(STDIN) > 1:
        raise usage("stdin can be read only once", "put one of the two into a file")
    if options.only_failed_of is not None:
        if options.file:
            raise usage("--file and --only-failed-of both describe the whole job", "give one of the two")
        failed_of.check(sweeping)
