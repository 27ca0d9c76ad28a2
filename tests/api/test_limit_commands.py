"""Limits set by commands: the last number stays while a command fails or hangs, and ``loopline limits`` says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopline_master.commands import command, limit_commands
from tests.api.bench import Bench, running_master, until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_commands, "LIMIT_COMMAND_EVERY_S", 0.02)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A script whose content the test changes; the limit matlab is set by it."""
    file = tmp_path / "free-matlab"
    replace(file, "echo 3")
    yield file
    replace(file, "echo 0")


def replace(script: Path, text: str) -> None:
    part = script.with_suffix(".part")
    part.write_text(f"#!/bin/sh\n{text}\n")
    part.chmod(0o755)
    part.rename(script)


async def limit(master: Bench) -> tuple[int | None, str]:
    """Return the units of the only limit, and the note about it."""
    limits: list[dict[str, Any]] = (await master.get("/limits"))["limits"]
    return (limits[0]["units"], limits[0].get("note", "")) if limits else (None, "")


async def test_command_sets_its_limit_and_renews_it(tmp_path: Path, script: Path) -> None:
    async with running_master(tmp_path / "master", limit_commands={"matlab": [str(script)]}) as master:
        await until(lambda: _has(master, 3, "set by its limit_command"))
        replace(script, 'echo " 5 "; echo "$LOOPLINE_LIMIT $LOOPLINE_IN_USE" >&2')
        await until(lambda: _has(master, 5, "set by its limit_command"))
        declined = await master.ask("PUT", "/limits/matlab", json={"units": 9})
        assert (declined.status, declined.body["code"]) == (409, "has_command")
        assert (await master.ask("DELETE", "/limits/matlab")).status == 409
        assert (await master.ask("PUT", "/limits/matlab", json={"units": 1, "user": "ann"})).status == 200


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo no server >&2; exit 4", "ended with exit code 4: no server"),
        ("echo many", "it printed 'many' in place of a number of units"),
        ("echo -1", "it printed '-1'"),
        ("echo 1000001", "it printed '1000001'"),
        ("yes", "it printed more than 1 MiB"),
        ("exec sleep 1000", "had not ended after 1 s"),
    ],
)
async def test_limit_stays_while_its_command_fails(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    folder, commands = tmp_path / "master", {"matlab": [str(script)]}
    monkeypatch.setattr(command, "COMMAND_WITHIN_S", 1.0)
    async with running_master(folder, limit_commands=commands) as master:
        await until(lambda: _has(master, 3, ""))
        replace(script, text)
        await until(lambda: _has(master, 3, reason))
    async with running_master(folder, limit_commands=commands) as master:
        await until(lambda: _has(master, 3, reason))
        replace(script, "echo 4")
        await until(lambda: _has(master, 4, "set by its limit_command"))


async def test_hanging_command_delays_no_other(tmp_path: Path, script: Path) -> None:
    commands = {"hanging": ["sleep", "1000"], "matlab": [str(script)]}
    async with running_master(tmp_path / "master", limit_commands=commands) as master:
        for units in (3, 4, 5):
            replace(script, f"echo {units}")
            await until(lambda units=units: _has(master, units, "set"))  # type: ignore[misc]


async def test_missing_command_leaves_the_name_without_a_limit(tmp_path: Path) -> None:
    async with running_master(tmp_path / "master", limit_commands={"matlab": ["/no/such/program"]}) as master:
        failures = master.parts[limit_commands.LimitCommands].failures
        await until(lambda: _is_there(failures))
        assert failures["matlab"].reason == "cannot run /no/such/program: No such file or directory"
        assert await limit(master) == (None, "")
        unset = (await master.get("/limits"))["unset"]
        assert unset == {"matlab": "cannot run /no/such/program: No such file or directory"}


async def _is_there(found: object) -> bool:
    return bool(found)


async def _has(master: Bench, units: int, note: str) -> bool:
    found = await limit(master)
    return found[0] == units and note in found[1]
