"""Runaway tasks on a real worker: each is stopped for the limit that it exceeded, and the worker continues."""

from __future__ import annotations

from tests.live.grid import Grid

LIMITS = """
[worker]
task_memory_bytes = 100_000_000
max_processes = 40
scratch_limit_bytes = 20_000_000
output_flood_bytes = 4_000_000
"""
RUNAWAYS = {
    "for i in $(seq 200); do sleep 100 & done; wait": "max_processes",
    "exec python3 -S -c 'import time; x = [bytearray(10**7) for _ in range(100)]; time.sleep(100)'": "MiB of memory",
    "dd if=/dev/zero of=long bs=1M count=100; sleep 100": "scratch_limit_bytes",
    "yes": "output_flood_bytes",
}
DAEMON = "setsid sleep 100 & exit 0"


async def test_runaway_task_is_stopped_and_its_neighbours_continue(grid: Grid) -> None:
    (grid.folder / "loopline.toml").write_text(LIMITS)
    await grid.start_worker("w1", slots=3)
    gate = grid.gate()
    scripts = [gate.wait, *RUNAWAYS, DAEMON]
    cases = " ;; ".join(f"{number}) {script}" for number, script in enumerate(scripts, 1))
    job = await grid.submit(f"case {{i}} in {cases} ;; esac", tasks=len(scripts), max_attempts=1)
    attempts = await grid.attempts_when(
        "all but the neighbour to end",
        job,
        lambda all_: sum(one.ended_at is not None for one in all_) == len(scripts) - 1,
    )
    reasons = {int(str(attempt.id).split(".")[1]): attempt.reason for attempt in attempts}
    for number, limit in enumerate(RUNAWAYS.values(), 2):
        assert limit in reasons[number]
    assert "left running" in reasons[len(scripts)]
    gate.open()
    assert (await grid.ended(job)).tasks.succeeded == 2
    deaf = await grid.submit(
        "trap '' TERM INT HUP; sleep 100; sleep 100", max_attempts=1, timeout_s=0.5, kill_after_s=0.5
    )
    assert (await grid.ended(deaf)).tasks.failed == 1
    assert (await grid.attempts(deaf))[0].reason == "timed out after 0.5 s"
    assert grid.workers["w1"].returncode is None
    await grid.no_processes()
