"""The table of commands. A command is imported when it is chosen, so that help and errors are quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from cyclopts import App, Group, Parameter, Token, convert

from loopline.cli.errors import EXIT_CODES
from loopline.cli.render.help_pages import HelpFormatter
from loopline_shared import __version__

_GRID, _JOBS, _STEERING, _OUTPUT, _MACHINES, _ACCESS = (
    Group(title, sort_key=place)
    for place, title in enumerate(
        ("Grid", "Submit and look", "Steer", "Get results", "Machines", "Access and audit"), 1
    )
)

COMMANDS: dict[str, tuple[Group, str, str]] = {
    "demo": (_GRID, "loopline.demo.show:demo", "Show a whole grid at work on this computer, in half a minute."),
    "local": (_GRID, "loopline.cli.local:local", "Run a grid on this computer, until Ctrl-C or a command's end."),
    "master": (_GRID, "loopline.cli.daemons:master", "Run a master; `loopline master --help` lists its settings."),
    "worker": (_GRID, "loopline.cli.daemons:worker", "Run a worker; `loopline worker --help` lists its settings."),
    "replay": (_GRID, "loopline.cli.audit:replay", "Replay a master's event log: compare, or ask what if."),
    "simulate": (_GRID, "loopline.cli.daemons:simulate", "Run an experiment in virtual time; alone it lists them."),
    "submit": (_JOBS, "loopline.cli.submission.submit:submit", "Submit a job: a command, or a sweep of many tasks."),
    "run": (_JOBS, "loopline.engines.run_command:run", "Run a Dask cluster on the grid, for as long as it is used."),
    "jobs": (_JOBS, "loopline.cli.jobs:jobs", "List jobs, the latest first."),
    "job": (_JOBS, "loopline.cli.jobs:job", "Show one job, or wait for it."),
    "tasks": (_JOBS, "loopline.cli.jobs:tasks", "List a job's tasks."),
    "explain": (_JOBS, "loopline.cli.jobs:explain", "Explain the state of a job, a task or a worker."),
    "failures": (_JOBS, "loopline.cli.jobs:failures", "Group failed tasks of the latest jobs by their reason."),
    "gantt": (_JOBS, "loopline.cli.gantt:gantt", "Draw which worker ran what, and when."),
    "cancel": (_STEERING, "loopline.cli.steer:cancel", "Cancel jobs."),
    "pause": (_STEERING, "loopline.cli.steer:pause", "Start nothing more of a job until it is resumed."),
    "resume": (_STEERING, "loopline.cli.steer:resume", "Resume paused jobs."),
    "retry": (_STEERING, "loopline.cli.steer:retry", "Run the failed and cancelled tasks of a job again."),
    "logs": (_OUTPUT, "loopline.cli.output:logs", "Print the output of a task."),
    "results": (_OUTPUT, "loopline.cli.output:results", "Print the output of every task, as the tasks finish."),
    "fetch": (_OUTPUT, "loopline.cli.fetch:fetch", "Download outputs and logs of all tasks."),
    "workers": (_MACHINES, "loopline.cli.workers:workers", "List the workers."),
    "top": (_MACHINES, "loopline.cli.top:top", "Watch workers and jobs, live."),
    "history": (
        _MACHINES,
        "loopline.cli.history:history",
        "Sum up usage by user or worker; what past runs tell.",
    ),
    "energy": (_MACHINES, "loopline.cli.history:energy", "Show the energy that tasks used, by user or worker."),
    "shares": (
        _MACHINES,
        "loopline.cli.history:shares",
        "Show what each user has used of the grid, against their share.",
    ),
    "limits": (_MACHINES, "loopline.cli.limits:limits", "Show the limits, of licences for example."),
    "limit": (_MACHINES, "loopline.cli.limits:limit", "Set a limit, of licences for example."),
    "demand": (_MACHINES, "loopline.elastic.demand_command:demand", "Show what could start now, were there slots."),
    "elastic": (
        _MACHINES,
        "loopline.elastic.elastic_command:elastic",
        "Have a cluster or a command start workers while tasks could start.",
    ),
    "drain": (_MACHINES, "loopline.cli.workers:drain", "Start nothing more on a worker; running tasks finish."),
    "undrain": (_MACHINES, "loopline.cli.workers:undrain", "Let a drained worker run tasks again."),
    "wake": (_MACHINES, "loopline.cli.workers:wake", "Wake computers that are asleep."),
    "forget": (_MACHINES, "loopline.elastic.forget_command:forget", "Forget workers that do not come back."),
    "join": (_MACHINES, "loopline.cli.joining:join", "Make this computer a worker, with the line from a master."),
    "service": (_MACHINES, "loopline.cli.service:service", "Install a worker, or a master, as a service."),
    "owner": (_MACHINES, "loopline.cli.daemons:owner", "Show what runs on this computer; pause, resume."),
    "network": (_MACHINES, "loopline.cli.network:network", "Draw the network, and what flows; check a network.toml."),
    "doctor": (_MACHINES, "loopline.cli.daemons:doctor", "Check what this computer lets a worker see and do."),
    "leave": (_MACHINES, "loopline.cli.joining:leave", "Undo what `loopline join` did on this computer."),
    "login": (_ACCESS, "loopline.cli.login:login", "Remember a master and your token, with the line from an admin."),
    "logout": (_ACCESS, "loopline.cli.login:logout", "Forget the master and the token of `loopline login`."),
    "tls": (_ACCESS, "loopline.cli.login:tls", "Show or enable the encryption of a master."),
    "token": (_ACCESS, "loopline.cli.tokens:token", "Create, list and revoke access tokens."),
    "audit": (_ACCESS, "loopline.cli.audit:audit", "Show who changed what, and from where."),
    "prune": (_ACCESS, "loopline.cli.prune:prune", "Remove unused files from the master."),
    "backup": (_ACCESS, "loopline.cli.daemons:backup", "Copy a master's database, files and keys, while it runs."),
    "fsck": (_ACCESS, "loopline.cli.daemons:fsck", "Check that a master's files are whole and there."),
    "restore": (_ACCESS, "loopline.cli.daemons:restore", "Make a master's data folder from a backup."),
    "completion": (_ACCESS, "loopline.cli.completion:completion", "Complete commands and options in your shell."),
    "passing": (_ACCESS, "loopline.cli.audit:passing", "Audit the promise that no job passes another."),
}


def build(chosen: str | None) -> App:
    """Build the command line, with the ``chosen`` command's own docstring as its help."""
    app = App(
        name="loopline",
        help="Jobs on CPU time that PC owners are not using; no job passes an earlier one that is not larger.",
        help_epilogue=EXIT_CODES,
        help_format="plaintext",
        help_formatter=HelpFormatter(),
        version=__version__,
        default_parameter=Parameter(converter=_converted, negative=(), show_default=False),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app["--help"].group = app["--version"].group = Group("Options", sort_key=9)
    for name, (group, path, summary) in COMMANDS.items():
        app.command(path, name=name, group=group, help=None if name == chosen else summary)
    return app


def _converted(hint: Any, words: Sequence[Token]) -> Any:
    """Convert as cyclopts does, except that it would round fractions: 1.9 nodes are refused, not taken as 2."""
    for kind in get_args(hint) or (hint,):
        if kind is int:
            from loopline.cli import values  # help needs none of it

            others = tuple(str(choice) for choice in get_args(hint) for choice in get_args(choice))
            for word in words:
                values.whole_number(word.value, others)
    return convert(hint, words)
