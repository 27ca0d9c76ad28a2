"""Run the master: ``python -m loopline_master``."""

from __future__ import annotations

import gc

gc.disable()  # while modules are imported: they stay

import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loopline_shared.terminal import import_blocker

with import_blocker.without_authorities():
    import aiohttp  # noqa: F401

from loopline_master.app import Master, keep_serving
from loopline_master.certificates.encryption import Encryption
from loopline_master.certificates.own_names import reached_at
from loopline_master.passing import passes
from loopline_master.settings import SCHEDULING, MasterSettings
from loopline_master.store.postgres import is_passing
from loopline_shared import __version__
from loopline_shared.configuration.settings_source import unknown_variables
from loopline_shared.configuration.user_folders import known_user_folder
from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser

gc.freeze()  # or the first collection goes over all that was imported
gc.enable()

_DESCRIPTION = "Run the master of a Loopline grid: it takes jobs over REST and has workers run them."
_EPILOG = """Every option can also be set as LOOPLINE_<NAME> in the environment, or in the [master] table of
loopline.toml; limits are in [master.limits] or LOOPLINE_LIMITS__<NAME>. Exit codes: 0 stopped, 1 it cannot start or
go on, 2 wrong options or settings."""
_MOST_FILES = 65536
_GARBAGE = 50_000, 20, 20
log = logging.getLogger("loopline_master")
_LONGEST_LINE = 2000


class OneLine(logging.Formatter):
    """Writes a message as one line of bounded length, without control characters: a part of it came from outside."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the library's name)
        """Return the line; a traceback follows it as it is."""
        line = super().formatMessage(record)
        cut = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}... ({len(line):,} characters)"
        return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)


def without_traceback(record: logging.LogRecord) -> bool:
    """Reduce errors to one line where a traceback says nothing more; True: the record is logged.

    These are malformed HTTP, which anybody can send, and failures that pass by themselves, such as a database that is
    away: libraries log those once for each waiting request.
    """
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and (_is_malformed(record, error) or _passes(record, error)):
        record.msg, record.args = f"{record.getMessage()}: {error}", None
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def _is_malformed(record: logging.LogRecord, error: BaseException) -> bool:
    from aiohttp.http import HttpProcessingError
    from aiohttp.web import RequestPayloadError

    return record.name == "aiohttp.server" and isinstance(error, HttpProcessingError | RequestPayloadError)


def _passes(record: logging.LogRecord, error: BaseException) -> bool:
    return passes(error) or (record.name.startswith("sqlalchemy.") and is_passing(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the master until a signal stops it. Returns the exit code of the process."""
    gc.set_threshold(*_GARBAGE)
    options = vars(_parser().parse_args(arguments))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger().handlers[0].setFormatter(OneLine("%(asctime)s %(levelname)-7s %(message)s"))
    logging.getLogger().handlers[0].addFilter(without_traceback)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        settings = MasterSettings.load(**options)
    except LooplineError as error:
        return _complain(error, 2)
    for unknown in unknown_variables(MasterSettings):
        log.warning("%s", unknown)
    _raise_file_limit()
    try:
        asyncio.run(_run(settings))
    except LooplineError as error:
        return _complain(error, 1)
    return 0


def _raise_file_limit() -> None:
    """Take as many file descriptors as this user may have: every worker, user and open file takes one."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _run(settings: MasterSettings) -> None:
    told_to_stop = asyncio.Event()
    _on_signals(told_to_stop.set)

    def greet(master: Master, *, is_again: bool) -> None:
        if is_again:
            log.info("the master serves again")
            return
        print(_greeting(settings, master), flush=True)
        gc.freeze()  # all objects of the start stay

    await keep_serving(settings, told_to_stop, greet)


def _on_signals(act: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        if sys.platform == "win32":
            signal.signal(signum, lambda *_: loop.call_soon_threadsafe(act))
        else:
            loop.add_signal_handler(signum, act)


def _greeting(settings: MasterSettings, master: Master) -> str:
    scheme, _, place = master.url.partition("://")
    port = place.rpartition(":")[2]
    reachable = master.url if settings.is_private else f"{scheme}://{reached_at(settings.host)}:{port}"
    join = f"loopline worker --master {reachable}"
    if settings.tokens:
        join += f" --token-file {shlex.quote(str(settings.data_dir.absolute() / 'tokens' / 'worker'))}"
    lines = [
        f"Loopline {__version__}: the master serves at {reachable}",
        f"  page      {reachable}/",
        f"  data      {settings.data_dir.absolute()}",
        f"  API       {reachable}/docs",
        f"  policy    {settings.scheduler.policy}, order {settings.scheduler.order}",
        f"  a worker  {join}",
    ]
    if settings.tokens and not settings.is_private:
        lines.append("            on another computer: what `loopline token join` prints")
    if settings.tokens and settings.data_dir.absolute() != _own_folder():
        admin = shlex.quote(str(settings.data_dir.absolute() / "tokens" / "admin"))
        lines.append(f"  you       export LOOPLINE_MASTER={reachable} LOOPLINE_TOKEN_FILE={admin}")
    if pin := master.parts[Encryption].pin:
        lines += [
            f"  TLS       by its own CA; SHA-256 of its key: {pin}",
            f"            a browser trusts it once it has imported {reachable}/ca.pem",
        ]
    return "\n".join(lines)


def _own_folder() -> Path | None:
    """Return the data folder where commands of this user look for a token by themselves."""
    folder = known_user_folder("data")
    return folder and folder / "master"


def _complain(error: LooplineError, code: int) -> int:
    print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
    return code


def _parser() -> Parser:
    """Return a parser with a flag for each setting."""
    parser = Parser("loopline master", description=_DESCRIPTION, epilog=_EPILOG)
    scheduling = parser.add_argument_group("scheduling")
    for name, field in MasterSettings.model_fields.items():
        if name not in ("tokens", "limits"):
            flag, group = f"--{name.replace('_', '-')}", scheduling if name in SCHEDULING else parser
            switch = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
            metavar = "on|off" if switch else name.rpartition("_")[2].upper()
            group.add_argument(flag, help=field.description, metavar=metavar, **switch)  # type: ignore[arg-type]
    parser.add_argument("--no-tokens", dest="tokens", action="store_false", default=None, help="on loopback only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
