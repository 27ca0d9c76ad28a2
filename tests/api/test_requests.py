"""Invalid requests are answered with a clear problem, never with an internal error."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from yarl import URL

from loopline_master import timings
from loopline_master.__main__ import OneLine, without_traceback
from loopline_master.admission import busy_time
from loopline_master.http.routes import jobs
from loopline_master.store import StoreBroken
from loopline_master.store.database import explained, parse_url
from tests.api.bench import Answer, Bench, running_master

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _refusals_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master charges the time that a refusal takes to its sender: on a busy computer, the next would be delayed."""
    monkeypatch.setattr(busy_time, "FREE_S", 3600.0)


def assert_problem(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.content
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.body["status"] == status
    assert answer.body["detail"]
    assert answer.body["code"]
    return dict(answer.body)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "//nothing/here", 404),
        ("GET", "/nothing", 404),
        ("GET", "/jobs/", 404),
        ("DELETE", "/jobs", 405),
        ("POST", "/jobs/1", 405),
        ("GET", "/jobs/1", 404),
        ("GET", "/jobs/9007199254740991", 404),
        ("GET", "/jobs/9007199254740992", 422),
        ("GET", "/jobs/0", 422),
        ("GET", "/jobs/-1", 422),
        ("GET", "/jobs/one", 422),
        ("GET", "/jobs/%00", 422),
        ("GET", "/jobs/%ff%fe", 422),
        ("GET", "/jobs/1/tasks", 404),
        ("GET", "/jobs/1/tasks/1", 404),
        ("GET", "/jobs/1/tasks/1/stdout", 404),
        ("GET", "/jobs/1/attempts", 404),
        ("GET", "/jobs/1/results", 404),
        ("GET", "/jobs/1/explain", 404),
        ("GET", "/jobs/1/tasks/1/explain", 404),
        ("POST", "/jobs/1/cancel", 404),
        ("POST", "/jobs/1/retry", 404),
        ("GET", "/jobs?limit=0", 422),
        ("GET", "/jobs?limit=1001", 422),
        ("GET", "/jobs?limit=1&limit=2", 422),
        ("GET", "/jobs?state=asleep", 422),
        ("GET", "/jobs?sate=queued", 422),
        ("GET", "/jobs?cursor=%00", 422),
        ("GET", "/jobs?cursor=1.5", 400),
        ("GET", "/jobs?cursor=99999999999999999999", 400),
        ("GET", "/attempts?since=nan", 422),
        ("GET", "/attempts?cursor=nan@1.1.1", 400),
        ("GET", "/jobs/1/results?cursor=x", 422),
        ("GET", "/workers/none", 404),
        ("GET", "/workers/%2e%2e", 404),
        ("GET", "/workers/a%2fb", 422),
        ("POST", "/workers/none/drain", 404),
        ("GET", "/files/abc", 422),
        ("GET", f"/files/{'0' * 64}", 404),
        ("GET", f"/files/{'A' * 64}", 422),
        ("GET", "/link", 400),
    ],
)
async def test_unknown_resources_and_invalid_parameters_are_refused(
    shared_master: Bench, method: str, path: str, status: int
) -> None:
    assert_problem(await shared_master.ask(method, path), status)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"command": ["a"]', 400),
        (b"\xff\xfe{}", 400),
        (b'{"command": ["\xc3\x28"]}', 400),
        (b'{"command": ["\\ud800"]}', 400),
        (b"[" * 100_000, 400),
        (b'{"command": ["a"], "size": NaN}', 422),
        (b'{"command": ["a"], "size": 1e999}', 422),
        (b"null", 422),
        (b"[]", 422),
        (b'"command"', 422),
        (b"{}", 422),
        (b'{"command": []}', 422),
        (b'{"command": "a"}', 422),
        (b'{"command": ["a\\u0000"]}', 422),
        (b'{"command": ["a"], "size": -1}', 422),
        (b'{"command": ["a"], "size": 0}', 422),
        (b'{"command": ["a"], "size": "1"}', 422),
        (b'{"command": ["a"], "priority": 1}', 422),
        (b'{"command": ["a"], "max_replicas": 0}', 422),
        (b'{"command": ["a"], "parameters": {"a": []}}', 422),
        (b'{"command": ["a"], "parameters": {"a": {"range": [1, 100000000000]}}}', 422),
        (b'{"command": ["a"], "parameters": {"a": {"range": [1, 2, 0]}}}', 422),
        (b'{"command": ["a"], "parameters": {"a b": [1]}}', 422),
        (b'{"command": ["a"], "parameters": {"a": [1]}, "tasks": [{}]}', 422),
        (b'{"command": ["a"], "environment": {"A=B": "1"}}', 422),
        (b'{"command": ["a"], "name": "a\\nb"}', 422),
        (b'{"command": ["a"], "requires": {"os": "plan9"}}', 422),
        (b'{"command": ["a"], "timeout_s": 1e10}', 422),
    ],
)
async def test_invalid_jobs_are_refused(shared_master: Bench, body: bytes, status: int) -> None:
    problem = assert_problem(await shared_master.ask("POST", "/jobs", data=body, headers=JSON), status)
    if status == 422:
        assert all(error["at"].startswith("body") and error["message"] for error in problem["errors"])
        assert problem["errors"]


