"""Settings of a worker, with defaults."""

from __future__ import annotations

import shlex
import socket
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from loopline_shared.configuration.settings_source import (
    Settings,
    config_file,
    read_table,
)
from loopline_shared.configuration.user_folders import known_user_folder, user_folder
from loopline_shared.errors import LooplineError
from loopline_shared.joining import Membership, addresses_of, normal_address
from loopline_shared.model import Name, SharedFolder
from loopline_shared.protocol.gpus import COMPUTER, GPU
from loopline_shared.rest.address import DEFAULT_URL
from loopline_worker.core.hours import Hours
from loopline_worker.core.owner_policy import Policy
from loopline_worker.departure import end_of_allocation, end_of_stay, gpus_of_allocation

_MIB = 2**20


RESOURCE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}=[1-9][0-9]{0,5}$"
"""``NAME=UNITS``."""


def _named_once(resources: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError if a resource is given twice, or has the name of GPUs."""
    names = [one.partition("=")[0] for one in resources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the resource {twice[0]} is given twice")
    if GPU in names:
        raise ValueError("gpu means the GPUs that are detected: choose another name, or see --gpu")
    if COMPUTER in names:
        raise ValueError(f"{COMPUTER} means the whole computer: choose another name")
    return resources


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _address(text: str) -> str:
    address = normal_address(text.strip())
    if not address:
        raise ValueError("expected an address such as http://lab-pc:7461")
    return address


def _ip(text: str) -> str:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, text)
            return text
    raise ValueError("expected an IP address such as 192.168.1.5")


def _command(text: str) -> str:
    try:
        if shlex.split(text):
            return text
    except ValueError as error:  # a quote is open
        raise ValueError(f"expected a command such as /usr/local/bin/plug-power: {error}") from None
    raise ValueError("expected a command such as /usr/local/bin/plug-power")


def _several(values: object) -> object:
    """Split the master's address at commas: the first is the master, the others are further masters."""
    if not isinstance(values, dict) or "," not in str(values.get("master", "")):
        return values
    first, _, others = str(values["master"]).partition(",")
    known = values.get("other_masters") or ()
    known = known if isinstance(known, str) else ",".join(map(str, known))
    return {**values, "master": first, "other_masters": f"{others},{known}"}


def _hours(value: object) -> object:
    """Parse hours. Raises ValueError for anything but a text: the fields of ``Hours`` must not pass for one."""
    if isinstance(value, Hours):
        return value
    if not isinstance(value, str):
        raise ValueError("expected a text such as 'mon-fri 18:00-08:00, sat, sun'")
    return Hours.parse(value)


def _default_data_dir() -> Path:
    return user_folder("state") / "worker"


def _own_master() -> Path | None:
    """Return where a master of the same user on this computer has its data; None if this user has no home."""
    folder = known_user_folder("data")
    return folder / "master" if folder else None


def _token_of_own_master() -> Path:
    """Return the file where a master of the same user on this computer leaves a token for workers."""
    return user_folder("data") / "master" / "tokens" / "worker"


class SandboxChoice(StrEnum):
    """The setting ``sandbox``."""

    AUTO = "auto"
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    OFF = "off"


class NetworkAccess(StrEnum):
    """The setting ``sandbox_network``: which tasks have the network of the computer; others have none."""

    AUTO = "auto"
    ALL = "all"
    REQUESTED = "requested"
    GANGS = "gangs"
    NONE = "none"


class GpuChoice(StrEnum):
    """The setting ``gpu``."""

    AUTO = "auto"
    OFF = "off"
    DEDICATED = "dedicated"


class ImageSource(StrEnum):
    """The setting ``images``."""

    PODMAN = "podman"
    DOCKER = "docker"
    OFF = "off"


class WorkerSettings(Settings):
    """Settings of a worker, from the command line, the environment or a file."""

    table: ClassVar[str] = "worker"

    _split_addresses = model_validator(mode="before")(_several)

    master: Annotated[
        str, AfterValidator(_address), Field(description="the master's address; behind commas, its standbys'")
    ] = DEFAULT_URL
    other_masters: Annotated[
        tuple[Annotated[str, AfterValidator(_address)], ...],
        BeforeValidator(_split),
        Field(max_length=8, description="further addresses of the master, such as its standby's"),
    ] = ()
    token: Annotated[SecretStr | None, Field(description="a worker's join token")] = None
    token_file: Annotated[Path | None, Field(description="a file with that token, read whenever it is needed")] = None
    ca_file: Annotated[
        Path | None,
        Field(description="a file with the CA to trust the master by; default: as joined, or beside the token"),
    ] = None
    name: Annotated[Name | None, Field(description="this worker's name; generated once and kept in data_dir")] = None
    address: Annotated[
        str | None,
        Field(max_length=255, description="at which members of gangs reach it; default: as the master does"),
    ] = None
    slots: Annotated[
        int | None, Field(ge=1, le=65536, description="tasks at a time; default: the number of CPUs")
    ] = None
    labels: Annotated[tuple[Name, ...], BeforeValidator(_split), Field(max_length=50)] = ()
    resources: Annotated[
        tuple[Annotated[str, Field(pattern=RESOURCE)], ...],
        BeforeValidator(_split),
        AfterValidator(_named_once),
        Field(max_length=50, description="what tasks may hold here, NAME=UNITS such as fpga=1"),
    ] = ()
    gpu: Annotated[
        GpuChoice,
        Field(
            description="GPUs that tasks may ask for: auto (those that are found), off, or dedicated (the owner uses"
            " none of them)"
        ),
    ] = GpuChoice.AUTO
    gpu_devices: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...],
        BeforeValidator(_split),
        Field(
            max_length=64,
            description="GPUs to offer, by index, UUID or PCI address; default: all, or those of the Slurm allocation"
            " around it",
        ),
    ] = Field(default_factory=gpus_of_allocation)
    gpu_shares: Annotated[
        int, Field(ge=1, le=64, description="tasks that may have one GPU at once: those that ask for a part of it")
    ] = 1
    watts_idle: Annotated[
        float | None, Field(gt=0, le=20_000, description="power of this computer when it is idle, in watts")
    ] = None
    watts_busy: Annotated[
        float | None,
        Field(
            gt=0,
            le=20_000,
            description="its power when all processors are busy; used to compute energy if none is measured",
        ),
    ] = None
    watts_command: Annotated[
        Annotated[str, AfterValidator(_command)] | None,
        Field(max_length=1000, description="a command that prints its power now in watts, by a meter at the socket"),
    ] = None
    policy: Annotated[Policy, Field(description="when tasks run")] = Policy.WHEN_IDLE
    idle_s: Annotated[
        float, Field(ge=1, le=86400, description="seconds without input until the computer counts as idle")
    ] = 180.0
    grace_s: Annotated[float, Field(ge=0, le=86400, description="seconds after which frozen tasks are preempted")] = (
        600.0
    )
    reserve_cores: Annotated[float, Field(ge=0, le=65536, description="cores left to an owner who is present")] = 1.0
    reserve_memory_bytes: Annotated[
        int | None, Field(ge=0, description="memory left to the owner; default: an eighth, up to 2 GiB")
    ] = None
    max_cores_percent: Annotated[
        float, Field(gt=0, le=100, description="share of the cores that tasks may use, to keep the fan quiet")
    ] = 100.0
    max_temperature_c: Annotated[
        float | None, Field(ge=20, le=120, description="temperature in °C above which no tasks run; default: any")
    ] = None
    yield_to_load: Annotated[bool, Field(description="fewer slots while other programs need the processor")] = True
    on_battery: Annotated[bool, Field(description="tasks run on battery too")] = False
    allow_wake: Annotated[bool, Field(description="the grid may wake this computer when it sleeps")] = True
    keep_awake: Annotated[
        bool,
        Field(
            description="this computer does not fall asleep by itself while a task runs and nobody uses it (GNOME "
            "and Cinnamon ignore that: set their Automatic Suspend to off)"
        ),
    ] = True
    on_metered: Annotated[bool, Field(description="files of tasks go over metered connections too")] = False
    max_mb_per_day: Annotated[
        float | None, Field(ge=0, description="MB of task files over the network in a day; default: any")
    ] = None
    hours: Annotated[Hours, BeforeValidator(_hours), Field(description="weekly, when tasks run")] = Hours()
    off_file: Annotated[
        Path, Field(description="all tasks leave while this file exists; its first line is shown as the reason")
    ] = Path("/etc/loopline/off")
    pause_while_running: Annotated[
        tuple[str, ...],
        BeforeValidator(_split),
        Field(max_length=50, description="programs during which no tasks run"),
    ] = ()
    owner_page: Annotated[bool, Field(description="serve a page for the owner, on this computer only")] = True
    owner_port: Annotated[int, Field(ge=0, le=65535, description="port of that page; 0: any free port")] = 0
    owner_socket: Annotated[
        Path,
        Field(
            description="socket for reporters of desktops, if its folder is the worker's: a system service has one"
        ),
    ] = Path("/run/loopline/sessions")
    dedicated: Annotated[bool, Field(description="this computer has no other user: tasks need not yield")] = False
    data_dir: Annotated[
        Path,
        AfterValidator(Path.absolute),  # tasks run in folders of their own, where a relative path names nothing
        Field(default_factory=_default_data_dir, description="state, results, scratch folders"),
    ]

    output_limit_bytes: Annotated[
        int, Field(ge=0, description="bytes kept of each of stdout and stderr, beginning and end")
    ] = 16 * _MIB
    cache_limit_bytes: Annotated[int, Field(ge=0, description="input files kept for the next task")] = 10240 * _MIB
    outputs_limit_bytes: Annotated[int, Field(ge=0, description="output files of one task")] = 4096 * _MIB
    disk_reserve_bytes: Annotated[int, Field(ge=0, description="disk space left alone")] = 512 * _MIB
    task_memory_bytes: Annotated[
        int | None, Field(ge=_MIB, description="memory of a task whose job requests none")
    ] = None
    scratch_limit_bytes: Annotated[int, Field(ge=0, description="files of one task at a time")] = 10240 * _MIB
    output_flood_bytes: Annotated[int, Field(ge=0, description="output of one task, after which it is stopped")] = (
        1024 * _MIB
    )
    max_processes: Annotated[int, Field(ge=1, description="processes and threads of one task at a time")] = 1024
    python: Annotated[
        str | None, Field(max_length=1000, description="the Python that functions run under; default: the agent's")
    ] = None
    fetch_pythons: Annotated[
        bool, Field(description="for jobs of another Python, download one that is not on this computer (by uv)")
    ] = False
    images: Annotated[
        ImageSource,
        Field(
            description="what fetches container images: podman, which needs no rights; docker, whose socket is a"
            " root's power over this computer; or off"
        ),
    ] = ImageSource.PODMAN
    sandbox: Annotated[
        SandboxChoice,
        Field(description="around every task: auto (bubblewrap, else landlock), bubblewrap, landlock or off"),
    ] = SandboxChoice.AUTO
    sandbox_network: Annotated[
        NetworkAccess,
        Field(
            description="tasks with network: all; requested: of jobs that ask for it; gangs: members of gangs that "
            "ask, between them alone; none; auto: requested for a service of the system with bubblewrap, else all"
        ),
    ] = NetworkAccess.AUTO
    sandbox_shows: Annotated[
        tuple[Path, ...], BeforeValidator(_split), Field(description="files and folders that tasks may read besides")
    ] = ()
    sandbox_opens: Annotated[
        tuple[Annotated[str, AfterValidator(_ip)], ...],
        BeforeValidator(_split),
        Field(
            description="addresses that tasks may connect to although they are this computer's, link-local or a "
            "cloud's metadata; 127.0.0.1 stands for the whole loopback"
        ),
    ] = ()
    peer_files: Annotated[
        bool, Field(description="files may go between this worker and others, where the master's `peers` says so")
    ] = True
    peer_port: Annotated[
        int, Field(ge=0, le=65535, description="port open to other workers then; if it is taken, or 0: any free one")
    ] = 7462
    peer_bytes_s: Annotated[
        float | None, Field(gt=0, description="most bytes a second from workers, and to them; default: no limit")
    ] = None
    shared_folders: Annotated[
        tuple[SharedFolder, ...],
        BeforeValidator(_split),
        Field(max_length=50, description="folders that other computers have, too, in which jobs may run (--cwd)"),
    ] = ()
    until: Annotated[
        float | None,
        BeforeValidator(end_of_stay),
        Field(
            description="when it must end: a duration (55m) or a time (2027-01-31T08:00:00Z); default: never, or"
            " as the Slurm allocation around it"
        ),
    ] = Field(default_factory=end_of_allocation)
    idle_timeout_s: Annotated[
        float | None, Field(ge=1, description="seconds without a task after which it ends; default: never")
    ] = None
    death_timeout_s: Annotated[
        float | None, Field(ge=1, description="seconds without its master after which it ends; default: never")
    ] = None
    transient: Annotated[
        bool, Field(description="it comes once under this name: its master forgets it as soon as it is gone")
    ] = False
    retry_min_s: Annotated[float, Field(gt=0, description="first pause before connecting again")] = 0.2
    retry_max_s: Annotated[float, Field(gt=0, description="longest pause, and that after a refusal")] = 30.0

    @model_validator(mode="after")
    def _busy_takes_more_than_idle(self) -> Self:
        if self.watts_busy is not None and not (self.watts_idle and self.watts_idle < self.watts_busy):
            raise ValueError("watts_busy needs a smaller watts_idle: the energy of tasks is what is above it")
        return self

    def belongs_to(self, member: Membership) -> bool:
        """True if the membership's token is for this master: a token is for the master that gave it alone."""
        return addresses_of(member.master)[:1] == [self.master]

    def secrets(self) -> list[Path]:
        """Return all places that may hold a token of this worker or of its user's master; not all need be there."""
        master = read_table("master")
        named = [Path(str(master[name])) for name in ("data_dir", "worker_token_file") if name in master]
        own = (self.token_file, config_file(), _own_master(), known_user_folder("config"))
        return [self.data_dir, *named, *(path for path in own if path)]

    def find_token_file(self) -> Path:
        """Return the file that has the token of a worker that did not join."""
        return self.token_file or _token_of_own_master()

    def find_token(self) -> str | None:
        """Return the join token, or None. Raises LooplineError if a named file cannot be read."""
        if self.token:
            return self.token.get_secret_value().strip()
        if not self.token_file and (member := Membership.read()) and self.belongs_to(member):
            return member.token
        file = self.find_token_file()
        try:
            return file.read_text("utf-8-sig").strip()
        except OSError as error:
            if self.token_file is None:
                return None
            message = f"cannot read the join token from {file}: {error.strerror}"
            raise LooplineError("token_file", message, "copy it from the master, or see its log", 401) from None
