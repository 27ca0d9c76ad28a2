"""Software of a job from the command line, a file and Python: the submitted form, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopline.cli.submission import software
from loopline.cli.submission.job_file import read
from loopline.cli.submission.software import SoftwareOptions
from loopline.transfer.package_list import content_of
from loopline_shared.errors import LooplineError
from loopline_shared.spec import JobSpec


def test_a_list_is_a_file_lines_or_content(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_bytes(b"numpy==2.3.1\r\n# pinned\r\n")
    assert content_of(str(tmp_path / "r.txt")) == b"numpy==2.3.1\n# pinned\n"
    assert content_of(["numpy==2.3.1"]) == content_of(b"numpy==2.3.1\n")


@pytest.mark.parametrize("line", ["-r base.txt", "-e .", "./mine.whl", "/opt/x.whl", "-c limits.txt"])
def test_requirement_line_that_workers_cannot_resolve_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(LooplineError, match=r"r.txt:2: workers do not have what this line names"):
        content_of(tmp_path / "r.txt")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(LooplineError, match="names no package"):
        content_of(["", "# nothing", "--pre"])


def test_command_line_replaces_the_software_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: x\nrequirements: [numpy]\n")
    of_file = software.read(SoftwareOptions(), read(tmp_path / "job.yaml"))
    assert of_file.packages == b"numpy\n"
    chosen = software.read(SoftwareOptions(image="r:4"), read(tmp_path / "job.yaml"))
    document = chosen.named_in(of_file.named_in({"command": ["x"], "requires": {"slots": 2}}))
    assert document["requires"] == {"slots": 2, "software": {"image": "r:4"}}
    JobSpec.model_validate(document)


def test_packages_and_an_image_exclude_one_another() -> None:
    both = software.read(SoftwareOptions(requirements=None, image="r:4"), None).named_in({"command": ["x"]})
    both["requires"]["software"]["packages"] = f"sha256:{'0' * 64}"
    with pytest.raises(ValueError, match="either a list of packages or an image"):
        JobSpec.model_validate(both)
