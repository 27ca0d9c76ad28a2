"""Sweeps over uploaded rows by REST: submission, display, execution and previews."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, done, running_master

ROWS = [{"lr": 0.1, "seed": n} for n in range(1, 8)]
COMMAND = ["train", "{lr}", "{seed}"]


async def upload(master: Bench, rows: list[dict[str, Any]] = ROWS) -> str:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    assert (await master.ask("PUT", f"/files/{sha256}", "user", data=content)).status in (200, 201, 204)
    return f"sha256:{sha256}"


async def preview(master: Bench, **spec: Any) -> Any:
    answer = await master.ask("POST", "/jobs/preview", "user", json={"command": COMMAND, **spec})
    assert answer.status == 200, answer.content
    return answer.body


async def test_job_of_rows_runs_one_task_per_row(master: Bench) -> None:
    ran: dict[int, tuple[tuple[str, ...], dict[str, Any]]] = {}

    def work(run: Run) -> Any:
        ran[run.attempt.task] = run.command, run.parameters
        assert run.row_file is None
        return done(run)

    job = await master.submit(command=COMMAND, parameters={"file": await upload(master)}, size=70)
    assert (await master.get(f"/jobs/{job}"))["spec"]["parameters"]["count"] == 7
    async with master.worker(slots=2, does=work):
        lines = (await master.ask("GET", f"/jobs/{job}/results")).content.splitlines()
    results = {line["number"]: line for line in map(json.loads, filter(None, lines))}
    assert {n: results[n]["parameters"] for n in results} == dict(enumerate(ROWS, 1))
    assert ran == {n: (("train", "0.1", str(n)), row) for n, row in enumerate(ROWS, 1)}
    task = await master.get(f"/jobs/{job}/tasks/3")
    assert (task["command"], task["parameters"]) == (["train", "0.1", "3"], ROWS[2])
    assert [task["number"] for task in (await master.get(f"/jobs/{job}/tasks"))["items"]] == [1, 2, 3, 4, 5, 6, 7]


async def test_count_of_rows_is_optional(master: Bench) -> None:
    file = await upload(master)
    headers = {"Idempotency-Key": "k"}

    async def submit(parameters: dict[str, Any]) -> tuple[int, Any]:
        body = {"command": COMMAND, "parameters": parameters}
        answer = await master.ask("POST", "/jobs", "user", json=body, headers=headers)
        return answer.status, answer.body.get("id") or answer.body["code"]

    status, job = await submit({"file": file})
    assert status == 201
    assert await submit({"file": file, "count": 7}) == (201, job), "the right count gives the same job"
    assert await submit({"file": file, "count": 8}) == (409, "key_used")
    assert len((await master.get("/jobs"))["items"]) == 1


@pytest.mark.parametrize("is_table", [True, False])
async def test_large_table_is_stored_once_as_a_file(tmp_path: Path, is_table: bool) -> None:
    rows = [{"seed": n, "text": "much" * 2_500} for n in range(150)]
    given = {"parameters": {"rows": rows}} if is_table else {"tasks": [{"parameters": row} for row in rows]}
    async with running_master(tmp_path) as master:
        answers = [
            await master.ask("POST", "/jobs", json={"command": ["work"], **given}, headers={"Idempotency-Key": "k"})
            for _ in range(2)
        ]
        assert [answer.status for answer in answers] == [201, 201]
        (job,) = {answer.body["id"] for answer in answers}
        assert (await master.get(f"/jobs/{job}"))["spec"]["parameters"]["count"] == 150
        assert (await master.get(f"/jobs/{job}/tasks/3"))["parameters"] == rows[2]
    assert not any(b"muchmuch" in file.read_bytes() for file in tmp_path.glob("loopline.db*"))


async def test_invalid_rows_are_refused(master: Bench) -> None:
    body = {"command": COMMAND, "parameters": {"file": await upload(master, [{"a": 1}, {"a": [1]}])}}
    answer = await master.ask("POST", "/jobs", "user", json=body)
    assert (answer.status, answer.body["code"]) == (422, "bad_row")
    assert "line 2" in answer.body["detail"]
    missing = {"command": COMMAND, "parameters": {"file": f"sha256:{'0' * 64}"}}
    answer = await master.ask("POST", "/jobs", "user", json=missing)
    assert (answer.status, answer.body["code"]) == (422, "missing_file")
    assert (await master.get("/jobs"))["items"] == []


async def test_preview_shows_the_first_tasks_and_submits_no_job(master: Bench) -> None:
    seen = await preview(master, parameters={"seed": {"range": [1, 1000]}, "lr": [0.1, 0.2]}, size=60)
    assert (seen["task_count"], seen["size"], len(seen["tasks"])) == (2000, 60, 20)
    assert seen["tasks"][1] == {"number": 2, "command": ["train", "0.2", "1"], "parameters": {"seed": 1, "lr": 0.2}}
    assert ["no worker" in warning for warning in seen["warnings"]] == [True]
    rows = await preview(master, parameters={"file": await upload(master)})
    assert (rows["task_count"], rows["tasks"][6]["command"]) == (7, ["train", "0.1", "7"])
    assert (await master.get("/jobs"))["items"] == []


async def test_preview_estimates_the_duration_of_a_known_program(master: Bench) -> None:
    spec = {"parameters": {"seed": {"range": [1, 8]}}, "size": 80}
    assert (await preview(master, **spec))["expected"] is None
    async with master.worker(slots=4, does=lambda run: done(run, wall_s=10.0)):
        job = await master.submit(**spec)
        await master.ask("GET", f"/jobs/{job}/results")
        expected = (await preview(master, **spec))["expected"]
        assert 0 < expected["p50_s"] <= expected["p90_s"]


async def test_rows_can_be_previewed_before_they_are_uploaded(master: Bench) -> None:
    seen = await preview(master, parameters={"file": f"sha256:{'0' * 64}", "count": 12})
    assert (seen["task_count"], seen["tasks"]) == (12, [])
    body = {"command": COMMAND, "parameters": {"file": f"sha256:{'0' * 64}"}}
    assert (await master.ask("POST", "/jobs/preview", "user", json=body)).body["code"] == "missing_file"


async def test_preview_declines_the_same_jobs_as_a_submission(master: Bench) -> None:
    body = {"command": COMMAND, "parameters": {"seed": {"range": [1, 2_000_000]}}}
    for path in ("/jobs", "/jobs/preview"):
        answer = await master.ask("POST", path, "user", json=body)
        assert (answer.status, answer.body["code"]) == (422, "too_many_tasks")
    assert (await master.ask("POST", "/jobs/preview", "reader", json=body)).status == 403


async def test_unknown_parameter_name_in_a_template_gives_a_warning(master: Bench) -> None:
    body = {"command": ["t", "{sede}"], "parameters": {"seed": [1, 2]}}
    receipts = [
        (await master.ask("POST", path, "user", json=body)).body["warnings"] for path in ("/jobs", "/jobs/preview")
    ]
    assert [any("did you mean {seed}?" in warning for warning in warnings) for warnings in receipts] == [True, True]
