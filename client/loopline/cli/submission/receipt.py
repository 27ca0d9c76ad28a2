"""Output of `loopline submit`: the receipt, or the preview of a dry run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli.common import stderr
from loopline.cli.render import human, tables
from loopline.transfer.files import LocalFile
from loopline_shared.job_files import output_patterns
from loopline_shared.rest.bodies import Preview, Submission
from loopline_shared.spec import JobSpec

LONGEST_COMMAND = 160
MOST_NAMED = 5


def receipt(submitted: Submission, job: JobSpec) -> RenderableType:
    """Return what is shown about a submitted job, with the planned start of a gang."""
    tasks = human.plural(submitted.task_count, "task")
    line = Text.assemble("job ", (str(submitted.id), "bold"), f" submitted: {tasks}")
    plan = tables.planned(submitted.plan, job.nodes) if submitted.plan is not None else ()
    starts = (Text(f"{kind} start: {start}") for kind, start in plan)
    return Group(line, *starts, *(Text(note, "dim") for note in submitted.notes), *_warnings(submitted.warnings))


def preview(seen: Preview, job: JobSpec) -> RenderableType:
    """Return what would be submitted: its tasks, first commands, files and expected duration."""
    tasks = human.plural(seen.task_count, "task")
    shown = [Text(f"{task.number:>7,}  {_command(task.command)}", no_wrap=True) for task in seen.tasks]
    if seen.task_count > len(seen.tasks):
        shown.append(Text("    ...", "dim"))
    return Group(
        Text.assemble(("nothing is submitted: ", "bold"), f"this would be {tasks}, size {human.size(seen.size)}"),
        *shown,
        *_files(job),
        *_expected(seen),
        *_warnings(seen.warnings),
    )


def warn(warnings: Iterable[str]) -> None:
    """Print warnings on stderr, apart from the answer on stdout."""
    for warning in _warnings(warnings):
        stderr().print(warning, soft_wrap=True)


def note_left_out(paths: Sequence[str]) -> None:
    """Print on stderr what was left out of input folders."""
    if paths:
        stderr().print(Text(f"left out of the inputs: {_few(paths)}", "dim"), soft_wrap=True)


def note_upload(files: Sequence[LocalFile]) -> None:
    """Print on stderr what is about to be uploaded: the number of files, their size, and the largest."""
    largest = sorted(files, key=lambda file: file.size_bytes, reverse=True)[:MOST_NAMED]
    named = ", ".join(f"{file.path.as_posix()} ({human.amount(file.size_bytes)})" for file in largest)
    total = f"{human.plural(len(files), 'file')}, {human.amount(sum(file.size_bytes for file in files))}"
    stderr().print(Text(f"uploading {total}; the largest: {named}"), soft_wrap=True)


def _command(command: Iterable[str]) -> str:
    """Return a command as a person would type it."""
    line = shlex.join(command).replace("\n", "\\n")
    return line if len(line) <= LONGEST_COMMAND else f"{line[: LONGEST_COMMAND - 3]}..."


def _files(job: JobSpec) -> Iterable[Text]:
    if job.inputs:
        yield Text(f"each finds {_few(list(job.inputs))}")
    if job.tasks and job.tasks[0].inputs:
        yield Text(f"each finds files of its own, as task 1 finds {_few(list(job.tasks[0].inputs))}")
    if job.outputs:
        optional = (f"{path} (if there is any)" for path in output_patterns(job.outputs, optional=True))
        yield Text(f"each brings back {_few([*output_patterns(job.outputs, optional=False), *optional])}")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _expected(seen: Preview) -> Iterable[Text]:
    if seen.expected:
        p50, p90 = human.duration(seen.expected.p50_s), human.duration(seen.expected.p90_s)
        yield Text(f"expected to be over in {p50}; 9 times out of 10 within {p90}")
    else:
        yield Text("how long it takes is not known before some of its tasks have run", "dim")


def _warnings(warnings: Iterable[str]) -> Iterable[Text]:
    return (Text(f"warning: {warning}", "yellow") for warning in warnings)