async def test_errors_point_at_each_field(shared_master: Bench) -> None:
    body = {"command": ["a", 1], "size": -1, "requires": {"ram": 1}}
    answer = await shared_master.ask("POST", "/jobs", json=body)
    assert {error["at"] for error in answer.body["errors"]} == {"body.command.1", "body.size", "body.requires.ram"}


async def test_unknown_keys_get_the_nearest_known_one(shared_master: Bench) -> None:
    answer = await shared_master.ask("POST", "/jobs", json={"command": ["a"], "requires": {"memory": 1}})
    assert answer.body["errors"][0]["message"] == "there is no such key: did you mean memory_bytes?"
    answer = await shared_master.ask("GET", "/jobs?limt=3")
    assert answer.body["errors"][0]["message"] == "there is no such key: did you mean limit?"


async def test_number_of_reported_errors_is_limited(shared_master: Bench) -> None:
    answer = await shared_master.ask("POST", "/jobs", json={"command": [1] * 900})
    assert len(answer.body["errors"]) == 20
    answer = await shared_master.ask(
        "POST", "/jobs", json={"command": ["a"], "environment": {f"a{n}": 1 for n in range(2000)}}
    )
    assert [error["at"] for error in answer.body["errors"]] == ["body"]
    assert "mistakes" in answer.body["errors"][0]["message"]


async def test_bodies_must_be_json(shared_master: Bench) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        answer = await shared_master.ask("POST", "/jobs", data=b'{"command": ["a"]}', headers={"Content-Type": kind})
        assert_problem(answer, 415)


async def test_invalid_http_is_logged_in_one_line_without_a_traceback(
    shared_master: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    url = URL(shared_master.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad\x01: x\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
    writer.close()
    (record,) = [each for each in caplog.records if each.name == "aiohttp.server"]
    assert record.exc_info
    assert without_traceback(record)
    said = OneLine("%(levelname)s %(message)s").format(record)
    assert said.startswith("WARNING Error handling request from 127.0.0.1: ")
    assert "Traceback" not in said


@pytest.mark.parametrize("logger", ["aiohttp.server", "asyncio", "sqlalchemy.pool.impl.QueuePool"])
async def test_passing_failure_of_the_database_is_logged_in_one_line(logger: str) -> None:
    """PostgreSQL restarts while a hundred streams are open: each would log the driver's 160 lines."""
    cause = asyncpg.TooManyConnectionsError("too many clients")
    try:
        with explained("reading", parse_url("postgresql://ann@here/grid")):
            raise cause
    except StoreBroken as broken:
        error: Exception = cause if logger.startswith("sqlalchemy") else broken
    record = logging.LogRecord(logger, logging.ERROR, "", 1, "Error at %s", ("x",), (type(error), error, None))
    assert without_traceback(record)
    said = OneLine("%(levelname)s %(message)s").format(record)
    assert said.startswith("WARNING Error at x: ")
    assert "too many clients" in said
    assert "\n" not in said


async def test_allow_header_lists_exactly_the_permitted_methods(shared_master: Bench) -> None:
    answer = await shared_master.ask("PATCH", "/jobs")
    assert set(answer.headers["Allow"].split(",")) == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "\u00fc"])
async def test_idempotency_keys_must_be_plain_ascii(shared_master: Bench, key: str) -> None:
    answer = await shared_master.ask("POST", "/jobs", json={"command": ["a"]}, headers={"Idempotency-Key": key})
    assert_problem(answer, 422)


async def test_raw_bytes_in_headers_are_handled(shared_master: Bench) -> None:
    token = shared_master.tokens["admin"].encode()
    for line in (b"Idempotency-Key: \xff\xfe", b"Authorization: Bearer \xff\xfe", b"X: \x80"):
        status = await _raw(shared_master, b"POST /api/v1/jobs HTTP/1.1", line, b"Authorization: Bearer " + token)
        assert 400 <= status < 500, line


