"""Tasks in their sandbox: it denies access to other data, and ends with all its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tests.faults import jobs
from tests.faults.driver import Campaign, Fault, Feature
from tests.faults.jobs import Drawn
from tests.faults.plain import kill_one, zygotes

LOOKS = """
for file in {files}; do head -c 1 $file >/dev/null 2>&1 && echo reads $file; done
for folder in {folders}; do (echo x > $folder/left-by-task) 2>/dev/null; done
bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo reaches the master
[ $(ls -d /proc/[0-9]* | wc -l) -lt 20 ] || echo sees the processes of others
{pause}; echo closed
"""


async def looks_around(campaign: Campaign, name: str) -> Drawn:
    """Draw tasks that try forbidden actions and print those that succeeded."""
    grid, chance = campaign.grid, campaign.drawing
    files = [grid.data_dir / "tokens" / "worker", grid.data_dir / "loopline.db", grid.folder / "ant" / "ledger.jsonl"]
    script = LOOKS.format(
        files=" ".join(map(str, files)),
        folders=" ".join(map(str, folders(campaign))),
        port=grid.port,
        pause=f"sleep {chance.choice((0.02, 0.3, 0.8))}",
    )
    tasks = chance.randint(1, 4)
    return Drawn(jobs.job(name, script, tasks, chance), tasks, lambda i: "closed\n")


def folders(campaign: Campaign) -> list[Path]:
    return [campaign.folder, campaign.grid.data_dir, campaign.folder / "bee", Path("/usr/share"), Path("/var/tmp")]


def left_outside(campaign: Campaign) -> Iterator[str]:
    """Yield files that tasks have written outside; inside a sandbox there may be folders of the same name."""
    for folder in folders(campaign):
        if (folder / "left-by-task").exists():
            yield f"a task has written into {folder}"
            (folder / "left-by-task").unlink()


async def kill_in_cell(campaign: Campaign, worker: str) -> bool:
    """Kill bubblewrap, or the first process of a cell, which starts the tasks of its slot."""
    found = list[psutil.Process]()
    for zygote in zygotes(campaign, worker):
        with suppress(psutil.NoSuchProcess):
            for one in zygote.children(recursive=True):
                with suppress(psutil.Error):
                    if "cell" in " ".join(one.cmdline()) or one.name() == "bwrap":
                        found.append(one)
    return kill_one(campaign, found)


SANDBOX = Feature(
    "sandbox",
    faults=(Fault("kill -9 in a cell", kill_in_cell),),
    bugs={"the_walls_have_a_gap": "reads "},
    worker={"LOOPLINE_SANDBOX": "bubblewrap", "LOOPLINE_SANDBOX_NETWORK": "none"},
    jobs=(looks_around,),
    looks=left_outside,
)
