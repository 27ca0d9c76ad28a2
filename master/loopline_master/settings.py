"""What can be set about a master, and what it is when it is not."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_shared.errors import LooplineError
from loopline_shared.model import Name, Order
from loopline_shared.rest.address import DEFAULT_PORT
from loopline_shared.settings_source import Settings, meant

_MIB = 2**20
Amount = Annotated[int, Field(ge=1, le=2**53)]
Period = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _data_dir() -> Path:
    return platformdirs.user_data_path("loopline", appauthor=False) / "master"


def _policy(name: str) -> str:
    if name not in REGISTRY:
        raise ValueError(f"there is no such policy: {meant(name, REGISTRY)}")
    return name


class Limits(BaseModel):
    """Nothing here grows without end; at each limit there is a clear error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_jobs: Annotated[Amount, Field(description="unfinished at once")] = 10_000
    max_tasks: Annotated[Amount, Field(description="of one job")] = 1_000_000
    max_workers: Annotated[Amount, Field(description="known to this master")] = 10_000
    max_programs: Annotated[Amount, Field(description="of which earlier runs are remembered")] = 10_000
    max_body_bytes: Annotated[Amount, Field(description="of one request, a job's above all")] = 16 * _MIB
    max_file_bytes: Annotated[Amount, Field(description="of one file under /files")] = 1024 * _MIB
    disk_reserve_bytes: Annotated[int, Field(ge=0, description="kept free of files, for the database")] = 256 * _MIB
    max_unfinished_uploads: Annotated[Amount, Field(description="kept, to be gone on with")] = 1000
    max_page: Annotated[Amount, Field(description="items of one page")] = 1000
    max_inbox: Annotated[Amount, Field(description="requests waiting for the scheduler")] = 10_000
    max_frames: Annotated[Amount, Field(description="waiting to be sent to one worker")] = 100
    max_listeners: Annotated[Amount, Field(description="of /events and of results, at once")] = 500

    def page_size(self, limit: int) -> int:
        """Return the number of items of a page for which a client has asked for ``limit``."""
        return min(limit, self.max_page)


class MasterSettings(Settings):
    table: ClassVar[str] = "master"

    host: Annotated[str, Field(description="where to listen; 0.0.0.0 is everywhere")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="0 takes a free one")] = DEFAULT_PORT
    data_dir: Annotated[Path, Field(default_factory=_data_dir, description="database, files, tokens")]
    database_url: Annotated[str | None, Field(description="a database elsewhere, such as PostgreSQL")] = None
    policy: Annotated[str, AfterValidator(_policy), Field(description="whose turn it is")] = "round-robin"
    order: Annotated[Order, Field(description="what is promised of completions: hold, deliver or none")] = Order.HOLD
    lease_s: Annotated[Period, Field(description="how long a silent worker is believed to be at work")] = 30.0
    report_every_s: Annotated[Period, Field(description="the longest that a worker stays silent")] = 10.0
    stall_after_s: Annotated[Period, Field(description="then a job that no worker can run holds no other")] = 60.0
    max_attempts: Annotated[int, Field(ge=1, le=1000, description="of one task, where its job does not say")] = 3
    max_replicas: Annotated[
        Annotated[int, Field(ge=1, le=65536)] | Literal["unlimited"],
        Field(description="attempts of one task at once, where its job does not say"),
    ] = 2
    keep_samples_days: Annotated[
        float, Field(gt=0, le=366, description="how long what workers said of themselves is kept, a minute each")
    ] = 14.0
    ahead_s: Annotated[
        float, Field(ge=0, le=3600, description="expected work that may wait at a worker, a slot; 0: none")
    ] = 1.0
    max_ahead: Annotated[int, Field(ge=0, le=1000, description="tasks that may wait at a worker")] = 256
    probation_s: Annotated[
        float, Field(ge=0, le=1e6, description="how long a worker on which tasks fail is given nothing new; 0: never")
    ] = 60.0
    max_probation_s: Annotated[Period, Field(description="each time twice as long, up to this")] = 3600.0
    tokens: Annotated[bool, Field(description="false: all that can connect are admins; on loopback only")] = True
    worker_token_file: Annotated[Path | None, Field(description="where to write the workers' token as well")] = None
    retention_days: Annotated[
        float | None, Field(ge=0, le=36500, description="how long files of jobs that are over are kept; for ever")
    ] = None
    file_grace_s: Annotated[Period, Field(description="so old, a file that no job names is removed")] = 7 * 86400.0
    prune_every_s: Annotated[Period, Field(description="how often files that nobody needs are looked for")] = 3600.0
    webhook_hosts: Annotated[
        list[str],
        Field(
            default_factory=list, description="hosts and networks that webhooks may call although they are not public"
        ),
    ]
    notify_commands: Annotated[
        dict[Name, Annotated[list[str], Field(min_length=1)]],
        Field(default_factory=dict, description="commands that jobs may name, to tell somebody that they are over"),
    ]
    limits: Limits = Limits()

    @classmethod
    def load(cls, **flags: Any) -> Self:
        settings = super().load(**flags)
        if not settings.tokens and not settings.is_private:
            raise LooplineError(
                "open_door",
                f"a master without tokens would obey everybody who can reach {settings.host}",
                "keep tokens on, or listen on 127.0.0.1 only",
            )
        return settings

    @model_validator(mode="after")
    def _reports_come_within_leases(self) -> Self:
        if self.report_every_s >= self.lease_s:
            raise ValueError("report_every_s must be shorter than lease_s: a lease is renewed by a report")
        return self

    @property
    def is_private(self) -> bool:
        """Only programs on this computer can connect."""
        return is_loopback(self.host)

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'loopline.db'}"

    def for_scheduler(self) -> SchedulerSettings:
        return SchedulerSettings(
            policy=self.policy,
            order=self.order,
            lease_s=self.lease_s,
            report_every_s=self.report_every_s,
            stall_after_s=self.stall_after_s,
            max_attempts=self.max_attempts,
            max_replicas=None if self.max_replicas == "unlimited" else self.max_replicas,
            max_jobs=self.limits.max_jobs,
            max_tasks=self.limits.max_tasks,
            max_workers=self.limits.max_workers,
            max_programs=self.limits.max_programs,
            probation_s=self.probation_s,
            max_probation_s=self.max_probation_s,
            ahead_s=self.ahead_s,
            max_ahead=self.max_ahead,
        )
