"""Folders that tasks' files are downloaded to: ``{lr}/{seed}/`` filled with parameters. Pure.

Nothing is written outside the folder that the user named, whatever the values of parameters.
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
"""Characters that names of files must not have on one system or another."""
_MOST_CHARACTERS = 100
_OWN = ("task", "job")
_IGNORES_CASE = sys.platform in ("win32", "darwin")


class LayoutError(ValueError):
    """Raised for a layout that cannot be used."""


class Layout:
    """A template of folders, one for each task of a job."""

    def __init__(self, template: str) -> None:
        """Raises LayoutError if the template leads out of its folder."""
        self._template = template.strip().rstrip("/")
        names = self._template.split("/")
        if not self._template or Path(template).is_absolute() or any(name in ("", ".", "..") for name in names):
            raise LayoutError(f"expected folders such as '{{lr}}/{{seed}}/', got {template!r}")
        self._names = set(PLACEHOLDER.findall(self._template))
        self._taken: dict[str, int] = {}

    @property
    def needs_parameters(self) -> bool:
        """True if the template names parameters of the tasks."""
        return bool(self._names - set(_OWN))

    def folder(self, job: int, task: int, parameters: Mapping[str, Scalar]) -> str:
        """Return the folder of one task, relative to the user's.

        Raises LayoutError if the task lacks a parameter, or if another task has the same folder.
        """
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
    """Raises LayoutError if this computer cannot keep files of these names beside each other."""
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
