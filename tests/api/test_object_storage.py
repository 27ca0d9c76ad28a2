"""A master's files in a bucket: an S3 service with occasional refusals, and one that does not check content."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from yarl import URL

from loopline.client import AsyncClient
from loopline.transfer import files
from loopline_master.files.blobs import Blobs
from loopline_master.files.bucket import AWAY, Bucket
from loopline_master.files.bucket_store import BucketStore
from loopline_master.files.file_store import FolderStore
from loopline_master.files.retention import Retention
from loopline_master.files.user_files import UserFiles
from loopline_master.maintenance import fsck
from loopline_master.settings import MasterSettings
from loopline_shared.errors import LooplineError
from loopline_shared.rest.direct import ELSEWHERE, HEADER, DirectUpload
from tests.api.bench import Bench, running_master
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


async def test_file_in_the_bucket_survives_the_loss_of_the_disk(service: ObjectStorage, tmp_path: Path) -> None:
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
        assert report.files == 0, "the file is recent"
        Bucket(FILES).delete(f"{NAME[:2]}/{NAME[2:]}")
        assert {loss.what for loss in (await fsck.check(settings)).losses} == {"missing"}


async def test_capable_clients_transfer_directly_and_others_through_the_master(
    service: ObjectStorage, tmp_path: Path
) -> None:
    service.refused, content = 0.0, os.urandom(2**17)
    name = hashlib.sha256(content).hexdigest()
    asked = {HEADER: str(len(content))}
    async with running_master(tmp_path / "one", files=FILES) as master:
        assert HEADER not in (await master.ask("HEAD", f"/files/{name}", "user", headers={HEADER: "9"})).headers
        assert HEADER not in (await master.ask("HEAD", f"/files/{name}", "reader", headers=asked)).headers
        head = await master.ask("HEAD", f"/files/{name}", "user", headers=asked)
        place = DirectUpload.decode(head.headers[HEADER])
        statuses = [await put_at(master, place, one) for one in (content[::-1], content, content)]
        assert statuses == [400, 200, 412]
        assert await used_bytes(master) == 0
        head = await master.ask("HEAD", f"/files/{name}", "user")
        assert (head.status, head.headers["Content-Length"]) == (200, str(len(content)))
        assert await used_bytes(master) == len(content)
        assert (await master.ask("GET", f"/files/{name}", allow_redirects=False)).content == content
        elsewhere = await master.ask("GET", f"/files/{name}", headers=asked, allow_redirects=False)
        assert elsewhere.status == ELSEWHERE
        async with master.http.get(URL(elsewhere.headers["Location"], encoded=True)) as answer:
            assert await answer.read() == content


async def test_files_go_through_the_master_if_the_bucket_is_unreachable(
    service: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.refused = 0.0
    monkeypatch.setattr(Bucket, "url_to_get", lambda *_: "http://127.0.0.1:9/closed")
    monkeypatch.setattr(Bucket, "url_to_put", lambda *_: DirectUpload("http://127.0.0.1:9/closed", {}))
    async with running_master(tmp_path / "one", files=f"{FILES}-3") as master:
        async with AsyncClient(master.url, master.tokens["user"]) as client:
            assert await files.upload(client, CONTENT) == NAME
        async with AsyncClient(master.url, master.tokens["user"]) as client:
            await files.download(client, NAME, tmp_path / "file", tmp_path / "part")
    assert (tmp_path / "file").read_bytes() == CONTENT


async def put_at(master: Bench, place: DirectUpload, content: bytes) -> int:
    async with master.http.put(URL(place.url, encoded=True), data=content, headers=place.headers) as answer:
        return answer.status


async def used_bytes(master: Bench) -> int:
    return (await master.parts[UserFiles].limit_of("the-user")).used


async def test_retention_removes_old_files_except_retained_ones(service: ObjectStorage, tmp_path: Path) -> None:
    service.refused = 0.0
    store = BucketStore(Bucket(f"{FILES}-2"), FolderStore(tmp_path), grace_s=0.0, reserve_bytes=0)
    blobs = Blobs(store, 2**30, 0)
    name = blobs.write(b"content")
    (found,) = next(Bucket(f"{FILES}-2").list())
    assert list(store.older(found.written_at)) == [{}]
    assert not store.remove(name, found.written_at)
    assert list(store.older(found.written_at + 1)) == [{name: 7}]
    assert store.remove(name, found.written_at + 1)
    assert blobs.retain(name) is None
    assert blobs.find(name) is None


def test_unusable_bucket_is_reported_with_a_hint(service: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    service.refused = 0.0
    with pytest.raises(LooplineError) as error:
        Bucket("s3://another").check()
    assert "make the bucket" in error.value.hint
    assert error.value.code == "bucket", "an operator has to fix it"
    monkeypatch.setattr("loopline_master.files.bucket.TRIES", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(LooplineError) as error:
        Bucket(FILES).check()
    assert (error.value.status, error.value.code) == (503, AWAY), "the failure may be temporary"
    assert "AWS_ENDPOINT_URL_S3" in error.value.hint


def test_service_that_does_not_verify_content_gets_no_direct_uploads(
    service: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.refused = 0.0
    assert Bucket(FILES).check()
    monkeypatch.setattr(service, "checks", False)
    assert not Bucket(FILES).check()