async def test_raw_bytes_in_paths_are_handled(shared_master: Bench) -> None:
    token = b"Authorization: Bearer " + shared_master.tokens["admin"].encode()
    for path in (b"/\xff\xfe", b"/%ff%fe", b"/api/v1/workers/\xc3\xbc", b"/api/v1/jobs?user=\xff", b"//", b"*"):
        status = await _raw(shared_master, b"GET " + path + b" HTTP/1.1", token)
        assert 400 <= status < 500, path


async def test_body_size_is_limited(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_body_bytes": 1000}) as master:
        problem = assert_problem(await master.ask("POST", "/jobs", json={"command": ["a" * 1000]}), 413)
        assert "1,000 bytes" in problem["detail"]
        await master.submit(command=["a" * 500])


async def test_job_size_is_limited(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_jobs": 1, "max_tasks": 10}) as master:
        too_many = await master.ask("POST", "/jobs", json={"command": ["a"], "parameters": {"i": {"range": [1, 11]}}})
        assert_problem(too_many, 422)
        await master.submit()
        full = await master.ask("POST", "/jobs", json={"command": ["a"]})
        assert_problem(full, 503)
        assert int(full.headers["Retry-After"]) > 0


async def test_internal_error_has_an_incident_number_found_in_the_log(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(jobs, "found", fails)
    problem = assert_problem(await shared_master.ask("GET", "/jobs/1"), 500)
    assert "mistake of ours" not in str(problem)
    incident = problem["hint"].rpartition(" ")[2]
    assert any(incident in record.message and record.exc_info for record in caplog.records)
    caplog.clear()
    again = assert_problem(await shared_master.ask("GET", "/jobs/2"), 500)["hint"].rpartition(" ")[2]
    (record,) = caplog.records
    assert record.exc_info is None, "the same error has one traceback a minute"
    cause = f"GET /api/v1/jobs/2: RuntimeError: a mistake of ours (traceback at incident {incident})"
    assert record.message == f"incident {again}: {cause}"


async def test_responses_forbid_caching_and_type_sniffing(shared_master: Bench) -> None:
    answer = await shared_master.ask("GET", "/whoami")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


async def _raw(master: Bench, *lines: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
    writer.write(
        b"\r\n".join([*lines, b"Host: x", b"Content-Type: application/json", b"Content-Length: 2", b"", b"{}"])
    )
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


@pytest.mark.parametrize(("method", "path"), [("POST", "/jobs"), ("PUT", f"/files/{'0' * 64}")])
async def test_body_that_does_not_arrive_times_out(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    for limit in ("BODY_WITHIN_S", "UPLOAD_PIECE_WITHIN_S"):
        monkeypatch.setattr(timings, limit, 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_master.port)
    head = {**shared_master.headers("admin"), **JSON, "Host": "here", "Content-Length": "10"}
    lines = [f"{method} /api/v1{path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", "{"]
    writer.write("\r\n".join(lines).encode())
    assert b" 408 " in await reader.readline()
    assert b'"too_slow"' in await reader.readuntil(b"}")
    writer.close()


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/nothing", "/api/v1/session", "/healthz"])
async def test_encoded_body_is_refused_unread(shared_master: Bench, path: str) -> None:
    """The body is not valid gzip, so decompressing it would give another error."""
    head = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = await shared_master.ask("POST", "/" + path, None, data=b"no gzip at all", headers=head)
    assert (answer.status, answer.body["code"]) == (415, "encoded_body")


@pytest.mark.parametrize("head", ["Authorization: Bearer wrong\r\n", "Content-Encoding: gzip\r\n"])
async def test_body_of_a_refused_request_is_not_read(shared_master: Bench, head: str) -> None:
    length, sent = 2**40, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", shared_master.port)
    first = f"PUT /api/v1/files/{'0' * 64} HTTP/1.1\r\nHost: here\r\n{head}Content-Length: {length}\r\n\r\n"
    writer.write(first.encode())
    assert (await reader.readline()).split()[1] in (b"401", b"415")
    try:
        async with asyncio.timeout(30.0):
            while True:
                writer.write(bytes(2**20))
                sent += 2**20
                await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    assert sent < 2**26, "only as many bytes as fit in the buffers of two sockets"


async def test_body_without_a_token_has_a_small_limit(shared_master: Bench) -> None:
    body = b'{"token": "' + b"x" * 2**17 + b'"}'
    answer = await shared_master.ask(
        "POST", "/session", None, data=body, headers={"Content-Type": "application/json"}
    )
    assert (answer.status, answer.body["code"]) == (413, "too_large")
