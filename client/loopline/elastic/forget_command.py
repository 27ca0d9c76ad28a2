"""``loopline forget``: workers that do not come back."""

from __future__ import annotations

from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.cli.errors import usage


async def forget(*worker: str, common: Common = PLAIN) -> None:
    """Forget workers that stay away: they leave the list, and what they had is run again.

    A worker that is connected is refused: stop it first. Its token ends, so its computer has to join anew.
    Workers that are away for long are forgotten by themselves (`forget_workers_days` of the master), and those that
    were started with `--transient` as soon as they are gone.

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
