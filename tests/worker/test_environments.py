"""Environments on a worker: builds that yield to the owner, disk space, images that try to leave their folder."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline_worker.environments import environments as environments_module
from loopline_worker.environments import image_tool
from loopline_worker.environments.build import Build
from loopline_worker.environments.build_error import BuildError
from loopline_worker.environments.environment import Environment
from loopline_worker.environments.environments import Abilities, Environments, Provision
from loopline_worker.environments.package_maker import take_over
from loopline_worker.environments.recipe import Recipe
from loopline_worker.environments.store import EnvironmentStore
from loopline_worker.environments.uv import Uv
from loopline_worker.files.cache import Cache
from loopline_worker.launch.interface import Job
from tests.worker.bench import until


class Maker:
    """A maker that does nothing and records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def measure(self) -> float:
        return 0.0

    def kill(self) -> None:
        self.told.append("kill")

    def freeze(self) -> None:
        self.told.append("freeze")

    def thaw(self) -> None:
        self.told.append("thaw")


async def build_of(folder: Path, maker: Maker, limit_bytes: int = 10**9) -> Build:
    build = Build("builds", folder, limit_bytes, maker)
    build.start(lambda: asyncio.sleep(3600, Environment(folder, 1)))
    return build


async def test_build_is_frozen_and_cancelled_with_its_last_waiter(tmp_path: Path) -> None:
    maker = Maker()
    build = await build_of(tmp_path, maker)
    waiting = [asyncio.create_task(build.wait(who, job)) for who, job in (("a", 1), ("b", 2))]
    await asyncio.sleep(0)
    assert build.jobs == {1, 2}
    build.freeze("a", True)
    assert maker.told == []
    build.freeze("b", True)
    build.freeze("a", False)
    assert maker.told == ["freeze", "thaw"]
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    assert build.jobs == {2}
    waiting[1].cancel()
    await build.gone()
    assert maker.told[-1] == "kill"


