"""``python -m loopline_worker``: runs an agent on this computer until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopline_shared.errors import LooplineError
from loopline_shared.terminal import import_blocker  # noqa: F401 - before anything else
from loopline_shared.terminal.parser import Parser

if TYPE_CHECKING:
    from loopline_worker.agent import Agent

_DESCRIPTION = """Run a Loopline worker on this computer: it takes tasks from a master, runs them at the lowest
priority, and brings their results back."""

_EPILOG = """Every option can also be set as LOOPLINE_<NAME> in the environment, or in the [worker] table of
loopline.toml; the token can only be set there. Exit codes: 0 stopped, 1 something broke, 2 wrong options or settings,
4 refused by the master, 75 to be started again, since it was upgraded."""

_LOG_BYTES = 5 * 2**20
_GARBAGE = 5000
"""New objects between garbage collections: more than some hundred tasks leave, which mostly free themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker and return its exit code."""
    options = vars(_parser().parse_args(arguments))
    level = logging.DEBUG if options.pop("verbose") else logging.INFO
    handlers = [
        _log_file(file) if (file := options.pop("log_file") or _default_log()) else logging.StreamHandler(sys.stderr)
    ]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(message)s", handlers=handlers)
    logging._srcfile = None  # no log line shows the caller, whose lookup is half the cost of a line (logging HOWTO)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    try:
        return _run(options)
    except LooplineError as error:
        print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 4 if error.status in (401, 403) else 2


def _default_log() -> str:
    """Return where to log by default: where the service manager says, or in a folder if there is no console."""
    if sys.stderr is not None:
        return os.environ.get("LOOPLINE_LOG_FILE", "")
    from loopline_shared.configuration.user_folders import user_folder

    return str(user_folder("log") / "worker.log")


def _log_file(file: str) -> logging.Handler:
    """Return a log file that is rotated at 5 MiB, with three older ones kept."""
    from logging.handlers import RotatingFileHandler

    Path(file).parent.mkdir(parents=True, exist_ok=True)
    return RotatingFileHandler(file, maxBytes=_LOG_BYTES, backupCount=3, encoding="utf-8")


def _run(options: dict[str, object]) -> int:
    gc.disable()  # while modules are imported: they stay
    from loopline_shared.configuration.settings_source import unknown_variables
    from loopline_worker import agent
    from loopline_worker.discovery import with_master
    from loopline_worker.host import descriptors, surroundings
    from loopline_worker.launch import delegation
    from loopline_worker.settings import WorkerSettings
    from loopline_worker.state.data_directory import DataDirectory

    surroundings.check_proc()
    descriptors.raise_limit()
    for limit in surroundings.inherited_limits():
        logging.warning("this worker was started with a limit: %s", limit)
    for unknown in unknown_variables(WorkerSettings):
        logging.warning("%s", unknown)
    settings = with_master(WorkerSettings.load(**options))
    settings.find_token()  # raises if the file is missing: the sandbox must know what to hide from tasks
    data_directory = DataDirectory(settings.data_dir)
    try:
        delegation.kill_leftovers()
        data_directory.sweep()
        return asyncio.run(agent.run(settings, data_directory, _on_start))
    finally:
        gc.enable()
        data_directory.close()


def _on_start(agent: Agent) -> None:
    gc.freeze()  # these objects stay for good: collections may skip them
    gc.set_threshold(_GARBAGE)
    gc.enable()
    _stop_on_signals(agent)


def _stop_on_signals(agent: Agent) -> None:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        if sys.platform == "win32":
            signal.signal(signum, lambda *_: loop.call_soon_threadsafe(agent.stop))
        else:
            loop.add_signal_handler(signum, agent.stop)


def _parser() -> Parser:
    from loopline_worker import flags

    parser = Parser("loopline worker", "loopline worker [OPTIONS]", description=_DESCRIPTION, epilog=_EPILOG)
    flags.add_to(parser)
    parser.add_argument(
        "--log-file", metavar="FILE", help="log there instead of stderr; earlier ones are FILE.1 to .3"
    )
    parser.add_argument("--verbose", action="store_true", help="log more")
    return parser


if __name__ == "__main__":
    sys.exit(main())
