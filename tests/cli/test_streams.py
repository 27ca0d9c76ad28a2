from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopline.cli.errors import Exit
from tests.cli.fake_master import FakeMaster, ok, page
from tests.cli.views import job


def shell(fake: FakeMaster, redirected: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its streams."""
    command = f'"$0" -m loopline {redirected}'
    variables = {**os.environ, "LOOPLINE_MASTER": fake.url, **environment}
    root = Path(__file__).parents[2]
    return subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, cwd=root, env=variables
    )


@pytest.mark.parametrize("closed", ["jobs >&-", "jobs --json >&-", "logs 7.1 >&-", "jobs <&- >&- 2>&-"])
def test_command_works_with_a_closed_stream(fake: FakeMaster, closed: str) -> None:
    fake.on("GET /jobs", page(job()))
    fake.on("GET /jobs/7/tasks/1/stdout", ok(b"much\n"))
    ran = shell(fake, closed)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device stands for a full disk")
@pytest.mark.parametrize("line", ["jobs", "jobs --json", "logs 7.1"])
def test_output_to_a_full_disk_is_an_error(fake: FakeMaster, line: str) -> None:
    fake.on("GET /jobs", page(job()))
    fake.on("GET /jobs/7/tasks/1/stdout", ok(b"much\n"))
    ran = shell(fake, f"{line} >/dev/full")
    assert ran.returncode == Exit.FAILED
    assert "the answer cannot be written: No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr


def test_unencodable_letter_is_printed_as_an_escape(fake: FakeMaster) -> None:
    fake.on("GET /jobs", page(job(name="für")))
    ran = shell(fake, "jobs", PYTHONIOENCODING="ascii")
    assert ran.returncode == 0, ran.stderr
    assert r"f\xfcr" in ran.stdout
