"""``loopline submit``: from a command line to a job."""

from __future__ import annotations

from contextlib import AsyncExitStack

import loopline
from loopline.cli import follow
from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage
from loopline.cli.submission import (
    assemble,
    failed_of,
    inputs,
    job_file,
    merging,
    missing_inputs,
    receipt,
    shared_folder,
    software,
    sweep,
)
from loopline.cli.submission.options import (
    STDIN,
    CheckpointOptions,
    FileOptions,
    JobOptions,
    PlaceOptions,
    SoftwareOptions,
    SweepOptions,
    TaskOptions,
    ThenOptions,
)

_JOB, _SWEEP, _TASKS, _FILES, _PLACES = JobOptions(), SweepOptions(), TaskOptions(), FileOptions(), PlaceOptions()
_SOFTWARE, _CHECKPOINTS, _THEN = SoftwareOptions(), CheckpointOptions(), ThenOptions()


async def submit(
    *command: str,
    options: JobOptions = _JOB,
    sweeping: SweepOptions = _SWEEP,
    tasks: TaskOptions = _TASKS,
    files: FileOptions = _FILES,
    places: PlaceOptions = _PLACES,
    programs: SoftwareOptions = _SOFTWARE,
    checkpoints: CheckpointOptions = _CHECKPOINTS,
    then: ThenOptions = _THEN,
    common: Common = PLAIN,
) -> int:
    """Submit a job: a command, an array or a parameter sweep.

    What follows `--`, or begins with the first word that is no option, is the command, run once for every task in an
    empty folder; --input names the files that tasks find there:

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
    """
    _check(options, tasks, sweeping)
    async with AsyncExitStack() as until_end:
        client = await until_end.enter_async_context(common.client())
        again = (
            await failed_of.read(client, options.only_failed_of)
            if options.only_failed_of
            else failed_of.FailedTasks()
        )
        file = job_file.read(options.file) if options.file else again.job
        swept = await until_end.enter_async_context(sweep.opened(sweeping, again.rows))
        may_ask = not (then.dry_run or common.json)
        chosen, parts = software.read(programs, file), (options, tasks, files, places, sweeping, checkpoints)
        job, found, warnings = await _composed(command, parts, file, swept, chosen, may_ask=may_ask)
        if file is not None:
            merging.check_all_given(job, file, swept.names_in(job))
        await shared_folder.check(client, job)
        receipt.warn(warnings)
        receipt.note_left_out(found.left_out)
        if then.dry_run:
            return await _previewed(client, job, swept, common)
        await chosen.upload(client)
        submitted = await inputs.submitted(client, job, swept, found)
    if then.wait:
        return await follow.follow(submitted.id, common, submitted.warnings)
    common.show(submitted, lambda: receipt.receipt(submitted, job))
    return 0


async def _previewed(
    client: loopline.AsyncClient, job: loopline.JobSpec, swept: sweep.SweepParameters, common: Common
) -> int:
    """Show the dry run of a job."""
    seen = swept.shown_in(await client.preview(job), job)
    common.show(seen, lambda: receipt.preview(seen, job))
    return 0


async def _composed(
    command: tuple[str, ...],
    options: tuple[JobOptions, TaskOptions, FileOptions, PlaceOptions, SweepOptions, CheckpointOptions],
    file: job_file.JobFile | None,
    swept: sweep.SweepParameters,
    chosen: software.ChosenSoftware,
    *,
    may_ask: bool,
) -> tuple[loopline.JobSpec, inputs.InputFiles, list[str]]:
    """Return the job, its input files, and warnings of files that its command names and that are no inputs.

    Those that the user takes as inputs, asked on a terminal, are inputs.
    """
    files = options[2]
    found = await inputs.read(files, file)
    document = chosen.named_in(assemble.document(command, options, file))
    job = assemble.specification(found.named_in(document), swept.parameters, file)
    first = next(iter(inputs.rows_of(job, swept, 1)), {})
    missing = missing_inputs.find(job, first, [text for text, _ in found.of_tasks])
    if more := missing_inputs.chosen(missing, takes_all=missing_inputs.AUTO in files.input, may_ask=may_ask):
        added = FileOptions(input=tuple(more))
        found = (await inputs.read(added, None)).beside(found)
        job = assemble.specification(found.named_in(document), swept.parameters, file)
    if found.of_tasks:
        tasks, own = await inputs.of_tasks(job, found.of_tasks, swept, files)
        made = {name: value for name, value in found.named_in(document).items() if name != "parameters"}
        job, found = assemble.specification(made | {"tasks": tasks}, None, file), found.beside(own)
    unfound = [one.warning for one in missing if one.input not in more or one.is_found_on_path_only]
    return job, found, [*unfound, *inputs.line_end_warnings(job, found)]


def _check(options: JobOptions, tasks: TaskOptions, sweeping: SweepOptions) -> None:
    """Raises LooplineError (usage) if two options want the same."""
    if [options.file, sweeping.each_line, sweeping.csv, sweeping.jsonl].count(STDIN) > 1:
        raise usage("stdin can be read only once", "put one of the two into a file")
    if tasks.max_running is not None and sweeping.document():
        raise usage("--max-running and the % of --array both limit the running tasks", "give one of the two")
    if options.only_failed_of is not None:
        if options.file:
            raise usage("--file and --only-failed-of both describe the whole job", "give one of the two")
        failed_of.check(sweeping)
