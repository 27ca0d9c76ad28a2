"""Recipes: the ingredients of an environment, and their hash."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.worker_link import Run
from loopline_worker.functions.python import Python

_FILE = "sha256:"
_KEY_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """Ingredients of an environment: an image, or packages (SHA-256 of their list; perhaps none) and a Python."""

    image: str = ""
    packages: str = ""
    builds: bool = False
    python: str = ""  # a program, or a version to be fetched
    version: str = ""  # of the program, to its last number

    @property
    def key(self) -> str:
        """A name for the environment's folder."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:_KEY_CHARACTERS]


class Recipes:
    """Makes the recipe of a run, from the Pythons that this worker has: its own, and others by version."""

    def __init__(self, own: Python, pythons: dict[str, str], own_version: str) -> None:
        """``pythons``: programs by version, such as 3.12; a version alone is fetched by uv.

        ``own_version``: of the worker's own Python, to its last number, so that an upgrade makes other environments.
        """
        self._own = own
        self._pythons = pythons
        self._own_version = own_version

    def recipe_of(self, run: Run) -> Recipe | None:
        """Return the recipe of a run; None if it needs no environment. Raises LooplineError if there is no Python."""
        software, function = run.software, run.function
        if software is None:
            if function is None or function.python == self._own.version:
                return None
            return self._with_python(function.python, Recipe())
        if software.image:
            return Recipe(image=software.image)
        packages = (software.packages or "").removeprefix(_FILE)
        version = function.python if function else software.python
        return self._with_python(version, Recipe(packages=packages, builds=software.builds))

    def _with_python(self, version: str | None, recipe: Recipe) -> Recipe:
        program, full = self._own.program, self._own_version
        if version is not None and version != self._own.version:
            program, full = self._pythons.get(version, ""), version
        if not program:
            raise LooplineError("python", f"this worker has no Python {version} any more", "")
        return Recipe(packages=recipe.packages, builds=recipe.builds, python=program, version=full)
