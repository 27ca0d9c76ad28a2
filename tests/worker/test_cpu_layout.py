"""The owner's share of the processor for systemd's groups of their programs; the groups are made by hand."""

import os
from pathlib import Path

import pytest

from loopline_worker.host.layout import layout

USER = f"user.slice/user-{os.getuid()}.slice"
MANAGER = f"{USER}/user@{os.getuid()}.service"


def group(root: Path, path: str, weight: int = 100, populated: bool = True, idle: bool = False) -> None:
    mount = root / "sys/fs/cgroup"
    folder = mount / path
    folder.mkdir(parents=True, exist_ok=True)
    for level in (folder, *folder.parents):
        if level == mount:
            break
        for name, text in (("cpu.weight", "100"), ("cgroup.events", "populated 1\nfrozen 0")):
            if not (level / name).exists():
                (level / name).write_text(text)
    (folder / "cpu.weight").write_text(str(weight))
    (folder / "cpu.idle").write_text(str(int(idle)))
    (folder / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0")


@pytest.fixture
def desktop(tmp_path: Path) -> Path:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.subtree_control").write_text("cpu memory pids")
    group(tmp_path, f"{MANAGER}/loopline.slice", 10)
    return tmp_path


def test_share_of_apps_in_the_same_session_follows_from_weights(desktop: Path) -> None:
    group(desktop, f"{MANAGER}/app.slice")
    found = layout(desktop)
    assert [(n.group, round(n.share, 2)) for n in found.neighbours] == [(f"/{MANAGER}/app.slice", 0.91)]
    assert "keep 91 %" in found.words


@pytest.mark.parametrize("beside", [f"{USER}/session-2.scope", "user.slice/user-4242.slice", "system.slice"])
def test_group_of_a_parent_level_gets_half_at_worst(desktop: Path, beside: str) -> None:
    group(desktop, f"{MANAGER}/app.slice")
    group(desktop, beside)
    found = layout(desktop)
    assert (found.neighbours[0].group, found.neighbours[0].share) == (f"/{beside}", 0.5)
    assert "keep 50 % of a core that tasks want too, until tasks make way" in found.words


def test_empty_groups_and_idle_slices_do_not_matter(desktop: Path) -> None:
    group(desktop, f"{USER}/session-2.scope", populated=False)
    assert layout(desktop).neighbours == ()
    group(desktop, f"{MANAGER}/app.slice")
    group(desktop, f"{MANAGER}/loopline.slice", idle=True)
    assert layout(desktop).neighbours[0].share > 0.99


def test_without_groups_it_is_sessions(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/sched_autogroup_enabled").write_text("1\n")
    assert layout(tmp_path).words.startswith("sessions (autogroup)")
