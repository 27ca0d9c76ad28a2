"""Parts of the worker link's frames that are about files that come from other workers (docs/design/carrying.md).

All of it is optional: a grid without peers never sees these fields, and a release that does not know them skips them.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from loopline_shared.model import MAX_ID, NO_NUL, Count, Name, Seconds, Sha256, ShortText

MAX_FETCHING = 64
MAX_SOURCES = 8
MAX_DIALS = 64
MAX_CACHED = 2000
MAX_FAULTS = 64


def _is_not_said(value: object) -> bool:
    return value is None


Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Host = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NUL)]
Port = Annotated[int, Field(ge=1, le=65535)]
Rate = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class PeerTerms:
    """Master to worker, in Welcome: rules for files between workers, from a minimum size on."""

    key: Key  # checks grants to fetch from this worker (loopline_shared/grants.py)
    now: Seconds  # the master's clock since 1970; grants expire by it
    least_bytes: Count
    encrypted: Annotated[bool, Field(exclude_if=not_)] = False  # by TLS, with the certificates of both ends


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for one transfer: one file, from one worker to another, begun before ``expires_at``."""

    sha256: Sha256
    source: Name
    receiver: Name
    expires_at: Seconds  # since 1970, by the master's clock


@dataclass(frozen=True, slots=True)
class FileSource:
    """Master to worker: a worker that has or fetches the file, and the secret that the grant's two ends share.

    The scheduler names the worker alone; the rest is filled in as the frame is sent.
    """

    worker: Name
    host: Host = ""
    port: Port = 0
    expires_at: Seconds = 0.0
    secret: Key = ""
    dials_in: bool = False  # it cannot be reached, and connects to us instead


@dataclass(frozen=True, slots=True)
class FileFetch:
    """Master to worker: take this file from the first of these that can give it, and from the master after all."""

    sha256: Sha256
    sources: Annotated[tuple[FileSource, ...], Field(max_length=MAX_SOURCES)]
    rate_bytes_s: Rate | None = None  # planned, regardless of the source; None: no limit
    waits: bool = False  # take nothing yet: others go first, or the plan is being made
    until_bytes: Annotated[Count | None, Field(exclude_if=_is_not_said)] = None
    """Limit for now: the file's first pieces travel alone, which shows how fast each hop is; None: no limit."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Master to worker: connect to this receiver, which cannot reach us, and serve it.

    The scheduler names all receivers; those able to reach us are left out when the frame is sent.
    """

    grant: Grant
    host: Host = ""
    port: Port = 0


@dataclass(frozen=True, slots=True)
class PeerOrders:
    """Master to worker, in each Assign as long as there is any: all fetches and dials that are planned now."""

    fetch: Annotated[tuple[FileFetch, ...], Field(max_length=MAX_FETCHING)] = ()
    dial: Annotated[tuple[Dial, ...], Field(max_length=MAX_DIALS)] = ()


@dataclass(frozen=True, slots=True)
class MeasureFlow:
    """Master to worker, to measure an idle grid: receive data from this source for a time, and discard it.

    Sent only to workers that take part in carrying. Without a source, receive from the master; with no time, end the
    current probe.
    """

    number: Annotated[int, Field(ge=0, le=MAX_ID)]  # of the question, on this link
    source: FileSource | None = None
    seconds: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    kind: Literal["measure_flow"] = "measure_flow"


@dataclass(frozen=True, slots=True)
class FlowMeasured:
    """Worker to master: the answer to a MeasureFlow. Without a rate there is a reason."""

    number: Annotated[int, Field(ge=0, le=MAX_ID)]
    rate_bytes_s: Rate | None = None
    reason: ShortText = ""
    kind: Literal["flow_measured"] = "flow_measured"


PROBE_FILE = "0" * 64
"""Name of the file that grants of probes are for; its content is of no use."""


class FaultKind(StrEnum):
    """Reason for turning away from a source."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    SILENT = "silent"
    SLOW = "slow"
    WRONG_CONTENT = "wrong_content"


@dataclass(frozen=True, slots=True)
class PeerFault:
    """Worker to master, until an Assign answers it: this source failed us."""

    sha256: Sha256
    source: Name
    kind: FaultKind
    lives: Annotated[bool | None, Field(exclude_if=_is_not_said)] = None
    """For a silent source: True if it gave signs of life without data. None: it hung up, or this is unknown."""


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file that a worker has, and may serve."""

    sha256: Sha256
    size_bytes: Count


@dataclass(frozen=True, slots=True)
class Fetching:
    """A file on its way to a worker; its first ``have_bytes`` have arrived and are checked."""

    sha256: Sha256
    size_bytes: Count
    have_bytes: Count
    source: Name | None = None  # None: the master, or none yet
    _: KW_ONLY
    rate_bytes_s: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = 0.0  # of late
    is_free: bool = False  # nothing but the network held that rate back
    is_swift: Annotated[bool, Field(exclude_if=not_)] = False  # its source alone did: the network had room for more
    train_bytes_s: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False, exclude_if=not_)] = 0.0
    """Bytes per second within the first pieces from this source; 0: not measured."""


@dataclass(frozen=True, slots=True)
class PeerReport:
    """Worker to master, in each Report of a participating worker: its fetches, its files, and its receivers."""

    port: Port | None = None  # open to other workers; None: none of them can connect
    fetching: Annotated[tuple[Fetching, ...], Field(max_length=MAX_FETCHING, fail_fast=True)] = ()
    cached: Annotated[tuple[CachedFile, ...], Field(max_length=MAX_CACHED, fail_fast=True)] | None = None
    """Large files in its cache; None: as in the Report before. The first of a session says it."""
    faults: Annotated[tuple[PeerFault, ...], Field(max_length=MAX_FAULTS, fail_fast=True)] = ()
    sent_bytes: Count = 0  # to workers, since the agent started
    received_bytes: Count = 0  # from workers
