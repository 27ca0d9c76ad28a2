"""The service that is installed: its command line read back from the file that the system's manager reads."""

from __future__ import annotations

import plistlib
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TASK = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed service: the arguments of ``loopline worker``, and the user who runs it, if the file says."""

    arguments: tuple[str, ...]
    user: str = ""


def find(files: Iterable[Path]) -> Installed | None:
    """Return the service that one of these files starts; None if they are missing or unreadable."""
    for file in files:
        try:
            installed = _read(file)
        except (OSError, ValueError, KeyError, plistlib.InvalidFileException, ET.ParseError):
            continue
        if installed:
            return installed
    return None


def _read(file: Path) -> Installed | None:
    match file.suffix:
        case ".service":
            return _read_unit(file.read_text("utf-8"))
        case ".plist":
            return _installed(plistlib.loads(file.read_bytes())["ProgramArguments"])
        case ".xml":
            return _read_task(file.read_bytes())
    return None


def _read_unit(text: str) -> Installed | None:
    command = re.search(r"^ExecStart=(.+)$", text, re.MULTILINE)
    user = re.search(r"^User=(.+)$", text, re.MULTILINE)
    if not command:
        return None
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command[1])]
    has_own_users = "--tasks-as" in words
    return _installed(words, user[1].strip() if user and not has_own_users else "")


def _read_task(content: bytes) -> Installed | None:
    """Read a task of Windows' Task Scheduler. UNTESTED on Windows."""
    root = ET.fromstring(content.decode("utf-16").partition("?>")[2].strip())  # noqa: S314 - we wrote it
    program, arguments = (root.findtext(f".//{_TASK}{name}", "") for name in ("Command", "Arguments"))
    words = shlex.split(arguments, posix=False)  # posix=False keeps backslashes, and also quotes
    return _installed([program, *(word.removeprefix('"').removesuffix('"') for word in words)])


def _installed(words: list[str], user: str = "") -> Installed | None:
    """Return the service of `loopline worker ...` or `python -m loopline worker ...`; None for another program."""
    place = next((place for place, word in enumerate(words) if word == "worker"), 0)
    if not place:
        return None
    return Installed(tuple(words[place + 1 :]), user)
