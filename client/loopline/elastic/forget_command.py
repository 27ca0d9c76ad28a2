"""``loopline forget``: workers that do not come back."""

from __future__ import annotations

from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage


async def forget(*worker: str, common: Common = PLAIN) -> None:
    """Forget workers that are away: they leave the list, and their tasks run again.

    A connected worker is refused: stop it first. Its token is revoked, so its computer has to join again. Workers
    that are away for long are forgotten automatically (`forget_workers_days` of the master), and workers started with
    `--transient` as soon as they are gone.

    Parameters
    ----------
    worker
        Names of the workers.
    """
    if not worker:
        raise usage("the names of the workers are missing", "loopline workers lists them")
    names = list(dict.fromkeys(worker))
    async with common.client() as client:
        for name in names:
            await client.forget(name)
    common.show({"forgotten": names}, lambda: Text(f"forgotten: {', '.join(names)}"))
