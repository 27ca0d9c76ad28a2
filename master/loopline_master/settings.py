"""Settings of the master, with their defaults. The scheduler's come from core/kernel/scheduler_settings.py."""

from __future__ import annotations

import ipaddress
from dataclasses import fields
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, field_validator, model_validator

from loopline_master.core.kernel.scheduler_settings import IN_LIMITS, Amount, Period, SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import algorithm
from loopline_shared.configuration.settings_source import Settings
from loopline_shared.configuration.user_folders import user_folder
from loopline_shared.errors import LooplineError
from loopline_shared.model import Name
from loopline_shared.plain_words import meant
from loopline_shared.rest.address import DEFAULT_PORT

_MIB = 2**20
LARGEST_OBJECT_BYTES = 5 * 1024 * _MIB
TlsName = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_*-]{1,253}$")]
_TYPES = get_type_hints(SchedulerSettings, include_extras=True)
_LIMITS = frozenset(name for name, type_ in _TYPES.items() if IN_LIMITS in type_.__metadata__)
SCHEDULING = frozenset(_TYPES) - _LIMITS
"""Names of the master's settings that the scheduler decides by, beside the limits."""
_DEFAULTS = {
    "prefetch_s": 1.0,
    "shares": True,
    "overdrawn_after": 10.0,
    "idle_budget_s": 300.0,
    "user_jobs": 5_000,
    "user_tasks": 5_000_000,
    "user_spec_bytes": 256 * _MIB,
}
"""Defaults that differ from those of SchedulerSettings, which suit simulations and tests: no limits, no shares."""


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """True if the host is this computer itself, reached by no other."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _data_dir() -> Path:
    return user_folder("data") / "master"


def _with_scheduler_settings(base: type[BaseModel], *, limits: bool) -> type[BaseModel]:
    """Return a model with the scheduler's settings, either those of the table ``limits`` or the others."""
    chosen: dict[str, Any] = {
        field.name: (_TYPES[field.name], _DEFAULTS.get(field.name, field.default))
        for field in fields(SchedulerSettings)
        if (field.name in _LIMITS) is limits and field.name != "peers"  # which has a word more for an operator
    }
    return create_model(f"Scheduler{base.__name__}", __base__=base, **chosen)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


if TYPE_CHECKING:  # their scheduler settings are read from ``MasterSettings.scheduler``, where they have types
    _LimitsBase: TypeAlias = _Table
    _SettingsBase: TypeAlias = Settings
else:
    _LimitsBase = _with_scheduler_settings(_Table, limits=True)
    _SettingsBase = _with_scheduler_settings(Settings, limits=False)


class Limits(_LimitsBase):
    """Upper bounds of everything that could grow without end; each is enforced with a clear error."""

    max_body_bytes: Annotated[
        Amount, Field(description="the longest body of a request; a large job is the usual case")
    ] = 16 * _MIB
    max_file_bytes: Annotated[Amount, Field(description="the largest file that can be uploaded")] = 1024 * _MIB
    disk_reserve_bytes: Annotated[
        int,
        Field(
            ge=0, description="disk space that files leave free for the database; jobs leave half of it to results"
        ),
    ] = 256 * _MIB
    max_unfinished_uploads: Annotated[Amount, Field(description="interrupted uploads that are kept for resuming")] = (
        1000
    )
    max_page: Annotated[Amount, Field(description="the most items of one page of a list")] = 1000
    max_inbox: Annotated[Amount, Field(description="requests that may wait for the scheduler; more are refused")] = (
        10_000
    )
    max_frames: Annotated[
        Amount, Field(description="messages that may wait for one worker; with more it is disconnected")
    ] = 100
    max_connections: Annotated[
        Amount,
        Field(description="open connections of one address (IPv6: of one /64), loopback and proxies not counted"),
    ] = 2000
    max_listeners: Annotated[
        Amount, Field(description="streams (events, results, output) that may be open at once")
    ] = 500
    user_file_bytes: Annotated[
        Amount, Field(description="bytes of uploaded files that one user may keep here; more are refused")
    ] = 100 * 1024 * _MIB
    user_listeners: Annotated[Amount, Field(description="streams that one user may have open at once")] = 100

    def page_size(self, limit: int) -> int:
        """Return the number of items of a page when a client requests ``limit``."""
        return min(limit, self.max_page)


