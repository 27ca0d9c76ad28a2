"""Software of jobs: environments built by real uv on a real worker in the sandbox, and an unpacked real image."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from loopline import Executor
from loopline.transfer.package_list import spec_with_software
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid, wait_for

VERSION = "from greeting import HELLO; import sys; print(HELLO, sys.prefix)"


def wheel(folder: Path, version: str) -> None:
    """A package that exists only in a folder, which serves as the index."""
    folder.mkdir(exist_ok=True)
    name = f"greeting-{version}"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        archive.writestr("greeting.py", f"HELLO = 'hello {version}'\n")
        archive.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n")
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")


async def start(grid: Grid, tmp_path: Path, *flags: str, sandbox: str = "auto") -> None:
    wheel(tmp_path / "wheels", "1.0")
    settings = {"UV_FIND_LINKS": str(tmp_path / "wheels"), "UV_OFFLINE": "1", "LOOPLINE_SANDBOX": sandbox}
    await grid.start_worker("ant", *flags, "--sandbox-show", str(tmp_path / "wheels"), slots=2, settings=settings)
    await grid.connected("ant")


async def run(grid: Grid, packages: list[str], script: str = VERSION, tasks: int = 1) -> int:
    client = grid.client()
    spec = JobSpec(command=["python3", "-c", script], parameters={"i": list(range(tasks))}, max_attempts=1)
    spec = await spec_with_software(client, spec, packages, allow_builds=False, image="")
    return (await client.submit(spec)).id


async def outputs(grid: Grid, job: int) -> set[str]:
    return {result.stdout or "" async for result in grid.client().results(job)}


async def test_jobs_with_equal_packages_share_an_environment_across_restarts(grid: Grid, tmp_path: Path) -> None:
    await start(grid, tmp_path)
    first = await run(grid, ["greeting"], tasks=4)
    assert (await grid.ended(first)).tasks.succeeded == 4
    await grid.kill_worker("ant")
    (tmp_path / "wheels" / "greeting-1.0-py3-none-any.whl").unlink()
    await grid.start_worker("ant", slots=2, settings={"LOOPLINE_SANDBOX": "auto", "UV_OFFLINE": "1"})
    second = await run(grid, ["greeting"])
    assert (await grid.ended(second)).state is JobState.SUCCEEDED
    (said,) = await outputs(grid, first) | await outputs(grid, second)
    assert said.startswith("hello 1.0 ")
    assert len(list((tmp_path / "ant" / "environments").iterdir())) == 1


async def test_environment_serves_functions_and_is_read_only(grid: Grid, tmp_path: Path) -> None:
    await start(grid, tmp_path)
    spoiling = await run(grid, ["greeting"], "import greeting; open(greeting.__file__, 'a').write('#')")
    lacking = await run(grid, ["greeting==2.0"], tasks=3)
    await serves_functions(grid)
    assert (await grid.ended(spoiling)).state is JobState.FAILED
    (task,) = [task async for task in grid.client().tasks(spoiling)]
    assert "Read-only file system" in task.reason or "Permission denied" in task.reason
    assert (await grid.ended(lacking)).tasks.failed == 3
    (reason,) = {task.reason async for task in grid.client().tasks(lacking)}
    assert reason.startswith("its environment cannot be made: ")
    assert "greeting==2.0" in reason
    assert len(list((tmp_path / "ant" / "environments").iterdir())) == 1  # no file of the failed ones is left


async def serves_functions(grid: Grid) -> None:
    def greet() -> str:
        from greeting import HELLO  # type: ignore[import-not-found]

        return str(HELLO)

    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    with Executor(grid.url, token, requirements=["greeting"]) as executor:
        assert await asyncio.to_thread(executor.submit(greet).result, 200) == "hello 1.0"
    with Executor(grid.url, token) as executor:
        error = await asyncio.to_thread(executor.submit(greet).exception, 200)
    assert isinstance(error, ModuleNotFoundError)
    assert "requirements=" in error.__notes__[0]


@pytest.mark.campaign
async def test_build_killed_with_its_agent_starts_again(grid: Grid, tmp_path: Path) -> None:
    index = await asyncio.start_server(lambda reader, writer: asyncio.sleep(600), "127.0.0.1")  # never answers
    port = index.sockets[0].getsockname()[1]
    settings = {"UV_DEFAULT_INDEX": f"http://127.0.0.1:{port}/simple", "UV_HTTP_TIMEOUT": "600"}
    await grid.start_worker("ant", settings=settings)
    await grid.connected("ant")
    job = await run(grid, ["greeting"])

    async def is_building() -> bool:
        explanation = await grid.client().explain(job)
        return "ant builds an environment of Python packages" in explanation.sentence

    await wait_for("explain to say what the worker does", is_building)
    await grid.kill_worker("ant")
    await start(grid, tmp_path, sandbox="off")
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    index.close()


@pytest.mark.campaign
@pytest.mark.skipif(not shutil.which("podman") or not shutil.which("bwrap"), reason="needs podman and bubblewrap")
async def test_task_runs_in_an_image(grid: Grid, tmp_path: Path) -> None:
    storage = tmp_path / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/running"\n'
    )
    settings = {"CONTAINERS_STORAGE_CONF": str(storage), "LOOPLINE_SANDBOX": "bubblewrap"}
    image(tmp_path, {**os.environ, **settings})
    await grid.start_worker("ant", settings=settings)
    await grid.connected("ant")
    client = grid.client()
    script = "read word < /word; echo $word $GREETING; cd / && echo *; echo > /word"
    spec = JobSpec(command=["sh", "-c", script], max_attempts=1)
    spec = await spec_with_software(client, spec, None, allow_builds=False, image="localhost/tiny:1")
    job = (await client.submit(spec)).id
    assert (await grid.ended(job)).state is JobState.FAILED  # its last command writes to a read-only file
    (result,) = [result async for result in client.results(job)]
    lines = (result.stdout or "").splitlines()
    assert lines[0] == "from the image hello"
    assert not {"usr", "opt", "work", "srv", "boot"} & set(lines[1].split())
    assert "Read-only file system" in result.reason


def image(folder: Path, environment: dict[str, str]) -> None:
    """Build an image of a shell with its libraries, and a file."""
    shell = os.path.realpath("/bin/sh")
    said = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout.split()
    libraries = [word for word in said if word.startswith("/")]
    archive = folder / "image.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        tar.add(shell, "bin/sh")
        for library in libraries:
            tar.add(library, library[1:])
        word = tarfile.TarInfo("word")
        word.size = len(b"from the image\n")
        tar.addfile(word, io.BytesIO(b"from the image\n"))
    command = ["podman", "import", "--change", "ENV GREETING=hello", str(archive), "localhost/tiny:1"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
