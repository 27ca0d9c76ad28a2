"""The software that a job brings along: Python packages in an environment of their own, or a container image."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from loopline_shared.model import FileName, PythonVersion

PACKAGES, IMAGE = "python", "image"
"""Words for a worker that can build environments, and for one that can run images. With a version added, such as
``python3.12``, the first one stands for a worker that can build environments of that Python."""


@dataclass(frozen=True, slots=True)
class Software:
    """Software of a job's tasks, which workers provide once for all jobs that name the same."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    packages: Annotated[FileName | None, Field(description="a list of Python packages: requirements.txt")] = None
    _: KW_ONLY
    python: Annotated[PythonVersion | None, Field(description="of the environment; null: as the worker has")] = None
    builds: Annotated[bool, Field(description="packages without a wheel may be built, which runs their code")] = False
    image: Annotated[
        str, Field(max_length=500, pattern=r"^([a-z0-9][A-Za-z0-9._/:@+-]*)?$", description="in which commands run")
    ] = ""

    @property
    def ability(self) -> str:
        """The word for the ability that a worker needs."""
        return IMAGE if self.image else f"{PACKAGES}{self.python or ''}"


def check_software(software: Software, *, calls_function: bool) -> None:
    """Raises ValueError if the software contradicts itself, or cannot serve functions."""
    if bool(software.packages) == bool(software.image):
        raise ValueError("software is either a list of packages or an image: give one of the two")
    if software.image and calls_function:
        raise ValueError("an image runs commands: functions get packages instead")


def words_for(ability: str) -> str:
    """Return what the worker must be able to do, for people."""
    if ability == IMAGE:
        return "container images"
    version = ability.removeprefix(PACKAGES)
    return f"environments of Python {version}" if version else "environments of Python packages"
