"""Files in and out, as a whole grid on this computer has them: how long, and are they the same bytes.

*sweep*: 3 workers, one of them killed midway; every file is compared with its expected content. *large*: one file to
4 workers at once; the yardsticks are plain HTTP over loopback to 4 programs at once, a copy of the file, and its
hash.

    python benchmarks/rates/sweep_files.py [sweep|large] [--full] [--tasks 100] [--megabytes 200] [--json]
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, parser, table
from loopline.client import AsyncClient
from loopline.local.local_grid import LocalGrid, running
from loopline.transfer import files, input_trees
from loopline.transfer.downloads import OutputFolder, outputs_of
from loopline_shared.job.parameters import Range
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import JobDetail
from loopline_shared.spec import JobSpec

WORKERS = ("ant", "bee", "cat", "dog")
WORK = 'mkdir out; sort -r data/table.csv | sed "s/$/ $0/" > out/table.csv; cksum data/blob > out/sum'


async def sweep(tasks: int, folder: Path) -> dict[str, Any]:
    """Files in and out of every task, and all of them home."""
    data = folder / "data"
    data.mkdir()
    rows = [f"{n},{n * n}\n" for n in range(500)]
    (data / "table.csv").write_text("".join(rows))
    (data / "blob").write_bytes(os.urandom(300_000))
    took: dict[str, Any] = {"tasks": tasks}
    async with running(WORKERS[:3], slots=2) as grid, grid.client() as client:
        began = time.monotonic()
        found = await files.hash_all(input_trees.find([str(data)]))
        await files.upload_all(client, found.values())
        inputs: dict[str, Any] = {name: file.as_input() for name, file in found.items()}
        spec = JobSpec(
            command=["sh", "-c", WORK, "{i}"],
            parameters={"i": Range(range=[1, tasks])},
            inputs=inputs,
            outputs=["out/*"],
        )
        job = (await client.submit(spec)).id
        await until(client, job, tasks // 2)
        os.kill(grid.pids["bee"], signal.SIGKILL)
        view = await until(client, job, tasks)
        took |= {"state": view.state, "run_s": time.monotonic() - began}
        began = time.monotonic()
        home = OutputFolder(folder / "home")
        home.folder.mkdir()
        await files.in_parallel(range(1, tasks + 1), lambda task: bring(client, home, TaskId(job, task)))
        took["fetch_s"] = time.monotonic() - began
    took["wrong"] = [task for task in range(1, tasks + 1) if not is_right(home.folder / str(task), rows, task)]
    return took


async def bring(client: AsyncClient, home: OutputFolder, task: TaskId) -> None:
    await home.download(client, task, await outputs_of(client, task), str(task.task))


def is_right(folder: Path, rows: list[str], task: int) -> bool:
    expected = "".join(f"{row.rstrip()} {task}\n" for row in sorted(rows, reverse=True))
    return (folder / "out" / "table.csv").read_text() == expected and (folder / "out" / "sum").exists()


async def until(client: AsyncClient, job: int, succeeded: int) -> JobDetail:
    while (view := await client.job(job)).tasks.succeeded < succeeded and view.finished_at is None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return view


async def large(megabytes: int, folder: Path) -> dict[str, Any]:
    """Measure one file sent to four workers at once; and plain HTTP, four times at once, into files."""
    file = folder / "large.bin"
    with file.open("wb") as stream:
        for _ in range(megabytes):
            stream.write(os.urandom(10**6))
    took: dict[str, Any] = {"megabytes": megabytes}
    async with running(WORKERS, slots=1) as grid, grid.client() as client:
        began = time.monotonic()
        sha256 = await files.upload(client, file)
        took["upload_s"] = time.monotonic() - began
        took["to_4_workers_s"] = await to_all(grid, client, sha256)
        took["again_s"] = await to_all(grid, client, sha256)
    began = time.monotonic()
    await asyncio.to_thread(lambda: hashlib.file_digest(file.open("rb"), "sha256"))
    took["hash_s"] = time.monotonic() - began
    began = time.monotonic()
    await asyncio.to_thread(shutil.copyfile, file, folder / "copy")
    took["copy_s"] = time.monotonic() - began
    took["plain_http_4_times_s"] = await plain(file)
    return took


async def to_all(grid: LocalGrid, client: AsyncClient, sha256: str) -> float:
    """A task on every worker, that ends when all have their file."""
    began = time.monotonic()
    command = "touch $0/$LOOPLINE_WORKER; while [ $(ls $0 | wc -l) -lt 4 ]; do sleep 0.02; done; rm -f $0/none"
    meeting = Path(tempfile.mkdtemp(dir=grid.folder))
    spec = JobSpec(
        command=["sh", "-c", command, str(meeting)],
        parameters={"i": Range(range=[1, 4])},
        inputs={"large.bin": f"sha256:{sha256}"},
        max_replicas=1,
    )
    view = await until(client, (await client.submit(spec)).id, 4)
    assert view.tasks.succeeded == 4, view
    return time.monotonic() - began


async def plain(file: Path) -> float:
    """A server in a process of its own; four clients, each in one of its own too."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "serve", str(file), stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout
    port = (await server.stdout.readline()).decode().strip()
    began = time.monotonic()
    command = (sys.executable, __file__, "get", f"http://127.0.0.1:{port}/", str(file))
    getting = [await asyncio.create_subprocess_exec(*command, str(n)) for n in range(4)]
    await asyncio.gather(*(process.wait() for process in getting))
    took_s = time.monotonic() - began
    server.kill()
    await server.wait()
    return took_s


async def serve(file: Path) -> None:
    app = web.Application()

    async def answer(_: web.Request) -> web.FileResponse:
        return web.FileResponse(file)

    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def get(url: str, file: Path) -> None:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        with file.open("wb") as copy:
            async for piece in answer.content.iter_chunked(2**20):
                copy.write(piece)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("what", nargs="?", choices=["sweep", "large", "serve", "get"], default="sweep")
    asking.add_argument("rest", nargs="*", help="of serve and get, which large starts")
    asking.add_argument("--tasks", type=int, help="100; in the full form 1,000")
    asking.add_argument("--megabytes", type=int, help="200; in the full form 1,000")
    chosen = asking.parse_args()
    chosen.tasks = chosen.tasks or (1000 if chosen.full else 100)
    chosen.megabytes = chosen.megabytes or (1000 if chosen.full else 200)
    if chosen.what == "serve":
        asyncio.run(serve(Path(chosen.rest[0])))
    elif chosen.what == "get":
        asyncio.run(get(chosen.rest[0], Path(f"{chosen.rest[1]}.{chosen.rest[2]}")))
    else:
        with tempfile.TemporaryDirectory(prefix="loopline-files-") as folder:
            work = (
                sweep(chosen.tasks, Path(folder)) if chosen.what == "sweep" else large(chosen.megabytes, Path(folder))
            )
            found = asyncio.run(work)
        rows = ([name, f"{value:.3f}" if isinstance(value, float) else value] for name, value in found.items())
        answer(found, table(["figure", "value"], rows), chosen.json)


if __name__ == "__main__":
    main()
