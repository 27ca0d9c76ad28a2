"""Control groups as files: what is written where, in both versions, and when a group is taken for ours."""

import os
from pathlib import Path

import pytest

from worker.launch import abilities, delegation, processes
from worker.launch.groups import Group

CONTROLLERS = "cpu memory pids\n"


def folder_with(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """Folder's name, file, text."""
    log: list[tuple[str, str, bytes]] = []

    def write(path: str, content: bytes) -> None:
        file = Path(path)
        if not file.exists():
            raise FileNotFoundError(path)
        log.append((file.parent.name, file.name, content))

    monkeypatch.setattr(processes, "write", write)
    return log


@pytest.fixture
def handed_over(tmp_path: Path) -> Path:
    """A version 2 group as a service manager hands it over, our process alone in it."""
    folder_with(tmp_path / "proc/self", cgroup="0::/service\n")
    mount = folder_with(tmp_path / "sys/fs/cgroup", cgroup__controllers=CONTROLLERS, cgroup__procs="")
    own = folder_with(
        mount / "service", cgroup__controllers=CONTROLLERS, cgroup__subtree_control="", cgroup__events="",
        cgroup__procs=f"{os.getpid()}\n",
    )  # fmt: skip
    folder_with(own / "agent", cgroup__procs="")
    return own


def made(own: Path, name: str) -> bool:
    """As the kernel fills a new folder."""
    folder_with(
        own / name,
        cgroup__procs="",
        cgroup__controllers=CONTROLLERS,
        cgroup__subtree_control="memory pids\n",
        cpu__idle="",
    )
    return True


def test_controllers_are_handed_on_from_a_group_of_ours(
    handed_over: Path, written: list[tuple[str, str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "_make", made)
    places = delegation.claim(yields=True, root=tmp_path)
    assert set(places) == {"core", "memory", "pids"}
    name = Path(places["core"]).name
    assert written == [
        ("agent", "cgroup.procs", b"0"),
        *(("service", "cgroup.subtree_control", text) for text in (b"+cpu", b"+memory", b"+pids")),
        *((name, "cgroup.subtree_control", text) for text in (b"+memory", b"+pids")),
        (name, "cpu.idle", b"1"),
    ]


def test_a_group_with_others_in_it_is_not_changed(
    handed_over: Path, written: list[tuple[str, str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handed_over / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    monkeypatch.setattr(delegation, "_make", made)
    delegation.claim(yields=False, root=tmp_path)
    assert "service" not in {folder for folder, _, _ in written}


def test_limits_in_version_2(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path / "1.1.1", memory__max="", memory__swap__max="", memory__oom__group="", pids__max=""
    )
    Group(dict.fromkeys(("core", "memory", "pids"), str(tmp_path)), "1.1.1").make(1000, 50)
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "50",
    }  # fmt: skip


def test_use_and_breach_in_version_2(tmp_path: Path) -> None:
    folder_with(
        tmp_path / "1.1.1", cpu__stat="usage_usec 2500000\nuser_usec 1\n", memory__stat="anon 70\nfile 5\nshmem 7\n",
        memory__events="max 9\noom_kill 0\n", pids__current="4\n", pids__events="max 0\n",
    )  # fmt: skip
    group = Group(dict.fromkeys(("core", "memory", "pids"), str(tmp_path)), "1.1.1")
    assert (group.cpu_s(), group.memory_bytes(), group.processes(), group.breach()) == (2.5, 77, 4, "")
    (tmp_path / "1.1.1/pids.events").write_text("max 3\n")
    assert group.breach() == "processes"
    (tmp_path / "1.1.1/memory.events").write_text("max 9\noom_kill 1\n")
    assert group.breach() == "memory"


def test_without_places_it_does_nothing(tmp_path: Path) -> None:
    group = Group({}, "1.1.1")
    group.make(1000, 50)
    group.enter()
    group.kill()
    assert not group.freeze(True)
    assert (group.cpu_s(), group.memory_bytes(), group.processes(), group.breach()) == (None, None, None, "")
    assert group.remove()


def test_what_cannot_be_had_is_told_with_what_is_done_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "claim", lambda yields: {})
    missing = {ability.name: ability.detail for ability in abilities.abilities() if not ability.has}
    assert missing["memory limit kept by the kernel"].startswith("watched: twice a second")
    assert "killed and frozen at one stroke" in missing
