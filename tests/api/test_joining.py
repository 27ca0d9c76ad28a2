"""A join token admits a new computer once and in time, even if the response is lost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_master.admission import buckets
from loopline_master.files.private_files import write_private
from loopline_master.history.forgetting import Forgetting
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_shared.joining import hash_of
from loopline_shared.model import Resource
from loopline_shared.protocol.gpus import Gpu
from loopline_shared.rest.times import seconds
from tests.api.bench import FACTS, Bench, until

TOKEN = "ll_0a0b0c0d_secret"


def wish(secret: str, token: str = TOKEN, worker: str = "pc-1") -> dict[str, Any]:
    return {"secret": secret, "worker": worker, "token": token.split("_")[1], "hash": hash_of(token)}


async def line(master: Bench, **options: Any) -> dict[str, Any]:
    answer = await master.ask("POST", "/join-tokens", json=options)
    assert answer.status == 201, answer.content
    return dict(answer.body)


async def joins(master: Bench, body: dict[str, Any]) -> int:
    return (await master.ask("POST", "/join", role=None, json=body)).status


async def test_joined_computer_has_only_the_worker_role(master: Bench) -> None:
    made = await line(master)
    assert await joins(master, wish(made["secret"])) == 201
    master.tokens["worker"] = TOKEN
    assert (await master.get("/whoami", "worker")) == {
        **(await master.get("/whoami")),
        "name": "pc-1",
        "role": "worker",
    }
    assert (await master.ask("GET", "/jobs", "worker")).status == 403
    async with master.worker("pc-1"):
        pass


@pytest.mark.parametrize(
    ("offers", "units", "gpus", "left_out"),
    [
        (None, {"fpga": 5, "gpu": 2, "matlab": 9}, 2, {}),
        ({"fpga": 1, "gpu": 1}, {"fpga": 1, "gpu": 1}, 1, {"fpga": 4, "gpu": 1, "matlab": 9}),
        ({"fpga": 7}, {"fpga": 5}, 0, {"gpu": 2, "matlab": 9}),
        ({}, {}, 0, {"fpga": 5, "gpu": 2, "matlab": 9}),
    ],
)
async def test_worker_offers_no_more_than_its_token_allows(
    master: Bench, offers: dict[str, int] | None, units: dict[str, int], gpus: int, left_out: dict[str, int]
) -> None:
    made = await line(master, **({} if offers is None else {"offers": offers}))
    assert made["offers"] == offers
    assert await joins(master, wish(made["secret"])) == 201
    master.tokens["worker"] = TOKEN
    resources = (Resource("fpga", 5), Resource("gpu", 2, (Gpu("GPU-1", "A4000"), Gpu("GPU-2", "A4000"))))
    async with master.worker("pc-1", facts=replace(FACTS, resources=(*resources, Resource("matlab", 9)))):
        view = await master.get("/workers/pc-1")
        offered = {one["name"]: one for one in view["facts"]["resources"]}
        assert {name: one["units"] for name, one in offered.items()} == units
        assert len(offered.get("gpu", {}).get("gpus", ())) == gpus
        assert view["left_out"] == left_out


async def test_gpu_that_another_computer_offers_is_shown_as_not_offered(master: Bench) -> None:
    gpu = (Resource("gpu", 1, (Gpu("GPU-1", "A4000"),)),)
    async with (
        master.worker("pc-1", facts=replace(FACTS, resources=gpu, machine="one")),
        master.worker("pc-2", facts=replace(FACTS, resources=gpu, machine="two")),
    ):
        first, second = [(await master.get(f"/workers/{name}"))["load"] for name in ("pc-1", "pc-2")]
        assert not first.get("withheld_gpus")
        reason = "worker pc-1, on another computer, offers it, too"
        assert second["withheld_gpus"] == [{"id": "GPU-1", "reason": reason}]


async def test_token_of_several_workers_bounds_what_each_may_offer(master: Bench) -> None:
    body = {"name": "lab", "role": "worker", "offers": {"fpga": 1}}
    master.tokens["worker"] = (await master.ask("POST", "/tokens", json=body)).body["secret"]
    for name in ("pc-1", "pc-2"):
        async with master.worker(name, facts=replace(FACTS, resources=(Resource("fpga", 3),))):
            assert (await master.get(f"/workers/{name}"))["left_out"] == {"fpga": 2}


async def test_worker_token_is_valid_for_one_worker(master: Bench) -> None:
    """A joined computer cannot impersonate another."""
    made = await line(master)
    await joins(master, wish(made["secret"]))
    master.tokens["worker"] = TOKEN
    with pytest.raises(Exception, match="this token is worker pc-1's, not pc-2's"):
        async with master.worker("pc-2"):
            pass


async def test_repeated_join_request_counts_once(master: Bench) -> None:
    made = await line(master)
    statuses = await asyncio.gather(*(joins(master, wish(made["secret"])) for _ in range(5)))
    assert statuses == [201] * 5
    (view,) = (await master.get("/join-tokens"))["items"]
    assert (view["uses"], view["used"]) == (1, 1)
    assert "secret" not in view


async def test_join_token_is_valid_for_its_number_of_uses(master: Bench) -> None:
    made = await line(master, uses=2)
    tokens = [f"ll_0000000{number}_x" for number in range(3)]
    wishes = [wish(made["secret"], token, f"pc-{number}") for number, token in enumerate(tokens)]
    assert [await joins(master, each) for each in wishes] == [201, 201, 403]
    assert await joins(master, wishes[0]) == 201  # a joined computer may repeat its request


@pytest.mark.parametrize("changed", [{"hash": "0" * 64}, {"worker": "pc-2"}])
async def test_joined_token_cannot_be_taken_over(master: Bench, changed: dict[str, str]) -> None:
    made = await line(master, uses=9)
    assert await joins(master, wish(made["secret"])) == 201
    assert await joins(master, wish(made["secret"]) | changed) == 403


async def test_duplicate_token_hash_is_refused(master: Bench) -> None:
    """The store has a unique index on hashes: a violation would stop all writes."""
    made = await line(master, uses=9)
    assert await joins(master, wish(made["secret"])) == 201
    other = wish(made["secret"], worker="pc-2") | {"token": "11111111"}
    answer = await master.ask("POST", "/join", role=None, json=other)
    assert (answer.status, answer.body["code"]) == (403, "join_token_refused")
    mixed = wish(made["secret"], "ll_22222222_x", "pc-3")
    assert await joins(master, mixed) == 201
    assert await joins(master, mixed | {"hash": hash_of(TOKEN)}) == 403  # another's hash
    assert (await master.ask("POST", "/tokens", json={"name": "u", "role": "user"})).status == 201


async def test_name_belongs_to_one_computer_until_its_token_is_revoked(master: Bench) -> None:
    made = await line(master, uses=2)
    again = wish(made["secret"], "ll_22222222_x")
    assert await joins(master, wish(made["secret"])) == 201
    answer = await master.ask("POST", "/join", role=None, json=again)
    assert (answer.status, answer.body["code"]) == (403, "join_refused")
    assert "joined as pc-1 already" in answer.body["detail"]
    (view,) = (await master.get("/join-tokens"))["items"]
    assert view["used"] == 1
    await master.ask("POST", f"/tokens/{TOKEN.split('_')[1]}/revoke")
    assert await joins(master, again) == 201


async def test_join_token_created_in_the_future_is_refused(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock was set back by a day: a token of one minute is not valid for a day and a minute."""
    made = await line(master, expires_s=60.0)
    monkeypatch.setattr("loopline_master.http.auth.time.time", lambda: seconds(made["expires_at"]) - 86400.0)
    answer = await master.ask("POST", "/join", role=None, json=wish(made["secret"]))
    assert answer.status == 403
    assert "set back" in answer.body["detail"]


