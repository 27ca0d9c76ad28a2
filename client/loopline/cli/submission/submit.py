"""``loopline submit``: from a command line to a job."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage
from loopline.cli.follow import follow
from loopline.cli.submission import assemble, inputs, job_file, merging, missing_inputs, receipt, sweep
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
    if [options.file, sweeping.each_line, sweeping.csv, sweeping.jsonl].count(STDIN) > 1:
        raise usage("stdin can be read only once", "put one of the two into a file")
    file = job_file.read(options.file) if options.file else None
    input_files = await inputs.read(files, file)
    document = input_files.named_in(assemble.document(command, (options, tasks, files, places), file))
    async with sweep.opened(sweeping) as swept, common.client() as client:
        job = assemble.specification(document, swept.parameters, file)
        if file is not None:
            merging.check_all_given(job, file, swept.names_in(job))
        receipt.warn(missing_inputs.warnings(job))
        if dry_run:
            seen = swept.shown_in(await client.preview(job), job)
            common.show(seen, lambda: receipt.preview(seen, job))
            return 0
        await swept.upload(client)
        await input_files.upload(client)
        submitted = await client.submit(job)
    if wait:
        return await follow(submitted.id, common, submitted.warnings)
    common.show(submitted, lambda: receipt.receipt(submitted))
    return 0
