"""``loopline network``: the tree that files travel along, with what is known of it and what flows now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from loopline.cli.common import PLAIN, Common
from loopline.cli.render import network_tree
from loopline.programs import become, program

network = App(name="network")


@network.default
async def show(file: Annotated[Path | None, Parameter()] = None, /, *, common: Common = PLAIN) -> int:
    """Draw the network: switches, hosts, what each link carries, how that is known, and what flows now.

    Parameters
    ----------
    file
        A network.toml to check and draw instead, without a master; its mistakes are named with their lines.
    """
    if file is not None:
        return become(program("loopline_master.transfers", "master", str(file), *(["--json"] if common.json else [])))
    async with common.client() as client:
        view = await client.network()
    common.show(view, lambda: network_tree.drawn(view))
    return 0
