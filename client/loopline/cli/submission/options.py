"""Options that make up a job, in the groups that help shows. Each group returns its part of the job as JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from loopline.cli import values
from loopline.cli.common import read_by, read_each_by
from loopline_shared.errors import LooplineError

JobDocument = dict[str, Any]
"""Part of a job as JSON; values that are None or empty are removed later."""

FROM_FILE = Parameter(
    converter=lambda _, words: values.source(words[0].value),
    n_tokens=1,
    accepts_keys=False,
    allow_leading_hyphen=True,
    metavar="FILE",
)
"""Parameter for a file to be read, or ``-`` for stdin."""
STDIN = Path("-")

DurationOption = Annotated[float | None, read_by(values.duration, "DURATION")]
SizeOption = Annotated[float | Literal["unknown"] | None, read_by(values.size, "DURATION")]
Source = Annotated[Path | None, FROM_FILE]
BytesOption = Annotated[int | None, read_by(values.memory, "AMOUNT")]


@Parameter(name="*", group=Group("The job", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options about the job as a whole.

    Parameters
    ----------
    file
        A whole job as YAML, TOML or JSON, by the file's name; `-` reads stdin as YAML. Command-line options override
        the file.
    name
        Job name (default: the command).
    size
        Computation of the whole job on a core of speed 1.0: 90s, 10m, 2h (default: predicted from past runs).
        `unknown` switches prediction off; no job waits for one without a size.
    folder
        Folder used to recognise repeated runs (default: current).
    only_failed_of
        Submit the tasks of this job that failed or were cancelled once more; every option and the command override
        what that job said.
    after
        A job that must succeed before this one starts; may be given several times.
    after_any
        A job that must end before this one starts, however it ends; may be given several times.
    after_failed
        A job that must fail or be cancelled before this one starts, which is cancelled if that job succeeds.
    max_fails
        Stop the job once so many of its tasks have failed: 5, or a share of them such as 10%.
    notify
        Notify when the job ends: a URL, called with a signed message, or command:NAME, a command of the master.
    """

    file: Source = None
    name: str = ""
    size: SizeOption = None
    folder: str | None = None
    only_failed_of: Annotated[int | None, read_by(values.job, "JOB")] = None
    after: Annotated[tuple[int, ...], read_each_by(values.job, "ID")] = ()
    after_any: Annotated[tuple[int, ...], read_each_by(values.job, "ID")] = ()
    after_failed: Annotated[tuple[int, ...], read_each_by(values.job, "ID")] = ()
    max_fails: Annotated[int | str | None, read_by(values.count_or_share, "N|P%")] = None
    notify: Annotated[JobDocument | None, read_by(values.notification, "URL|command:NAME")] = None

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {
            "name": self.name,
            "size": self.size,
            "folder": self.folder,
            **self._after(),
            "max_fails": self.max_fails,
            "notify": self.notify,
        }

    def _after(self) -> JobDocument:
        """Return the jobs before this one, and the state that they must reach."""
        given = {"succeeded": self.after, "ended": self.after_any, "failed": self.after_failed}
        named = {state: list(jobs) for state, jobs in given.items() if jobs}
        if len(named) > 1:
            message = "--after, --after-any and --after-failed exclude one another"
            raise LooplineError("usage", message, "give all jobs before this one by one of them")
        state, jobs = next(iter(named.items()), ("succeeded", []))
        return {"after": jobs, "after_state": state if jobs else None}


