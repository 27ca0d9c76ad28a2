"""Where a task's files go at home: ``{lr}/{seed}/`` filled with its parameters. Pure; whatever a parameter's value
says, nothing is written outside the folder that the user named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path, PureWindowsPath

from loopline_shared.scalar import Scalar
from loopline_shared.spec import PLACEHOLDER

DEFAULT = "{task}"
_UNFIT = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
"""In the name of a file, on one system or another."""
_MOST_CHARACTERS = 100
_OWN = ("task", "job")
_IGNORES_CASE = sys.platform in ("win32", "darwin")


class LayoutError(ValueError):
    pass


class Layout:
    """One template for all tasks of a job."""

    def __init__(self, template: str) -> None:
        """LayoutError where it leads out of the folder that it is in."""
        self._template = template.strip().rstrip("/")
        names = self._template.split("/")
        if not self._template or Path(template).is_absolute() or any(name in ("", ".", "..") for name in names):
            raise LayoutError(f"expected folders such as '{{lr}}/{{seed}}/', got {template!r}")
        self._names = set(PLACEHOLDER.findall(self._template))
        self._taken: dict[str, int] = {}

    @property
    def needs_parameters(self) -> bool:
        return bool(self._names - set(_OWN))

    def folder(self, job: int, task: int, parameters: Mapping[str, Scalar]) -> str:
        """Of one task, relative; LayoutError where it has no such parameter, or another task has the same folder."""
        values = {**parameters, "task": task, "job": job}
        if missing := sorted(self._names - set(values)):
            known = ", ".join(sorted(values))
            raise LayoutError(f"--layout names {missing[0]}, but the tasks have only: {known}")
        filled = PLACEHOLDER.sub(lambda match: _as_name(values[match.group(1)]), self._template)
        folder = "/".join(_not_a_way_out(name) for name in filled.split("/"))
        other = self._taken.setdefault(folder.casefold() if _IGNORES_CASE else folder, task)
        if other != task:
            raise LayoutError(f"tasks {other} and {task} would both go to {folder}/: put {{task}} into --layout")
        return folder


def check_names(paths: Collection[str]) -> None:
    """LayoutError where this computer cannot have files of these names beside each other."""
    if _IGNORES_CASE and len({path.casefold() for path in paths}) < len(paths):
        raise LayoutError("two of its files have names that this computer takes for one")
    if sys.platform == "win32" and (bad := next(filter(_is_unfit_for_windows, paths), None)):
        raise LayoutError(f"Windows cannot have a file named {bad!r}")


def _is_unfit_for_windows(path: str) -> bool:
    names = path.split("/")
    return (
        any(_UNFIT.search(name) or name.endswith((".", " ")) for name in names) or PureWindowsPath(path).is_reserved()
    )


def _as_name(value: Scalar) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _UNFIT.sub("_", text)[:_MOST_CHARACTERS]


def _not_a_way_out(name: str) -> str:
    return "_" * max(1, len(name)) if not name.strip(". ") else name
