"""Layout of this computer: which groups share the processor with tasks, and the share that their weights leave to the
owner.

systemd puts the programs of a desktop into groups: the apps of a session beside the worker's slice, other sessions
and other users further up. Each group competes with those beside it as a whole, by weight (cgroups(7)). So the
owner's share depends on where their program is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_SLICE = "loopline.slice"
_DEFAULT = {"cpu.weight": 100, "cpu.shares": 1024}
_LEAST = 0.97
"""Share of the owner's that counts as all of it."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A group with processes that competes with the worker's; ``share``: kept beside tasks that never rest."""

    group: str
    share: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups that compete with the worker's, sorted by the share they keep. ``by`` says what ranks processes here."""

    by: str
    group: str
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def words(self) -> str:
        """The smallest share that the owner's programs keep beside busy tasks, and any further protection."""
        if not self.neighbours:
            return f"{self.by}: programs outside of the worker's group keep about 99 % of a core that tasks want too"
        worst = self.neighbours[0]
        kept = f"{self.by}: programs in {worst.group} keep {100 * worst.share:.0f} % of a core that tasks want too"
        return kept if worst.share >= _LEAST else f"{kept}, until tasks make way, a tenth of a second later"


def layout(root: Path = _ROOT) -> Layout:
    """Return the layout that an installed worker is in, or of a worker started from here."""
    for version, file in ((2, "cpu.weight"), (1, "cpu.shares")):
        mount = _mount(root, version)
        if mount and (own := _worker_group(mount, root, version)):
            found = sorted(_neighbours(mount, own, file), key=lambda neighbour: neighbour.share)
            return Layout("weights of control groups", f"/{own.relative_to(mount)}", tuple(found))
    has_autogroup = _text(root / "proc/sys/kernel/sched_autogroup_enabled") == "1"
    return Layout("sessions (autogroup)" if has_autogroup else "nice values", "")


def _mount(root: Path, version: int) -> Path | None:
    mount = root / "sys/fs/cgroup"
    if version == 1:
        return mount / "cpu" if (mount / "cpu/cpu.shares").exists() else None
    return mount if "cpu" in _text(mount / "cgroup.subtree_control").split() else None


def _worker_group(mount: Path, root: Path, version: int) -> Path | None:
    """Return the slice of an installed worker, or the group of this process; None if that is the root group."""
    user = f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/{_SLICE}"
    for installed in (mount / user, mount / _SLICE):
        if installed.is_dir():
            return installed
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if (version == 2 and not names) or (version == 1 and "cpu" in names.split(",")):
            own = mount / path.strip("/")
            return own if own != mount and own.is_dir() else None
    return None


def _neighbours(mount: Path, own: Path, file: str) -> Iterator[Neighbour]:
    """Yield the groups beside the worker's own and beside each group above it, where weights count."""
    for level in (own, *own.parents):
        if level == mount:
            return
        if not (level / file).exists():
            continue
        ours = _weight(level, file)
        for beside in sorted(level.parent.iterdir()):
            if beside != level and (beside / file).exists() and _has_processes(beside):
                theirs = _weight(beside, file)
                yield Neighbour(f"/{beside.relative_to(mount)}", theirs / (theirs + ours))


def _weight(group: Path, file: str) -> float:
    if _text(group / "cpu.idle") == "1":
        return 0.3  # of 100: cpu.idle has the weight 3 of 1024
    text = _text(group / file)
    return 100 * (int(text) if text.isdigit() else _DEFAULT[file]) / _DEFAULT[file]


def _has_processes(group: Path) -> bool:
    events = _text(group / "cgroup.events")
    if events:
        return "populated 1" in events
    return any(_text(file) for file in group.rglob("cgroup.procs"))


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
