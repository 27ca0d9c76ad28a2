"""A host's link to the network, as its agent reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Address = Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f.:/]*$")]


@dataclass(frozen=True, slots=True)
class HostLink:
    """The network card of a worker's connection to its master."""

    subnet: Address  # such as 10.1.2.0/24
    gateway: Address  # such as 10.1.2.1; empty if there is none
    rate: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] | None = None  # bytes per second; None: unknown
    has_master: bool = False  # the master is in this subnet
