"""Plans to install a master as a service of systemd, so that somebody starts it after a reboot or a crash. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopline.service.plans import Plan, filled, quoted

UNIT = "loopline-master.service"
USER = "loopline-master"
DATA = Path("/var/lib") / USER
"""Where the master of the system keeps its data, unless one user runs it."""
_ITS_OWN = f"""User={USER}
StateDirectory={USER}
StateDirectoryMode=0700
Environment=LOOPLINE_DATA_DIR={DATA}
ProtectHome=read-only
CapabilityBoundingSet=
UMask=0077
"""
_HARDENED = """PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=full
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""
"""Not in the unit of a user, whose manager can set them only where unprivileged user namespaces are allowed."""


def master_for_user(command: Sequence[str], config: Path, user: str) -> Plan:
    """Return the plan of a systemd user unit; lingering keeps it running while its user is logged out."""
    unit = filled("master.service", owner="", command=quoted(command), target="default.target")
    manage = ["systemctl", "--user"]
    return Plan(
        {config / "systemd" / "user" / UNIT: unit},
        [*_start(manage), ["loginctl", "enable-linger", user]],
        [[*manage, "disable", "--now", UNIT]],
        [*manage, "is-active", UNIT],
        lingers=user,
    )


def master_for_system(command: Sequence[str], user: str | None = None, etc: Path = Path("/etc")) -> Plan:
    """Return the plan of a systemd system unit that this user runs; None: one that is made for it, with DATA."""
    owner = _HARDENED + (f"User={user}\n" if user else _ITS_OWN)
    unit = filled("master.service", owner=owner, command=quoted(command), target="multi-user.target")
    users = etc / "sysusers.d" / f"{USER}.conf"
    return Plan(
        {etc / "systemd/system" / UNIT: unit},
        [*([] if user else [["systemd-sysusers", str(users)]]), *_start(["systemctl"])],
        [["systemctl", "disable", "--now", UNIT]],
        ["systemctl", "is-active", UNIT],
        beside={} if user else {users: filled("master_sysusers.conf")},
    )


def _start(manage: Sequence[str]) -> list[list[str]]:
    return [[*manage, "daemon-reload"], [*manage, "enable", UNIT], [*manage, "restart", UNIT]]
