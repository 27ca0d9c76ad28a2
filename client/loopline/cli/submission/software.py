"""The software that tasks run with: packages in an environment, or an image."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from loopline.cli.errors import usage
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import JobDocument, SoftwareOptions
from loopline.client import AsyncClient
from loopline.transfer import package_list
from loopline.transfer.files import upload
from loopline_shared.errors import LooplineError


@dataclass(frozen=True, slots=True)
class ChosenSoftware:
    """Software of a job. ``packages``: the list as a file; empty: there is none."""

    packages: bytes = b""
    fields: tuple[tuple[str, Any], ...] = ()  # of the job's ``requires.software``

    def named_in(self, document: JobDocument) -> JobDocument:
        """Return the job with this software, beside what the job says itself."""
        fields = dict(self.fields)
        if self.packages:
            fields["packages"] = f"sha256:{sha256(self.packages).hexdigest()}"
        if not fields:
            return document
        requires = document.get("requires", {})
        below = requires.get("software") or {}
        if "image" in fields or "packages" in fields:  # one takes the place of the other
            below = {name: value for name, value in below.items() if name not in ("image", "packages")}
        return document | {"requires": requires | {"software": below | fields}}

    async def upload(self, client: AsyncClient) -> None:
        """Upload the list of packages unless the master has it."""
        if self.packages:
            await upload(client, self.packages)


def read(options: SoftwareOptions, file: JobFile | None) -> ChosenSoftware:
    """Return the software of the command line, else that of a job file. Raises LooplineError (usage)."""
    listed, image = _taken(file)
    listed = options.requirements if options.requirements is not None else None if options.image else listed
    image = options.image or ("" if options.requirements is not None else image)
    fields = {"python": options.python, "builds": options.allow_builds, "image": image}
    try:
        content = package_list.content_of(listed) if listed is not None else b""
    except LooplineError as error:
        raise usage(error.message, error.hint) from None
    return ChosenSoftware(content, tuple((name, value) for name, value in fields.items() if value))


def _taken(file: JobFile | None) -> tuple[Path | list[str] | None, str]:
    """Take ``requirements`` and ``image`` out of a job file: a path or a list of lines, and a name."""
    if file is None:
        return None, ""
    listed, image = file.document.pop("requirements", None), file.document.pop("image", "")
    if not isinstance(image, str):
        raise file.mistake(("image",), "image: this is not the name of an image")
    if isinstance(listed, str):
        return file.folder / listed, image
    if listed is None or (isinstance(listed, list) and all(isinstance(one, str) for one in listed)):
        return listed, image
    raise file.mistake(("requirements",), "requirements: give a file, or a list of packages")
