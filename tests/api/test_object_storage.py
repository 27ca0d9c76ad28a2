"""Files of a master in a bucket: an S3 over HTTP that refuses some requests, and one that does not check content."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline_master.files.blobs import Blobs
from loopline_master.files.bucket import Bucket
from loopline_master.files.bucket_store import BucketStore
from loopline_master.files.file_store import FolderStore
from loopline_master.files.retention import Retention
from loopline_master.maintenance import fsck
from loopline_master.settings import MasterSettings
from loopline_shared.errors import LooplineError
from tests.api.bench import running_master
from tests.object_storage import BUCKET, ObjectStorage

FILES = f"s3://{BUCKET}/of-jobs"
CONTENT = os.urandom(2**20)
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def service() -> Iterator[ObjectStorage]:
    with ObjectStorage().serving() as service, pytest.MonkeyPatch.context() as patch:
        for name, value in service.environment.items():
            patch.setenv(name, value)
        yield service


async def test_a_file_outlives_the_disk_of_its_master_and_goes_when_no_job_needs_it(
    service: ObjectStorage, tmp_path: Path
) -> None:
    service.refused = 0.1
    async with running_master(tmp_path / "one", files=FILES) as master:
        assert (await master.ask("PUT", f"/files/{NAME}", data=CONTENT)).status == 204
        assert (await master.ask("PUT", f"/files/{'0' * 64}", data=CONTENT)).status == 422
        assert await master.submit(inputs={"x": f"sha256:{NAME}"})
        settings = master.parts[MasterSettings]
        shutil.rmtree(settings.files_folder / NAME[:2])
        assert (await master.ask("GET", f"/files/{NAME}")).content == CONTENT
        assert not (await fsck.check(settings)).losses
        report = await master.parts[Retention].prune(None, delete=False)
        assert report.files == 0, "it is young"
        Bucket(FILES).delete(f"{NAME[:2]}/{NAME[2:]}")
        assert {loss.what for loss in (await fsck.check(settings)).losses} == {"missing"}


async def test_retention_removes_what_is_old_and_keeps_what_was_retained(
    service: ObjectStorage, tmp_path: Path
) -> None:
    service.refused = 0.0
    store = BucketStore(Bucket(f"{FILES}-2"), FolderStore(tmp_path), grace_s=0.0, reserve_bytes=0)
    files = Blobs(store, 2**30, 0)
    name = files.write(b"content")
    (found,) = next(Bucket(f"{FILES}-2").list())
    assert list(store.older(found.written_at)) == [{}]
    assert not store.remove(name, found.written_at)
    assert list(store.older(found.written_at + 1)) == [{name: 7}]
    assert store.remove(name, found.written_at + 1)
    assert files.retain(name) is None
    assert files.find(name) is None


def test_a_bucket_that_cannot_be_used_is_told_with_a_next_step(
    service: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.refused = 0.0
    with pytest.raises(LooplineError) as error:
        Bucket("s3://another").check()
    assert "make the bucket" in error.value.hint
    monkeypatch.setattr("loopline_master.files.bucket.TRIES", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(LooplineError) as error:
        Bucket(FILES).check()
    assert error.value.status == 503
    assert "AWS_ENDPOINT_URL_S3" in error.value.hint


def test_a_service_that_takes_any_content_is_written_to_by_the_master_only(
    service: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.refused = 0.0
    assert Bucket(FILES).check()
    monkeypatch.setattr(service, "checks", False)
    assert not Bucket(FILES).check()
