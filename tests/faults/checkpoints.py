"""Tasks that continue from checkpoints, some of them damaged: their output must be that of an uninterrupted run."""

from __future__ import annotations

import re
from pathlib import Path

from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.requirements import Requirements
from tests.faults import jobs
from tests.faults.driver import WORKERS, Campaign, Fault, Feature
from tests.faults.jobs import Drawn
from tests.faults.plain import kill_one

MARK = {"LOOPLINE_TEST": "saves its state"}
STEP_S = 0.1
SUMS_UP = """
state=$LOOPLINE_CHECKPOINT/state step=0 sum={i}
if [ -e "$state" ]; then . "$state"; fi
while [ "$step" -lt STEPS ]; do
    sleep STEP_S
    step=$((step + 1)) sum=$((sum * 3 % 1000003 + step))
    echo "$step $sum"
    echo "step=$step sum=$sum" > "$state.new"
    mv "$state.new" "$state"
done
"""
_SUM = re.compile(rb"(?<=sum=)\d")


async def sums_up(campaign: Campaign, name: str) -> Drawn:
    """Draw tasks whose every line depends on all steps before it."""
    chance = campaign.drawing
    steps, tasks = chance.choice((15, 30, 45)), chance.randint(1, 3)
    script = SUMS_UP.replace("STEPS", str(steps)).replace("STEP_S", str(STEP_S))
    options = {"checkpoint": CheckpointSpec(every_s=1), "environment": MARK}
    if chance.random() < 0.5:  # all attempts are on one worker, which has the latest state
        options["requires"] = Requirements(labels=[chance.choice(WORKERS)])
    spec = jobs.job(name, script, tasks, chance, **options)
    return Drawn(spec, tasks, lambda i: uninterrupted(i, steps))


def uninterrupted(number: int, steps: int) -> str:
    """Return the output of a task that was never stopped."""
    total, lines = number, list[str]()
    for step in range(1, steps + 1):
        total = total * 3 % 1_000_003 + step
        lines.append(f"{step} {total}\n")
    return "".join(lines)


async def kill_task(campaign: Campaign, worker: str) -> bool:
    return kill_one(campaign, campaign.grid.processes(LOOPLINE_WORKER=worker, **MARK))


async def spoil_checkpoints(campaign: Campaign, worker: str) -> bool:
    """Change the states that a worker has saved while its agent restarts: no attempt may continue from them."""
    await campaign.grid.stop_worker(worker)
    pieces = sorted((campaign.folder / worker / "checkpoints").glob("*/pieces/*"))
    count = sum(map(_spoil, pieces))
    await campaign.start_worker(worker)
    return count > 0


def _spoil(piece: Path) -> bool:
    """Change a sum in a piece. Return False if it contains none."""
    content = piece.read_bytes()
    changed = _SUM.sub(lambda digit: str((int(digit[0]) + 1) % 10).encode(), content)
    if changed == content:
        return False
    spoiled = piece.with_name(f"{piece.name}.spoiled")
    spoiled.write_bytes(changed)
    spoiled.replace(piece)
    return True


CHECKPOINTS = Feature(
    "checkpoints",
    faults=(
        Fault("kill -9 of a task that saves its state", kill_task),
        Fault("saved states spoiled", spoil_checkpoints),
    ),
    bugs={"a_checkpoint_is_not_checked": "brought"},
    jobs=(sums_up, sums_up),
)
