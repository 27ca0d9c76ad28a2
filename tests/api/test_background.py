"""Background services: a failed service is restarted, and the master reports the failure until the service runs."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from loopline.client import AsyncClient
from loopline_master import background
from loopline_master.app import keep_serving
from loopline_master.background import Background, Service
from loopline_master.metrics import Metrics
from loopline_master.notify.notifier import Notifier
from loopline_master.passing import is_superseded, passes
from loopline_master.settings import MasterSettings
from loopline_master.store import StoreBroken
from loopline_master.store.database import SUPERSEDED, explained, parse_url
from loopline_shared.errors import LooplineError
from loopline_shared.spec import JobSpec, Notify
from tests.api.bench import Bench, running_master, until, webhook_receiver
from tests.store.postgres import held_port, or_skip, restartable_postgres


def broken(code: str = "store_broken", *, passing: bool = True) -> StoreBroken:
    error = StoreBroken(code, "it is away", "wait", status=503)
    error.is_passing = passing
    return error


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(background, "LONGEST_PAUSE_S", 0.04)


class Fragile:
    """A service that fails a given number of times and then runs forever."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors, self.runs = list(errors), 0

    async def run(self) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        await asyncio.Event().wait()


def service(run: Callable[[], Coroutine[Any, Any, None]]) -> Service:
    return Service("sums", "sums are not made", run)


async def test_failed_service_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fragile, metrics = Fragile(broken(), broken(), ValueError("odd"), ExceptionGroup("", [broken()])), Metrics()
    services = Background(metrics)
    with services.running([service(fragile.run)]):
        async with asyncio.timeout(60):
            while fragile.runs < 5:
                await asyncio.sleep(0)
                if fragile.runs == 1:
                    with pytest.raises(LooplineError, match="sums are not made"):
                        services.check()
            while "running again" not in caplog.text:
                await asyncio.sleep(0.01)
        services.check()
    text = metrics._registry.get_sample_value("loopline_service_failures_total", {"service": "sums"})
    assert text == 4
    assert metrics._registry.get_sample_value("loopline_service_failing", {"service": "sums"}) == 0
    told = [(record.levelname, bool(record.exc_info)) for record in caplog.records if "not made" in record.message]
    assert told[:2] == [("WARNING", False), ("ERROR", True)], (
        "a temporary failure is logged once, without a traceback"
    )


async def test_cause_in_a_group_of_errors_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    group = ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("", [broken()])])
    fragile = Fragile(group)
    with Background(Metrics()).running([service(fragile.run)]):
        async with asyncio.timeout(60):
            while fragile.runs < 2:
                await asyncio.sleep(0.01)
    (record,) = caplog.records
    assert record.message == "sums are not made: it is away; trying again in 0.01 s"


async def test_service_ends_when_another_master_took_over(caplog: pytest.LogCaptureFixture) -> None:
    fragile = Fragile(broken(SUPERSEDED))
    services = Background(Metrics())
    with services.running([service(fragile.run)]):
        for _ in range(10):
            await asyncio.sleep(0.01)
    assert fragile.runs == 1
    assert not caplog.records