@Parameter(name="*", group=Group("A sweep", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options that make a job a sweep: many tasks of one command.

    Parameters
    ----------
    param
        A parameter and its values: seed=1..100, seed=1..100:5 or lr=0.1,0.01. Several make a grid of all
        combinations, one task each. `{seed}` in the command is replaced by the task's value.
    array
        One task for each number: 1-1000, 1-1000:2 or 1,3,7-9, as the parameter `index`. With %10 at the end, ten of
        them run at once, at most.
    zip
        Take the first values together, then the second ones, and so on, instead of all combinations.
    each_line
        One task for each line of a file, as the parameter `line`; `-` reads stdin.
    csv
        One task for each row of a CSV file, whose first row names the parameters; `-` reads stdin.
    jsonl
        One task for each line of a file of JSON objects; `-` reads stdin.
    """

    param: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUES")] = ()
    array: Annotated[str | None, Parameter(metavar="NUMBERS")] = None
    zip: bool = False
    each_line: Source = None
    csv: Source = None
    jsonl: Source = None

    def document(self) -> JobDocument:
        """Return the part of the job as JSON that is not its parameters."""
        limit = values.split_array(self.array)[1] if self.array else None
        return {} if limit is None else {"max_running": limit}


@Parameter(name="*", group=Group("Each task", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options about each task.

    Parameters
    ----------
    nodes
        Workers that each task runs on at once, all or none: a gang (docs/parallel-jobs.md).
    timeout
        Time limit of one attempt, after which it is ended: 90s, 10m, 2h. Also `--time-limit`.
    kill_after
        Time from SIGTERM to SIGKILL where a task is ended by its time limit or by you: 30s; default 10s.
    max_attempts
        Number of times a failing task is run.
    retry_delay
        Wait this long before a failed task is run again: 30s; the wait doubles with each failure. Default: 0.
    max_running
        Tasks of the job that run at once, at most. `--array 1-1000%10` says the same.
    max_replicas
        Number of attempts of one task that may run at once, or unlimited. 1: no replicas, and a silent worker ends
        its attempt before the task starts elsewhere.
    quorum
        Accept a task's result only when so many workers agree on it.
    replica_budget
        CPU time that replicas of the job may take in all: 90s, 10m, 2h.
    env
        An environment variable of the tasks, NAME=VALUE; may be given several times.
    secret
        A variable of your environment that the tasks get, too: stored sealed, and shown to nobody.
    """

    nodes: int | None = None
    timeout: Annotated[DurationOption, Parameter(alias="--time-limit")] = None
    kill_after: DurationOption = None
    max_attempts: int | None = None
    retry_delay: DurationOption = None
    max_running: int | None = None
    max_replicas: int | Literal["unlimited"] | None = None
    quorum: int | None = None
    replica_budget: DurationOption = None
    env: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = ()
    secret: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = ()

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {
            "environment": dict(values.pair(text) for text in self.env),
            "secrets": {name: values.variable(name) for name in self.secret},
            "max_attempts": self.max_attempts,
            "retry_delay_s": self.retry_delay,
            "max_running": self.max_running,
            "max_replicas": self.max_replicas,
            "nodes": self.nodes,
            "quorum": self.quorum,
            "replica_budget_s": self.replica_budget,
            "timeout_s": self.timeout,
            "kill_after_s": self.kill_after,
        }


@Parameter(name="*", group=Group("Its files", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options about inputs and outputs.

    Parameters
    ----------
    input
        A file or a folder that tasks find in their scratch folder: data/, model.bin, or model.bin=name/there to
        give it another name; may be given several times. '{line}' is for each task the file that its parameter
        names. `auto` takes every file of this folder that the command names (a file of that name: ./auto).
    exclude
        Names or patterns that folders do not bring along: '*.log', build/, data/old; may be given several times.
        Left out anyway: .git, __pycache__, virtual environments, locks of editors, and what .looplineignore names.
    exclude_from
        A file of such patterns, one a line, such as .gitignore.
    follow_links
        Replace links that lead out of an input folder by the files or folders that they lead to. Other links stay
        links.
    output
        Files to bring back from each task: result.csv, '*.{csv,log}', or a folder; may be given several times. A
        task fails if one is missing, or a pattern matches no file.
    output_optional
        Files to bring back if there are any.
    """

    input: Annotated[tuple[str, ...], Parameter(metavar="PATH[=NAME]")] = ()
    exclude: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()
    exclude_from: Annotated[Path | None, Parameter(metavar="FILE")] = None
    follow_links: bool = False
    output: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()
    output_optional: Annotated[tuple[str, ...], Parameter(metavar="PATTERN")] = ()

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {"outputs": [*self.output, *({"path": path, "optional": True} for path in self.output_optional)]}


@Parameter(name="*", group=Group("Its software", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class SoftwareOptions:
    """Options about the software that tasks run with.

    Parameters
    ----------
    requirements
        A list of Python packages (requirements.txt). Each worker builds an environment from it once, and tasks find
        its programs first.
    python
        The Python of that environment, such as 3.12 (default: as the worker has).
    allow_builds
        Let packages be built that have no wheel, which runs their code on the worker, in the sandbox of tasks.
    image
        A container image in which tasks run, such as docker.io/library/r-base:4.4.2.
    """

    requirements: Annotated[Path | None, Parameter(metavar="FILE")] = None
    python: Annotated[str | None, Parameter(metavar="VERSION")] = None
    allow_builds: bool = False
    image: Annotated[str, Parameter(metavar="IMAGE")] = ""


@Parameter(name="*", group=Group("Where it may run", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Options about the workers that may run the job.

    Parameters
    ----------
    os
        Operating system of the worker.
    memory
        Memory that a task needs: 2GB, 512MiB.
    label
        A label that a worker must have; may be given several times.
    network
        The tasks need the network. Some workers give it only to jobs that ask for it.
    slots
        Slots that a task takes, on each of its nodes.
    exclusive
        Give each task a whole worker, with all of its slots: nothing else runs there.
    need
        What a task holds while it runs, NAME or NAME=UNITS: units of a limit, such as licences (`loopline limits`),
        or of a resource of its worker. May be given several times.
    gpus
        GPUs that a task has for itself, of one worker (docs/gpus.md). 0.5: half of one, where workers share them.
    gpu_memory
        Memory of each of its GPUs, at least: 8GB. This and the next two mean one GPU unless `--gpus` says more.
    gpu_model
        Words of the GPU's name: A4000.
    gpu_capability
        CUDA compute capability of its GPUs, at least: 8.0.
    cwd
        Run the tasks in this very folder, on workers whose operators share it, instead of in empty ones.
    """

    os: Literal["linux", "macos", "windows"] | None = None
    memory: BytesOption = None
    label: Annotated[tuple[str, ...], Parameter(metavar="LABEL")] = ()
    network: Annotated[bool, Parameter(negative=())] = False
    slots: int | None = None
    exclusive: Annotated[bool, Parameter(negative=())] = False
    need: Annotated[tuple[str, ...], Parameter(metavar="NAME[=N]")] = ()
    gpus: Annotated[float | None, read_by(values.gpus, "N")] = None
    gpu_memory: BytesOption = None
    gpu_model: str = ""
    gpu_capability: str = ""
    cwd: bool = False

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        return {
            "requires": {
                "os": self.os,
                "memory_bytes": self.memory,
                "labels": list(self.label),
                "network": self.network or None,
                "slots": self.slots,
                "exclusive": self.exclusive or None,
                "needs": dict(values.need(text) for text in self.need),
                "gpus": self.gpus or int(bool(self.gpu_memory or self.gpu_model or self.gpu_capability)) or None,
                "gpu_memory_bytes": self.gpu_memory,
                "gpu_model": self.gpu_model,
                "gpu_capability": self.gpu_capability,
                "folder": Path.cwd().as_posix() if self.cwd else "",
            }
        }


@Parameter(name="*", group=Group("Checkpoints", sort_key=6))
@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Options about what a stopped task continues from (docs/checkpoints.md).

    Parameters
    ----------
    checkpoint
        Save what the tasks write into the folder $LOOPLINE_CHECKPOINT: a stopped task continues from it, on any
        worker. The other options of this group imply it.
    checkpoint_every
        Time between two checkpoints: 30s, 10m (default: chosen by their cost).
    checkpoint_exit_code
        A task that exits with this code has saved its state, and is to be continued: 85.
    checkpoint_max
        The largest checkpoint that is kept: 500MB, 20GB; default 1GB.
    checkpoint_portable
        A checkpoint may be used on another operating system or type of processor.
    """

    checkpoint: bool = False
    checkpoint_every: DurationOption = None
    checkpoint_exit_code: int | None = None
    checkpoint_max: BytesOption = None
    checkpoint_portable: bool = False

    def document(self) -> JobDocument:
        """Return the part of the job as JSON."""
        given = {
            "every_s": self.checkpoint_every,
            "exit_code": self.checkpoint_exit_code,
            "max_bytes": self.checkpoint_max,
            "portable": self.checkpoint_portable or None,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return {"checkpoint": {"portable": False, **chosen}} if self.checkpoint or chosen else {}


@Parameter(name="*", group=Group("Then", sort_key=7))
@dataclass(frozen=True, kw_only=True)
class ThenOptions:
    """Options about what happens once the job is put together.

    Parameters
    ----------
    wait
        Follow the job until it is over; the exit code then tells whether it succeeded.
    dry_run
        Submit nothing: show the number of tasks, the first commands, and the expected duration.
    """

    wait: bool = False
    dry_run: bool = False