class MasterSettings(_SettingsBase):
    """Settings of one master."""

    table: ClassVar[str] = "master"

    host: Annotated[str, Field(description="address to listen on; 0.0.0.0 means all addresses")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = DEFAULT_PORT
    data_dir: Annotated[
        Path, Field(default_factory=_data_dir, description="folder of the database, the files and the tokens")
    ]
    database_url: Annotated[
        str | None, Field(description="URL of another database, such as PostgreSQL; by default SQLite in data_dir")
    ] = None
    files: Annotated[
        str | None,
        Field(
            pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$",
            description="bucket for the files of jobs, as s3://bucket/prefix; by default they are in data_dir",
        ),
    ] = None
    standby: Annotated[
        bool,
        Field(description="wait while another master has the database (PostgreSQL), and take over from it"),
    ] = False
    keep_samples_days: Annotated[
        float, Field(gt=0, le=366, description="for how many days samples of workers (one a minute) are kept")
    ] = 14.0
    keep_log_days: Annotated[
        float,
        Field(gt=0, le=36500, description="for how many days the event log is kept, and up to an eighth longer"),
    ] = 90.0
    keep_audit_days: Annotated[
        float, Field(gt=0, le=36500, description="for how many days it is kept who did what")
    ] = 365.0
    keep_jobs_days: Annotated[
        float | None,
        Field(gt=0, le=36500, description="for how many days ended jobs are kept; by default for ever"),
    ] = None
    forget_workers_days: Annotated[
        float, Field(gt=0, le=36500, description="days of absence after which a worker is forgotten")
    ] = 90.0
    tokens: Annotated[
        bool,
        Field(description="ask for tokens; without them everybody who can connect is an admin (on loopback only)"),
    ] = True
    tls: Annotated[
        Literal["on", "off"] | None,
        Field(description="encryption; by default on beyond loopback"),
    ] = None
    tls_cert: Annotated[
        Path | None, Field(description="file of the master's certificate and its chain, in place of its own CA's")
    ] = None
    tls_key: Annotated[Path | None, Field(description="file of that certificate's key")] = None
    tls_names: Annotated[
        tuple[TlsName, ...],
        BeforeValidator(_split),
        Field(max_length=50, description="more names and addresses by which it is reached, for its certificate"),
    ] = ()
    proxy: Annotated[
        tuple[IPv4Address | IPv6Address, ...],
        BeforeValidator(_split),
        Field(
            max_length=50,
            description="addresses of proxies that encrypt before it and write X-Forwarded-For; others cannot come",
        ),
    ] = ()
    peers: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="whether large files may go between workers, on a port that each opens; auto: in one subnet, "
            "where the grid is encrypted"
        ),
    ] = "auto"
    peer_file_bytes: Annotated[int, Field(ge=2**20, description="the smallest file that may go between workers")] = (
        16 * _MIB
    )
    network_file: Annotated[
        Path | None,
        Field(description="the network's switches and links; by default data_dir/network.toml, if any"),
    ] = None
    worker_token_file: Annotated[Path | None, Field(description="another file to write the workers' token to")] = None
    retention_days: Annotated[
        float | None,
        Field(ge=0, le=36500, description="for how many days files of ended jobs are kept; by default for ever"),
    ] = None
    failed_outputs_days: Annotated[
        float | None,
        Field(ge=0, le=36500, description="for how many days outputs of failed attempts are kept; none: as others"),
    ] = 30.0
    file_grace_s: Annotated[Period, Field(description="the age at which a file that no job names is removed")] = (
        7 * 86400.0
    )
    checkpoint_bytes_s: Annotated[
        float,
        Field(
            ge=1e3,
            allow_inf_nan=False,
            description="bytes of checkpoints a second that all workers send to the master, not to a bucket",
        ),
    ] = 1e7
    co2_grams_per_kwh: Annotated[
        float | None,
        Field(ge=0, le=1e5, description="grams of CO2 per kWh of your electricity; default: CO2 is not shown"),
    ] = None
    webhook_hosts: Annotated[
        tuple[str, ...],
        BeforeValidator(_split),
        Field(description="hosts and networks that webhooks may call although they are not public"),
    ] = ()
    notify_commands: Annotated[
        dict[Name, Annotated[list[str], Field(min_length=1)]],
        Field(default_factory=dict, description="commands that jobs may name to be notified of their end"),
    ]
    limit_commands: Annotated[
        dict[Name, Annotated[list[str], Field(min_length=1)]],
        Field(
            default_factory=dict, max_length=50, description="commands that print limits of the grid, once a minute"
        ),
    ]
    wake_command: Annotated[
        list[str],
        Field(default_factory=list, max_length=50, description="command that wakes a computer by IPMI or AMT"),
    ]
    limits: Limits = Limits()

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Load the settings. Raises LooplineError if a master without tokens could be reached from elsewhere."""
        settings = super().load(**flags)
        if not settings.tokens and not settings.is_private:
            raise LooplineError(
                "open_door",
                f"a master without tokens would obey everybody who can reach {settings.host}",
                "keep tokens on, or listen on 127.0.0.1 only",
            )
        if settings.tls == "off" and not (settings.is_private or settings.proxy):
            raise LooplineError(
                "not_encrypted",
                f"without TLS, tokens and files could be read on the way to {settings.host}",
                "leave --tls off out, or name the proxy that encrypts before this master with --proxy ADDRESS",
            )
        return settings

    @field_validator("policy", check_fields=False)
    @classmethod
    def _there_is_such_a_policy(cls, name: str) -> str:
        if name not in REGISTRY:
            raise ValueError(f"there is no such policy: {meant(name, REGISTRY)}")
        return name

    @field_validator("plan_times", check_fields=False)
    @classmethod
    def _there_is_such_an_algorithm(cls, name: str) -> str:
        try:
            algorithm(name)
        except LooplineError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
        return name

    @model_validator(mode="after")
    def _a_key_has_a_certificate(self) -> Self:
        if self.tls_key and not self.tls_cert:
            raise ValueError("tls_key is the key of tls_cert: give both")
        return self

    @model_validator(mode="after")
    def _a_bucket_takes_the_largest_file(self) -> Self:
        if self.files and self.limits.max_file_bytes > LARGEST_OBJECT_BYTES:
            raise ValueError("limits.max_file_bytes is above 5 GiB, which is the most that S3 takes in one piece")
        return self

    @model_validator(mode="after")
    def _reports_come_within_leases(self) -> Self:
        if self.scheduler.report_every_s >= self.scheduler.lease_s:
            raise ValueError("report_every_s must be shorter than lease_s: a lease is renewed by a report")
        return self

    @property
    def scheduler(self) -> SchedulerSettings:
        """The settings that the scheduler decides by."""
        given = dict(self) | dict(self.limits) | {"peers": self.peers != "off" and not self.files}
        return SchedulerSettings(**{name: given[name] for name in _TYPES})

    @property
    def files_folder(self) -> Path:
        """Folder of the files; of those at hand, where they are in a bucket."""
        return self.data_dir / ("at-hand" if self.files else "files")

    @property
    def is_private(self) -> bool:
        """True if only programs on this computer can connect."""
        return is_loopback(self.host)

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'loopline.db'}"
