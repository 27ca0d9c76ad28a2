"""Bodies about the network: the tree, how each link is known, and the files that flow along it."""

from __future__ import annotations

from enum import StrEnum

from loopline_shared.rest.bodies.base import Body


class KnownBy(StrEnum):
    """Source of a link's figures."""

    FILE = "file"
    MEASURED = "measured"
    ASSUMED = "assumed"


class NetworkNodeView(Body):
    """A switch or a host, with its link to the switch above it; rates in bytes per second."""

    name: str
    parent: str | None  # null: the root
    is_switch: bool
    known_by: KnownBy | None  # null: the root, which has no link
    up: float  # capacity towards the parent
    down: float  # capacity from the parent
    flowing_up: float
    flowing_down: float


class FileFlow(Body):
    """A file on its way to a worker, as the worker reported last."""

    sha256: str
    source: str  # a worker, or `master`
    receiver: str
    rate_bytes_s: float  # of late
    have_bytes: int
    size_bytes: int
    is_free: bool = False  # nothing but the network holds it back


class MeasurementView(Body):
    """Measuring of an idle grid, which is under way or was the last."""

    is_running: bool
    probes: int  # so far
    outcome: str  # empty: it runs, or there was none


class NetworkView(Body):
    """The network as far as it is known. A node comes after its parent."""

    file: str | None  # the operator's; null: there is none
    peers: bool  # files go between workers
    nodes: list[NetworkNodeView]
    flows: list[FileFlow]
    measurement: MeasurementView