async def test_webhooks_are_sent_again_after_the_notifier_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates PostgreSQL without a free connection when the notifier reads."""
    heard, original = list[str](), Notifier._read_due
    failures = [broken(), broken(), ValueError("a mistake of ours")]

    async def read_due(self: Notifier) -> Any:
        if failures:
            raise failures.pop(0)
        return await original(self)

    monkeypatch.setattr(Notifier, "_read_due", read_due)

    async def hear(request: Any) -> None:
        heard.append(request.path)

    async def is_heard() -> bool:
        return bool(heard)

    async with (
        webhook_receiver(hear) as url,
        running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master,
    ):
        job = await master.submit(notify={"webhook": url})
        await master.ask("POST", f"/jobs/{job}/cancel")
        await until(is_heard)
        assert not failures
        await until(lambda: _is_ready(master))


async def test_master_is_not_ready_while_a_service_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 3600.0)

    async def read_due(self: Notifier) -> Any:
        raise broken()

    monkeypatch.setattr(Notifier, "_read_due", read_due)
    async with running_master(tmp_path) as master:
        await until(lambda: _is_degraded(master))
        answer = await master.ask("GET", "//readyz", None)
        assert (answer.body["code"], answer.body["detail"]) == ("degraded", "notifications are not sent")
        assert (await master.ask("GET", "//healthz", None)).status == 200
        metrics = await master.ask("GET", "//metrics", "scraper")
        assert 'loopline_service_failing{service="notifications"} 1.0' in metrics.content.decode()


async def _is_ready(master: Bench) -> bool:
    return (await master.ask("GET", "//readyz", None)).status == 200


async def _is_degraded(master: Bench) -> bool:
    return (await master.ask("GET", "//readyz", None)).status == 503


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.InternalClientError("cannot switch to state 12"), True),
        (asyncpg.InterfaceError("connection is closed"), True),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), True),
        (ConnectionResetError(), True),
        (asyncpg.UndefinedTableError("no table"), False),
    ],
)
def test_postgres_failures_count_as_temporary_if_they_need_no_repair(error: Exception, expected: bool) -> None:
    with pytest.raises(StoreBroken) as raised, explained("reading", parse_url("postgresql://ann@here/grid")):
        raise error
    assert passes(raised.value) is expected
    assert passes(ExceptionGroup("", [raised.value, broken()])) is expected
    assert not is_superseded(raised.value)


def running_services() -> set[str]:
    """Return the names of the services; preparation is left out, because it ends."""
    names = {task.get_name() for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith("service ")} - {"service preparation"}


@pytest.mark.campaign
@pytest.mark.timeout(1500)
async def test_all_services_run_after_a_hundred_restarts_of_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs with webhooks come all the time; after the last restart one more is delivered."""
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 1.0)
    heard, stop, masters, restarts = set[str](), asyncio.Event(), list[Any](), 0

    async def hear(request: Any) -> None:
        heard.add(request.path)

    async def serves() -> bool:
        with suppress(aiohttp.ClientError):
            return len(masters) > restarts and await _is_ready(Bench(masters[-1].url, None, http))  # type: ignore[arg-type]
        return False

    async def end_a_job(name: str) -> None:
        """Submit and cancel a job with a webhook, whenever the master is there."""
        client = AsyncClient(masters[-1].url, "none", patience_s=120)
        async with client:
            made = await client.submit(JobSpec(command=["work"], notify=Notify(webhook=f"{url}/{name}")))
            await client.cancel(made.id)

    async with aiohttp.ClientSession() as http, webhook_receiver(hear) as url:
        with or_skip(restartable_postgres()) as server, held_port() as port:
            await asyncio.to_thread(server.start)
            settings = MasterSettings.load(
                data_dir=tmp_path, port=port, tokens=False, database_url=f"{server.url}/postgres",
                webhook_hosts=["127.0.0.0/8"],
            )  # fmt: skip
            serving = asyncio.create_task(
                keep_serving(settings, stop, lambda master, *, is_again: masters.append(master))
            )
            await until(serves)
            services = running_services()
            assert len(services) > 10
            for restarts in range(1, 101):
                ending = asyncio.create_task(end_a_job(str(restarts)))
                await asyncio.to_thread(server.end, signal.SIGQUIT if restarts % 2 else signal.SIGINT)
                await asyncio.to_thread(server.start)
                await until(serves)
                await ending
            await end_a_job("last")

            async def is_heard() -> bool:
                return "/last" in heard

            await until(is_heard)
            assert running_services() == services
            masters[-1].parts[Background].check()
            stop.set()
            await serving


# --- a SQLite file that another program locks ----------------------------------------------------------------------


async def test_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline_master.store.database._LOCKED_FOR_S", 0.1)
    stop, started, masters = asyncio.Event(), asyncio.Event(), list[str]()

    def on_start(master: Any, *, is_again: bool) -> None:
        masters.append(master.url)
        started.set()

    settings = MasterSettings(data_dir=tmp_path, port=0, tokens=False)  # type: ignore[call-arg]
    serving = asyncio.create_task(keep_serving(settings, stop, on_start))
    async with asyncio.timeout(60):
        await started.wait()
    port = int(masters[0].rpartition(":")[2])
    stop.set()
    await serving
    stop.clear()
    started.clear()
    settings = settings.model_copy(update={"port": port})  # the same for all later starts
    serving = asyncio.create_task(keep_serving(settings, stop, on_start))
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        await started.wait()
        master = Bench(masters[-1], None, http, {"admin": "none"})  # type: ignore[arg-type]
        await master.submit()
        locking = sqlite3.connect(tmp_path / "loopline.db", isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        started.clear()
        answer = await master.ask("POST", "/jobs", json={"command": ["work"]})
        assert answer.status == 503
        assert "another program has locked the file" in answer.body["detail"]
        await until(lambda: _waits(master))
        locking.execute("ROLLBACK")
        locking.close()
        await started.wait()
        assert (await master.ask("GET", "//readyz", None)).status == 200
        assert len((await master.get("/jobs"))["items"]) == 1
    assert not serving.done()
    stop.set()
    await serving


async def _waits(master: Bench) -> bool:
    try:
        answer = await master.ask("GET", "//readyz", None)
    except aiohttp.ClientConnectionError:  # the gap between the two servers on the port
        return False
    return answer.status == 503 and "another program has locked the file" in answer.body["detail"]
