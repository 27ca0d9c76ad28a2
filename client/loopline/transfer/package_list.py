"""Lists of Python packages that tasks run with: read, checked, and uploaded as a file of the job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.rest_client import RestClient
from loopline.transfer.files import upload
from loopline_shared.errors import LooplineError
from loopline_shared.job.requirements import Requirements
from loopline_shared.protocol.software import Software
from loopline_shared.spec import JobSpec

MOST_BYTES = 2**20
PackageList = str | Path | Sequence[str] | bytes
"""A file in the form of pip's requirements.txt, by its path; or its lines; or its content."""
_OTHER_FILES = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable", ".", "/", "file:")


def content_of(packages: PackageList) -> bytes:
    """Return the list as a file. Raises LooplineError if it cannot be read, or names other files of this computer."""
    if isinstance(packages, bytes):
        return packages
    if isinstance(packages, str | Path):
        name, text = str(packages), _read(Path(packages))
    else:
        name, text = "the list of packages", "".join(f"{one}\n" for one in packages)
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line.startswith(_OTHER_FILES):
            message = f"{name}:{number}: workers do not have what this line names: {line[:80]}"
            raise _error(message, "give one whole list of published packages, such as `uv pip compile` writes")
    if not any(line and not line.startswith(("#", "-")) for line in lines):
        raise _error(f"{name} names no package", "give one a line, such as numpy==2.3.1")
    content = "".join(f"{line}\n" for line in lines).encode()
    if len(content) > MOST_BYTES:
        raise _error(f"{name} has more than {MOST_BYTES:,} bytes", "")
    return content


async def with_software(
    client: RestClient, requires: Requirements, packages: PackageList | None, *, allow_builds: bool, image: str = ""
) -> Requirements:
    """Upload the list, and return the requirements with the software."""
    if packages is None and not image:
        return requires
    file = f"sha256:{await upload(client, content_of(packages))}" if packages is not None else None
    return requires.model_copy(update={"software": Software(file, builds=allow_builds, image=image)})


async def spec_with_software(
    client: RestClient, spec: JobSpec, packages: PackageList | None, *, allow_builds: bool, image: str
) -> JobSpec:
    """Return a job with software, checked anew."""
    requires = await with_software(client, spec.requires, packages, allow_builds=allow_builds, image=image)
    return JobSpec.model_validate({**dict(spec), "requires": requires})


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise _error(f"cannot read {path}: {error.strerror}", "") from None
    except UnicodeDecodeError:
        raise _error(f"{path}: this is not text in UTF-8", "save it as UTF-8") from None


def _error(message: str, hint: str) -> LooplineError:
    return LooplineError("requirements", message, hint, 400)
