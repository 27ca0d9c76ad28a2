"""Missing files of a data folder are never recreated silently: the master refuses to start, or logs a warning."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from tests.api.bench import running_master

CONTENT = b"an input"


_KEPT: list[Path] = []
"""A data folder that is made once per process and copied, since that takes two starts of a master."""


@pytest.fixture
async def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a waiting job that has a secret and an input file."""
    if not _KEPT:
        made = tmp_path_factory.mktemp("kept") / "master"
        async with running_master(made) as master:
            name = hashlib.sha256(CONTENT).hexdigest()
            await master.ask("PUT", f"/files/{name}", data=CONTENT)
            await master.submit(inputs={"in": f"sha256:{name}"}, secrets={"KEY": "value"})
        async with running_master(made, tls="on"):  # creates a CA
            pass
        _KEPT.append(made)
    return Path(shutil.copytree(_KEPT[0], tmp_path, dirs_exist_ok=True))


async def refusal(folder: Path) -> str:
    with pytest.raises(LooplineError) as caught:
        async with running_master(folder):
            pass
    return f"{caught.value.message}: {caught.value.hint}"


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cleared(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize(
    ("place", "spoil", "told"),
    [
        ("loopline.db", Path.unlink, "loopline.db is missing: restore a backup"),
        ("loopline.db", emptied, "loopline.db is empty: restore a backup"),
        ("files", shutil.rmtree, "the files of jobs are gone"),
        ("files", cleared, "the files of jobs are gone"),  # like a disk that is not mounted
        ("tokens/job-key", Path.unlink, "the secrets of jobs that are not done (1)"),
        ("tokens/job-key", emptied, "the secrets of jobs that are not done (1)"),
        ("tokens", shutil.rmtree, "the secrets of jobs that are not done (1)"),
        ("certificates", shutil.rmtree, "the CA of this grid, which all its computers trust, is gone"),
    ],
)
async def test_master_does_not_start_without_data_that_jobs_need(
    folder: Path, place: str, spoil: Callable[[Path], None], told: str
) -> None:
    spoil(folder / place)
    said = await refusal(folder)
    assert told in said
    assert await refusal(folder) == said, "the refused start recreated nothing"
    if place == "loopline.db":
        return
    _, _, consent = said.partition("touch ")
    Path(consent).parent.mkdir(exist_ok=True)
    Path(consent).touch()
    async with running_master(folder):
        assert not Path(consent).exists(), "the consent is valid for one start"
    async with running_master(folder):
        pass


@pytest.mark.parametrize("name", ["tokens/session-key", "webhook-secret"])
async def test_recreated_key_is_logged(folder: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (folder / name).unlink()
    with caplog.at_level(logging.WARNING):
        async with running_master(folder):
            pass
    assert f"{name} was missing and is created again" in caplog.text
    caplog.clear()
    async with running_master(folder):
        pass
    assert "made anew" not in caplog.text
