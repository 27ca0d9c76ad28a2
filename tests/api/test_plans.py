"""Plans over REST: receipt, job and explanation say when a gang starts; a broken promise is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.api.bench import FACTS, Bench, running_master, until, webhook_receiver


async def busy(master: Bench) -> int:
    """Submit a task with a limit; no worker of this test ends it."""
    return await master.submit(command=["long"], timeout_s=600, requires={"slots": 4})


async def test_receipt_has_the_plan_and_a_broken_promise_is_notified(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    facts = replace(FACTS, gangs=True)

    async def hear(request: web.Request) -> None:
        heard.append(json.loads(await request.text()))

    async with (
        webhook_receiver(hear) as url,
        running_master(tmp_path, webhook_hosts="127.0.0.0/8, 10.0.0.0/8", order="none") as master,
        master.worker("ant", facts=facts, does=lambda run: None),
        master.worker("bee", facts=facts, does=lambda run: None),
    ):
        await busy(master)
        spec = {"command": ["solve"], "nodes": 2, "timeout_s": 60, "notify": {"webhook": url}}
        receipt = await master.ask("POST", "/jobs", json=spec)
        plan = receipt.body["plan"]
        assert receipt.status == 201
        assert (plan["kind"], sorted(plan["machines"]), plan["limit_is_given"]) == ("promise", ["ant", "bee"], True)
        job = receipt.body["id"]
        assert (await master.get(f"/jobs/{job}"))["plan"] == plan
        assert "promised to start in" in (await master.get(f"/jobs/{job}/explain"))["sentence"]
        (waiting,) = (await master.get("/plans"))["plans"]
        assert (waiting["job"], waiting["start_at"], waiting["user"]) == (job, plan["start_at"], "the-admin")
        await master.ask("POST", "/workers/bee/drain")
        broken = await until(lambda: _broken(master, job))
        assert (broken["start_at"], broken["reason"]) == (None, "bee is being drained")
        await until(lambda: _is_heard(heard))
        assert heard[0]["type"] == "job.promise_broken"
        assert heard[0]["data"]["plan"]["reason"] == "bee is being drained"
        kept = (await master.get("/forecasts"))["plans"]
        assert (kept["promises"], kept["kept"], kept["estimates"]) == (1, 0, 0)
        assert kept["broken"] == [
            {
                "job": job,
                "task": 1,
                "promised_at": plan["start_at"],
                "started_at": None,
                "reason": "bee is being drained",
            }
        ]


async def _broken(master: Bench, job: int) -> dict[str, Any] | None:
    plan = (await master.get(f"/jobs/{job}"))["plan"]
    return plan if plan["broken"] else None


async def _is_heard(heard: list[dict[str, Any]]) -> bool:
    return bool(heard)