async def test_expired_join_token_is_refused(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await line(master, expires_s=60.0)
    monkeypatch.setattr("loopline_master.http.auth.time.time", lambda: seconds(made["expires_at"]) + 1)
    answer = await master.ask("POST", "/join", role=None, json=wish(made["secret"]))
    assert (answer.status, answer.body["code"]) == (403, "join_refused")
    assert "expired" in answer.body["detail"]
    assert "loopline token join" in answer.body["hint"]


async def test_revoked_join_token_is_refused(master: Bench) -> None:
    made = await line(master)
    answer = await master.ask("POST", f"/join-tokens/{made['id']}/revoke")
    assert answer.body["revoked_at"]
    assert await joins(master, wish(made["secret"])) == 403


async def test_guesses_of_join_tokens_are_rate_limited(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # no time passes
    statuses = [await joins(master, wish("lj_0_guess")) for _ in range(101)]
    assert (statuses[0], statuses[-1]) == (403, 429)
    made = await line(master)
    assert await joins(master, wish(made["secret"])) == 201, "a valid token is looked up first"


async def test_join_token_survives_a_restart(master: Bench) -> None:
    made = await line(master)
    await joins(master, wish(made["secret"]))
    kept = await master.parts[Store].tokens.by_hash(hash_of(TOKEN))
    assert kept is not None
    assert (kept.name, kept.role) == ("pc-1", "worker")


async def test_leaving_revokes_the_token_and_frees_the_name(master: Bench) -> None:
    made = await line(master, uses=2)
    await joins(master, wish(made["secret"]))
    shared = master.tokens["worker"]
    refused = await master.ask("POST", "/leave", "worker")
    assert (refused.status, refused.body["code"]) == (409, "not_joined")
    master.tokens["worker"] = TOKEN
    assert (await master.ask("POST", "/leave", "worker")).body["revoked_at"] is not None
    assert (await master.ask("GET", "/whoami", "worker")).status == 401
    assert await joins(master, wish(made["secret"], token="ll_0a0b0c0e_secret")) == 201, "its name is free again"
    master.tokens["worker"] = shared
    assert (await master.ask("GET", "/whoami", "worker")).status == 200, "other tokens stay valid"


async def test_forgetting_a_worker_revokes_its_token(master: Bench) -> None:
    made = await line(master, uses=2)
    await joins(master, wish(made["secret"]))
    master.tokens["worker"] = TOKEN
    async with master.worker("pc-1"):
        refused = await master.ask("POST", "/workers/pc-1/forget")
        assert (refused.status, refused.body["code"]) == (409, "connected")
    await until(lambda: _is_away(master, "pc-1"))
    assert (await master.ask("POST", "/workers/pc-1/forget", "user")).status == 403
    keys = master.parts[MasterSettings].data_dir / "certificates" / "workers"
    keys.mkdir(parents=True)
    for token in ("0a0b0c0d", "99999999"):
        write_private(keys / token, "its key")
    assert (await master.ask("POST", "/workers/pc-1/forget")).body["name"] == "pc-1"
    assert (await master.ask("GET", "/whoami", "worker")).status == 401
    assert (await master.ask("POST", "/workers/pc-1/forget")).status == 404
    assert [entry["did"] for entry in (await master.get("/audit-log"))["items"]][:1] == ["forget_worker"]
    await master.parts[Forgetting].remove_keys()
    assert list(keys.iterdir()) == []
    assert await joins(master, wish(made["secret"])) == 201
    async with master.worker("pc-1"):
        assert [one["name"] for one in (await master.get("/workers"))["items"]] == ["pc-1"]


async def test_worker_absent_for_90_days_is_forgotten(master: Bench) -> None:
    async with master.worker("pc-1"), master.worker("pc-2"):
        pass
    async with master.worker("pc-3"):
        await until(lambda: _is_away(master, "pc-2"))
        forgetting, now = master.parts[Forgetting], time.time()
        assert await forgetting.forget_workers(now + 89 * 86400) == []
        assert sorted(await forgetting.forget_workers(now + 91 * 86400)) == ["pc-1", "pc-2"]
        assert [one["name"] for one in (await master.get("/workers"))["items"]] == ["pc-3"]


async def _is_away(master: Bench, worker: str) -> bool:
    return not (await master.get(f"/workers/{worker}"))["connected"]
