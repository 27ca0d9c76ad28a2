"""``loopline owner``: shows what the grid runs on this computer, and pauses it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from loopline_shared.errors import LooplineError
from loopline_shared.terminal.parser import Parser
from loopline_worker.owner.blockers import end_of
from loopline_worker.owner.page import contributed_words, figures, headline, presence
from loopline_worker.owner.session_server import ask as ask_session_server
from loopline_worker.owner.state import WorkerState
from loopline_worker.settings import WorkerSettings

_ANSWER_WITHIN_S = 5.0
_ADDRESS_FILE = "owner-page"
_SOCKET = "unix:"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments, argparse.Namespace(json=False, data_dir=None))
    try:
        if options.verb == "report":
            return _become_reporter(WorkerSettings.load().owner_socket)
        address = _address(options.data_dir)
        answer = _ask(address, options)
    except LooplineError as error:
        _report(error, options.json)
        return 5 if error.code == "unreachable" else 2
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        print(in_text(WorkerState.from_json(answer), address))
    return 0


def in_text(state: WorkerState, address: str) -> str:
    """Return the page as text."""
    notice = [words for words in (state.notice, state.sandbox, state.peers) if words]
    lines = [f"{state.worker}: {headline(state)}", presence(state), *notice, "", "running here:"]
    lines += [
        f"  {task.job or '(no name)'}  for {task.ran_s:.0f} s{', frozen' if task.frozen else ''}"
        for task in state.running
    ] or ["  nothing"]
    lines += ["", "when tasks were frozen for you:", f"  {figures(state)}"]
    lines += [
        f"  {time.strftime('%a %H:%M:%S', time.localtime(entry.at))}  {entry.tasks} in {entry.took_s:.3f} s"
        f" {'after your input' if entry.after_input else 'after it was due'}: {entry.why}"
        for entry in state.freezes[:5]
    ]
    lines += [
        "",
        "what this computer gave:",
        *(f"  {line}" for line in contributed_words(state) or ["nothing yet"]),
        "",
        "when tasks may run:",
        *(f"  {line}" for line in state.preferences),
        "",
        *([] if address.startswith(_SOCKET) else [f"the same in a browser: {address}"]),
    ]
    return "\n".join(lines)


def _become_reporter(place: Path) -> int:
    """Become the reporter, whose process is small."""
    command = [sys.executable, "-P", "-m", "loopline_worker.presence", str(place)]
    os.execv(command[0], command)  # noqa: S606


def _address(folder: Path | None) -> str:
    """Return the address of this user's worker; else the socket of the computer's own."""
    settings = WorkerSettings.load(data_dir=folder)
    file = settings.data_dir / _ADDRESS_FILE
    try:
        return file.read_text("ascii").strip()
    except OSError:
        if folder is None and settings.owner_socket.exists():
            return f"{_SOCKET}{settings.owner_socket}"
        hint = "start one: loopline worker; or give its folder by --data-dir"
        raise LooplineError("unreachable", f"no worker of yours runs here ({file} does not exist)", hint) from None


def _ask(address: str, options: argparse.Namespace) -> dict[str, Any]:
    if address.startswith(_SOCKET):
        words = {"for": options.words} if options.verb == "pause" else {}
        return ask_session_server(Path(address.removeprefix(_SOCKET)), {"do": options.verb or "state", **words})
    if options.verb == "pause":
        try:
            end_of(options.words, time.time())
        except ValueError as error:
            raise LooplineError("usage", str(error), "such as: loopline owner pause 1h") from None
        return _call(f"{address}pause", {"for": options.words})
    if options.verb == "resume":
        return _call(f"{address}resume", {})
    return _call(f"{address}state")


def _call(address: str, form: dict[str, str] | None = None) -> dict[str, Any]:
    data = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(address, data, {"Accept": "application/json"})  # noqa: S310 - our own address
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=_ANSWER_WITHIN_S) as answer:
            document: dict[str, Any] = json.loads(answer.read())
            return document
    except (urllib.error.URLError, OSError, ValueError) as error:
        hint = "it may have been killed; start it again: loopline worker"
        raise LooplineError("unreachable", f"the worker on this computer does not answer: {error}", hint) from None


def _report(error: LooplineError, as_json: bool) -> None:
    if as_json:
        problem = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        print(json.dumps(problem), file=sys.stderr)
    else:
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)


def _parser() -> Parser:
    description = "Show what the grid runs on this computer, and pause it. No account is needed."
    common = Parser(add_help=False)
    for name, settings in _COMMON.items():
        common.add_argument(name, default=argparse.SUPPRESS, **settings)
    parser = Parser("loopline owner", description=description, parents=[common])
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    pause = verbs.add_parser("pause", parents=[common], help="keep all tasks off for a while, or for good")
    pause.add_argument("words", metavar="HOW-LONG", help="30m, 1h, 2d, until-tomorrow or for-good")
    verbs.add_parser("resume", parents=[common], help="let tasks run again")
    verbs.add_parser("report", help="tell the worker of this computer about this desktop's input (desktops start it)")
    return parser


_COMMON: dict[str, dict[str, Any]] = {
    "--json": {"action": "store_true", "help": "answer with JSON on stdout, and nothing else"},
    "--data-dir": {
        "type": Path,
        "metavar": "FOLDER",
        "help": "the worker's data folder",
    },
}


if __name__ == "__main__":
    sys.exit(main())
