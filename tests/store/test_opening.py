"""An unusable database is refused with a helpful message."""

import socket
import subprocess
import sys

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoneFreeError

from loopline_master.store import StoreBroken, lock, open_store
from loopline_master.store.database import parse_url
from loopline_master.store.postgres import dsn_of, is_passing
from loopline_shared.errors import LooplineError


async def refusal(url: str) -> LooplineError:
    with pytest.raises(LooplineError) as caught:
        async with open_store(url):
            pass
    return caught.value


async def test_two_masters_cannot_share_a_database(url):
    async with open_store(url):
        error = await refusal(url)
        assert (error.code, error.status) == ("database_in_use", 503)
        assert "another master is using the database" in error.message
    async with open_store(url):
        pass


async def test_empty_database_is_initialized_only_if_it_may_be_new(url):
    for _ in range(2):
        with pytest.raises(LooplineError, match="its database has no tables"):
            async with open_store(url, is_new=False):
                pass
    async with open_store(url):
        pass
    async with open_store(url, is_new=False):
        pass


async def test_database_file_with_two_hard_links_is_refused(sqlite_url, tmp_path):
    async with open_store(sqlite_url):
        pass
    other = tmp_path / "other.db"
    other.hardlink_to(parse_url(sqlite_url).database)
    for url in (sqlite_url, f"sqlite:///{other}"):
        assert (await refusal(url)).code == "database_linked"
    other.unlink()
    async with open_store(sqlite_url):
        pass


async def test_master_of_an_old_epoch_cannot_commit(postgres_url):
    async with open_store(postgres_url) as store:
        await store.check()
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("UPDATE mastership SET epoch = epoch + 1")
        await connection.close()
        with pytest.raises(StoreBroken, match="another master has taken over") as caught:
            await store.check()
        assert caught.value.is_passing


async def test_master_checks_its_epoch_after_a_silence(postgres_url, monkeypatch):
    async with open_store(postgres_url) as store:
        assert store.is_sure
        monkeypatch.setattr(lock, "SILENT_FOR_S", -1.0)
        assert not store.is_sure
        await store.confirm()  # no other master has taken over
        async with open_store(postgres_url, standby=True) as other:
            with pytest.raises(StoreBroken, match="another master has taken over") as caught:
                await store.confirm()
            assert caught.value.is_passing
            with pytest.raises(StoreBroken):
                await store.check()
            await other.check()


async def test_master_suspended_within_a_statement_loses_its_lock(postgres_url, monkeypatch):
    async with open_store(postgres_url):
        pass  # creates the tables
    place, _, name = postgres_url.removeprefix("postgresql://loopline@").partition("/")
    host, _, port = place.partition(":")
    start = f"\0\3\0\0user\0loopline\0database\0{name}\0\0".encode()
    with socket.create_connection((host, int(port)), timeout=60) as stopped:
        stopped.sendall((len(start) + 4).to_bytes(4) + start)
        _until(stopped, b"Z\0\0\0\5I")
        stopped.sendall(_message(b"Q", f"SELECT pg_advisory_lock({lock._ADVISORY_KEY})\0".encode()))
        _until(stopped, b"Z\0\0\0\5I")
        stopped.sendall(_message(b"P", b"one\0SELECT 1\0\0\0") + _message(b"H", b""))  # parsed, but not executed
        _until(stopped, b"1\0\0\0\4")
        monkeypatch.setattr(lock, "SILENT_FOR_S", -1.0)
        async with open_store(postgres_url, standby=True) as store:
            await store.check()


def _message(kind, body):
    return kind + (len(body) + 4).to_bytes(4) + body


def _until(connection, end):
    said = b""
    while not said.endswith(end):
        more = connection.recv(1000)
        assert more, said
        said += more


async def test_active_master_keeps_its_database(postgres_url):
    async with open_store(postgres_url) as store:
        with pytest.raises(LooplineError, match="another master is using"):
            async with open_store(postgres_url, standby=True):
                pass
        await store.check()


