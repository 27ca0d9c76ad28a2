"""An encrypted grid: a computer or user identifies the master by the pin in one line, and accepts no other."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

from loopline_shared.joining import JoinLine, LoginLine
from loopline_shared.rest.trust import pin_of
from loopline_shared.spec import JobSpec
from tests.live.conftest import running
from tests.live.grid import Grid
from tests.warm import starting

CALL = "import loopline\nwith loopline.Executor() as pool: print(sum(pool.map(abs, range(-3, 0))))"
CODE = 3 * 2**20  # more bytes than a Report carries


def _environment(grid: Grid) -> dict[str, str]:
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    return bare | {"HOME": str(grid.folder / "home"), "LOOPLINE_SANDBOX": "off"}


async def _loopline(grid: Grid, *words: str) -> tuple[int, str]:
    return await _run(grid, *starting("loopline"), *words)


async def _run(grid: Grid, *command: str) -> tuple[int, str]:
    running = await asyncio.create_subprocess_exec(
        *command, cwd=grid.folder, env=_environment(grid),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode()


async def test_worker_and_user_accept_only_the_master_of_their_line(tmp_path: Path) -> None:
    async with running(tmp_path, "--tls", "on") as grid:
        (tmp_path / "home").mkdir()
        made = await grid.client().create_join_token(uses=1, expires_s=600)
        assert made.address.startswith("https://")
        assert made.fingerprint == pin_of((grid.data_dir / "certificates" / "ca.pem").read_text())
        line = str(JoinLine(made.address, made.secret, made.fingerprint))
        assert (await _loopline(grid, "join", line, "--name", "pc-1", "--no-sandbox"))[0] == 0
        home = {"HOME": str(tmp_path / "home")}
        grid.workers["pc-1"] = await grid._spawn("pc-1", "loopline_worker", "--policy", "always", more=home)
        await grid.connected("pc-1")

        spec = JobSpec(command=["sh", "-c", f"head -c {CODE} /dev/zero | tee big"], outputs=["big"])
        job = (await grid.client().submit(spec)).id
        assert (await grid.ended(job)).state == "succeeded"  # files were uploaded over TLS

        assert list((grid.data_dir / "certificates" / "workers").iterdir()), (
            "the worker has shown its own certificate"
        )
        token = await grid.client().create_token("ann", "user")
        wrong = LoginLine(token.address, token.secret, "0" * 64)
        code, said = await _loopline(grid, "login", str(wrong))
        assert "another certificate than expected" in said
        assert code != 0
        right = str(LoginLine(token.address, token.secret, token.fingerprint))
        code, said = await _loopline(grid, "login", right)
        assert (code, "you are ann" in said) == (0, True), said
        code, said = await _run(grid, sys.executable, "-c", CALL)
        assert said.strip() == "6", said

        await grid.kill_master()
        shutil.rmtree(grid.data_dir / "certificates")
        (grid.data_dir / "certificates.is-lost").touch()  # as its hint says without a line
        await grid.start_master("--tls", "on")
        made = await grid.client().create_join_token(uses=1, expires_s=600)
        assert made.fingerprint != token.fingerprint
        line = str(JoinLine(made.address, made.secret, made.fingerprint))
        assert (await _loopline(grid, "join", line, "--no-sandbox"))[0] == 0
        await grid.connected("pc-1")  # which accepts the CA of the new line, under its old name
        assert (await grid.ended(await grid.submit("true"))).state == "succeeded"
