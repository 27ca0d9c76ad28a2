"""A worker has a key: the master signs a certificate for it, and only its holder can act as the worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loopline_master.certificates.encryption import Encryption
from loopline_shared.joining import hash_of
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.worker_link import Refused, ToWorker, Welcome
from loopline_shared.rest.trust import trusting
from loopline_worker.link.identity import WorkerIdentity
from tests.api.bench import FACTS, Bench, running_master

TOKEN = "ll_0badcafe_secret"


@asynccontextmanager
async def joined(folder: Path) -> AsyncIterator[Bench]:
    """Run an encrypted master that a computer has joined as pc-1."""
    async with running_master(folder, tls="on") as master:
        trust = trusting(master.parts[Encryption].ca)
        line = (await master.ask("POST", "/join-tokens", json={}, ssl=trust)).body["secret"]
        wish = {"secret": line, "worker": "pc-1", "token": TOKEN.split("_")[1], "hash": hash_of(TOKEN)}
        assert (await master.ask("POST", "/join", None, json=wish, ssl=trust)).status == 201
        master.tokens["pc-1"] = TOKEN
        yield master


async def greet(
    master: Bench, of: WorkerIdentity, *, token: str = "pc-1", name: str = "pc-1", asks: bool = True
) -> ToWorker | None:
    """Return the master's answer to a Hello, and close the link."""
    ca = master.parts[Encryption].ca
    trust, session = trusting(ca, of.key_pair(ca)), WorkerSession(name, "boot", FACTS, instance=of.instance)
    async with master.http.ws_connect(master.address("/link"), headers=master.headers(token), ssl=trust) as socket:
        await socket.send_bytes(session.hello(await of.request(ca) if asks else ""))
        return session.receive(await socket.receive_bytes())


async def is_known(master: Bench, name: str = "pc-1") -> bool:
    return (await master.ask("GET", f"/workers/{name}", ssl=trusting(master.parts[Encryption].ca))).status == 200


async def test_token_is_valid_only_with_the_key_of_its_computer(tmp_path: Path) -> None:
    ours, thief = WorkerIdentity(tmp_path / "ours"), WorkerIdentity(tmp_path / "thief")
    async with joined(tmp_path / "master") as master:
        answer = await greet(master, ours)
        assert isinstance(answer, Welcome)
        assert not await is_known(master), "a link without a certificate gets one, and no session"
        ours.keep(answer.certificate)
        answer = await greet(master, ours)
        assert isinstance(answer, Welcome)
        assert answer.certificate == "", "a certificate is valid for a month"
        assert await is_known(master)

        for asks in (True, False):  # a thief who has read the token
            answer = await greet(master, thief, asks=asks)
            assert isinstance(answer, Refused)
            assert (answer.code, "loopline leave" in answer.hint) == ("wrong_key", True), (
                "only leaving helps, no join line"
            )
        ours.drop()  # a lost certificate: the same key gets another
        answer = await greet(master, ours)
        assert isinstance(answer, Welcome)
        assert answer.certificate


async def test_shared_token_cannot_use_a_joined_name(tmp_path: Path) -> None:
    guest = WorkerIdentity(tmp_path / "guest")
    async with joined(tmp_path / "master") as master:
        answer = await greet(master, guest, token="worker")
        assert isinstance(answer, Refused)
        assert answer.code == "wrong_key"
        answer = await greet(master, guest, token="worker", name="pc-2")
        assert isinstance(answer, Welcome)
        guest.keep(answer.certificate)
        assert isinstance(await greet(master, guest, token="worker", name="pc-2"), Welcome)
        answer = await greet(master, guest, token="worker", name="pc-3")
        assert isinstance(answer, Refused)
        assert answer.message == "this certificate is worker pc-2's"


async def test_invalid_certificate_request_closes_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nonsense(_: str) -> str:
        return "-----BEGIN CERTIFICATE REQUEST-----"

    someone = WorkerIdentity(tmp_path / "someone")
    monkeypatch.setattr(someone, "request", nonsense)
    async with joined(tmp_path / "master") as master:
        with pytest.raises(TypeError):  # the link is closed without an answer
            await greet(master, someone)
        assert not await is_known(master)


async def test_shared_token_does_not_take_a_joined_name_in_a_plain_grid(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        line = (await master.ask("POST", "/join-tokens", json={})).body["secret"]
        wish = {"secret": line, "worker": "pc-1", "token": TOKEN.split("_")[1], "hash": hash_of(TOKEN)}
        assert (await master.ask("POST", "/join", None, json=wish)).status == 201
        master.tokens["pc-1"] = TOKEN
        for token, name, admitted in (
            ("worker", "pc-1", False),
            ("pc-1", "pc-2", False),
            ("worker", "pc-2", True),
            ("pc-1", "pc-1", True),
        ):
            session = WorkerSession(name, "boot", FACTS)
            async with master.http.ws_connect(master.address("/link"), headers=master.headers(token)) as socket:
                await socket.send_bytes(session.hello())
                answer = session.receive(await socket.receive_bytes())
            assert isinstance(answer, Welcome if admitted else Refused), (token, name)
        shown = {view["name"]: view["refused"] for view in (await master.get("/workers"))["items"]}
        assert shown["pc-2"] == "", "a refusal is not recorded under a name that the token does not prove"