async def test_build_beyond_the_size_limit_is_ended_with_that_reason(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    ended = asyncio.Event()
    maker = Maker()
    maker.kill = ended.set  # type: ignore[method-assign]

    async def make() -> Environment:
        await ended.wait()
        raise BuildError("killed")

    build = Build("builds", tmp_path, 50_000, maker)
    build.start(make)
    with pytest.raises(BuildError, match="larger than 50,000 bytes"):
        await build.wait("a", 1)


def stored(folder: Path, *names: str) -> EnvironmentStore:
    for name in names:
        (folder / "environments" / name).mkdir(parents=True)
        Environment(folder / "environments" / name, 400).write()
    cache = Cache(folder / "cache", 1000, None)  # type: ignore[arg-type]
    store = EnvironmentStore(folder / "environments", 1000, cache)
    store.open()
    return store


def test_environments_obey_the_cache_limit_except_those_in_use(tmp_path: Path) -> None:
    store = stored(tmp_path, "a", "b")
    store.in_use = lambda: {"a"}
    folder = tmp_path / "environments" / "c"
    folder.mkdir()
    (folder.parent / "broken").mkdir()
    store.add(Environment(folder, 400))
    assert store.find("a")
    assert not store.find("b")
    assert not (tmp_path / "environments" / "b").exists()
    assert not stored(tmp_path).find("broken")
    assert not (folder.parent / "broken").exists()


async def test_build_for_a_frozen_attempt_starts_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous environment was still being removed when the owner returned."""
    may_go, makers = threading.Event(), list[Maker]()

    class Lasting(Maker):
        async def make(self, recipe: Recipe, folder: Path) -> None:
            makers.append(self)
            await asyncio.sleep(3600)

    remove = environments_module.scratch.remove
    monkeypatch.setattr(environments_module.scratch, "remove", lambda folder: may_go.wait() and remove(folder))
    may_go.set()
    able = Abilities(uv=Uv("uv", None))
    environments = Environments(able, None, stored(tmp_path), tmp_path, lambda uv: Lasting())  # type: ignore[arg-type, return-value]
    environments.attach(SimpleNamespace(speak=lambda: None))  # type: ignore[arg-type]
    first, second = (Provision(environments, Recipe(packages="a"), job) for job in (1, 2))
    job = Job(["true"], str(tmp_path), {})
    waiting = asyncio.create_task(first.prepare(job))
    await until(lambda: makers)
    may_go.clear()
    waiting.cancel()
    await asyncio.wait([waiting])
    waiting = asyncio.create_task(second.prepare(job))
    await asyncio.sleep(0)
    second.on_frozen(True)
    may_go.set()
    await until(lambda: len(makers) == 2)
    assert makers[1].told == ["freeze"]
    second.on_frozen(False)
    assert makers[1].told == ["freeze", "thaw"]
    waiting.cancel()
    await asyncio.wait([waiting])


def archive(folder: Path, *members: tarfile.TarInfo) -> Path:
    path = folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, mode
    return member


@pytest.mark.parametrize(
    "members",
    [
        [entry("../outside")],
        [entry("way", tarfile.SYMTYPE, "/"), entry("way/tmp/outside")],
        [entry("inner", tarfile.LNKTYPE, "../secret")],
    ],
    ids=["path", "through a link", "hard link"],
)
def test_image_with_files_outside_its_folder_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "secret").write_text("s")
    with pytest.raises(BuildError, match="outside itself"):
        image_tool._extract(archive(tmp_path, *members), tmp_path / "root")


def test_unpacked_image_has_no_devices_or_setuid_bits(tmp_path: Path) -> None:
    members = [entry("etc", tarfile.DIRTYPE, mode=0o755), entry("su", mode=0o4755), entry("null", tarfile.CHRTYPE)]
    members += [
        entry("home", tarfile.DIRTYPE, mode=0o555),
        entry("home/own"),
        entry("bin", tarfile.SYMTYPE, "usr"),
    ]
    members += [entry("closed", mode=0o600), entry("opt/unnamed")]
    before = os.umask(0o077)  # the umask of a service's agent
    image_tool._extract(archive(tmp_path, *members), tmp_path / "root")
    assert (tmp_path / "root" / "su").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "root" / "closed").stat().st_mode & 0o7777 == 0o644
    assert not (tmp_path / "root" / "null").exists()
    image_tool._add_points(tmp_path / "root", Path("/home/me/scratch"))
    assert (tmp_path / "root" / "home" / "me" / "scratch").is_dir()
    assert (tmp_path / "root" / "home" / "own").is_file()
    assert (tmp_path / "root" / "etc" / "resolv.conf").is_file()
    os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "root").rglob("*") if path.is_dir()} == {0o755}


def test_built_environment_becomes_owned_by_the_agent_and_readable(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    (folder / "venv" / "bin").mkdir(parents=True, mode=0o2770)
    program, package = folder / "venv" / "bin" / "tool", folder / "venv" / "package.py"
    for path, mode in ((program, 0o760), (package, 0o660)):
        path.write_text("#!")
        path.chmod(mode)
    os.utime(package, (1, 1))
    (folder / "venv" / "link").symlink_to("/etc/shadow")
    numbers = {path.stat().st_ino for path in (program, package)}
    take_over(folder)
    assert not numbers & {path.stat().st_ino for path in (program, package)}, (
        "files that the builder holds open are replaced"
    )
    modes = [path.stat().st_mode & 0o7777 for path in (folder, program.parent, program, package)]
    assert modes == [0o755, 0o755, 0o755, 0o644]
    assert (folder / "venv" / "link").readlink() == Path("/etc/shadow")
    assert package.stat().st_mtime == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("kind", ["a link to a file of the agent's", "a pipe"])
def test_files_not_owned_by_the_builder_are_not_taken_over(tmp_path: Path, kind: str) -> None:
    folder, secret = tmp_path / "key", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("the worker's token")
    os.link(secret, folder / "one") if kind.startswith("a link") else os.mkfifo(folder / "one")
    with pytest.raises(BuildError, match="is no file of its own"):
        take_over(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "secret"]