@pytest.mark.parametrize(
    ("change", "knows", "is_another"),
    [
        ("commits = commits", True, False),
        ("commits = commits - 1", True, True),  # this master's commits are lost
        ("server = 'another'", True, False),  # a failover without loss
        ("server = 'another'", False, True),  # a failover with unknown losses
        ("server = 'another', epoch = epoch + 1", True, True),  # another master has written before
    ],
)
async def test_database_that_went_back_starts_another_life(postgres_url, change, knows, is_another):
    epoch = lock.Epoch()
    async with open_store(postgres_url, epoch=epoch) as store:
        await store.check()
        before = store.life
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"UPDATE mastership SET {change}")
    await connection.close()
    async with open_store(postgres_url, epoch=epoch if knows else None) as store:
        assert (store.life != before) == is_another


async def test_any_user_can_read_the_identity_of_the_server(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE ROLE plain LOGIN; GRANT ALL ON SCHEMA public TO plain")
    async with open_store(postgres_url.replace("loopline@", "plain@")):
        said = await connection.fetchval("SELECT server FROM mastership")
    await connection.execute("DROP OWNED BY plain; DROP ROLE plain")
    await connection.close()
    assert said.endswith("/00000001")


async def test_lock_ends_with_its_process(sqlite_url):
    program = f"""
import asyncio, os
from loopline_master.store import open_store
async def main():
    async with open_store({sqlite_url!r}):
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -9
    async with open_store(sqlite_url):
        pass


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://host/grid", "mysql is not a database that Loopline can use"),
        ("loopline.db", "not a database URL"),
    ],
)
def test_unsupported_database_url_is_refused(url, said):
    with pytest.raises(LooplineError, match=said) as caught:
        parse_url(url)
    assert "for example" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "dsn"),
    [
        ("postgres://ann@host/grid", "postgresql://ann@host/grid"),
        ("postgresql+asyncpg://ann:a%40b@h1:5432,h2:5433/grid", "postgresql://ann:a%40b@h1:5432,h2:5433/grid"),
        ("postgresql:///grid?host=/run/postgresql", "postgresql:///grid?host=%2Frun%2Fpostgresql"),
        ("postgresql://ann@[::1]:5432/grid", "postgresql://ann@[::1]:5432/grid"),
    ],
)
def test_libpq_urls_are_accepted(url, dsn):
    assert dsn_of(parse_url(url)) == dsn


@pytest.mark.parametrize(
    ("state", "passes"),
    [
        ("57P01", True),  # the server is shutting down
        ("57P03", True),  # the server is starting
        ("08006", True),
        ("53300", True),
        ("57014", True),  # a statement took too long
        ("25P03", True),  # a transaction did: its master was suspended
        ("28P01", False),  # the password is wrong
        ("3D000", False),  # there is no such database
        ("53100", False),  # its disk is full
    ],
)
def test_errors_that_an_operator_must_fix_are_not_temporary(state, passes):
    said = Exception()
    said.sqlstate = state
    assert is_passing(DBAPIError("SELECT 1", {}, said)) == passes
    assert is_passing(ConnectionRefusedError())
    assert is_passing(NoneFreeError())  # all connections wait for a server that hangs
    assert not is_passing(ValueError())


async def test_missing_folder_is_refused(tmp_path):
    error = await refusal(f"sqlite:///{tmp_path}/nowhere/loopline.db")
    assert isinstance(error, StoreBroken)
    assert "the file cannot be opened" in error.message


async def test_file_that_is_no_database_is_refused(tmp_path):
    file = tmp_path / "loopline.db"
    file.write_text("Dear diary, " * 1000)
    error = await refusal(f"sqlite:///{file}")
    assert "not a Loopline database" in error.message
    assert file.read_text().startswith("Dear diary")


async def test_damaged_file_is_refused(tmp_path):
    file = tmp_path / "loopline.db"
    async with open_store(f"sqlite:///{file}"):
        pass
    content = bytearray(file.read_bytes())
    content[100:8192] = b"\x55" * (8192 - 100)
    file.write_bytes(content)
    error = await refusal(f"sqlite:///{file}")
    assert "damaged" in error.message
    assert "backup" in error.hint


async def test_unreachable_server_is_reported():
    error = await refusal("postgresql://ann:secret@127.0.0.1:1/grid")
    assert error.code == "store_broken"
    assert "secret" not in error.message


async def test_refusing_server_is_reported(postgres):
    error = await refusal(f"{postgres}/no_such_database")
    assert error.code == "store_broken"
    assert "no_such_database" in error.message
