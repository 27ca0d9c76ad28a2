"""``loopline history``: what earlier runs have taught the grid."""

from __future__ import annotations

from loopline.cli import knowledge, tables
from loopline.cli.common import PLAIN, Common, page_size, some


async def history(
    *, owner: str | None = None, name: str | None = None, limit: int = 20, common: Common = PLAIN
) -> None:
    """What the grid knows of whose programs: how often they ran, what a task takes, where they ran.

    Jobs of one owner, name and folder are runs of one program. What is shown is what jobs without a size are
    expected to take; `--json` has the latest runs themselves.

    Parameters
    ----------
    owner
        Only programs of this user.
    name
        Only programs of this name.
    limit
        At most so many, the latest used first; 0: all.
    """
    async with common.client() as client:
        items = await some(limit, client.programs(owner, name, page_size=page_size(limit)))
    common.show(items, lambda: tables.cut(knowledge.programs(items), len(items), limit))
