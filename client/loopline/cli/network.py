"""``loopline network``: the tree that files travel along, with what is known of it and what flows now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from loopline.cli.common import PLAIN, Common, stderr
from loopline.cli.errors import Exit
from loopline.cli.render import human, network_tree
from loopline.programs import become, program

_LOOK_EVERY_S = 0.5

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
    return Exit.OK


@network.command
async def measure(*, common: Common = PLAIN) -> int:
    """Measure the links of an idle grid, by probes between workers: about a second for each.

    Refused while tasks run or owners are at their PCs; it stops as soon as a task starts or an owner is back.
    """
    async with common.client() as client:
        made = await client.measure_network()
        with stderr().status("measuring ...") as status:
            while made.is_running:
                status.update(f"measuring: {human.plural(made.probes, 'probe')} so far")
                await asyncio.sleep(_LOOK_EVERY_S)
                view = await client.network()
                made = view.measurement
        view = await client.network()
    common.show(view, lambda: network_tree.drawn(view))
    if made.outcome != "measured":
        stderr().print(f"the measurement {made.outcome}", soft_wrap=True)
    return Exit.OK if made.outcome == "measured" else Exit.FAILED
