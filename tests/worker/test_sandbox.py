"""Tasks in a sandbox: what they see, what they cannot touch; and no sandbox where there can be none."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import Outcome
from loopline_worker import parts
from loopline_worker.attempts.limits import Quota
from loopline_worker.functions.python import find as find_python
from loopline_worker.launch import sandbox
from loopline_worker.launch.bubblewrap import Bubblewrap
from loopline_worker.launch.interface import Job
from loopline_worker.launch.sandbox import Sandbox, open_sandbox
from loopline_worker.launch.visible_paths import Visible
from loopline_worker.settings import NetworkAccess, SandboxChoice, WorkerSettings
from loopline_worker.supervisor.walls import landlock
from tests.sandboxes import needs_bubblewrap, without_bubblewrap
from tests.worker.bench import Bench, is_alive, name_of, processes_of, python, run_of, until

ROOT = Path(__file__).parents[2]
INTERFACES = "import socket; print([name for _, name in socket.if_nameindex()])"


@pytest.fixture
async def walled(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(
        tmp_path,
        quota=Quota(task_memory_bytes=2**30),
        sandbox=open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.NONE),
    ) as bench:
        yield bench


def wrapped(program: str, **sees: Any) -> Sandbox:
    return Sandbox(Visible(**sees), NetworkAccess.NONE, Bubblewrap(program, Visible(**sees)))


def options_of(walls: Sandbox, job: Job) -> list[str]:
    return walls.walls(job).walls or []


@needs_bubblewrap
async def test_only_its_scratch_folder_can_be_written(walled: Bench, tmp_path: Path) -> None:
    code = """
import os
def can_write(folder):
    try: open(os.path.join(folder, "probe"), "w")
    except OSError: return False
    return True
print([can_write(folder) for folder in ("/", "/etc", "/usr/bin", os.getcwd(), os.environ["TMPDIR"], "/tmp")])
"""
    result = await walled.result(python(code))
    assert result.stdout.data.split(b"\n")[0] == b"[False, False, False, True, True, True]"
    assert not Path("/tmp/probe").exists()  # its /tmp was its own


@needs_bubblewrap
async def test_nothing_of_the_owner_is_seen(walled: Bench) -> None:
    code = f"""
import json, os
folders = ["/home", "/run", "/media", {str(Path.home())!r}]
homes = [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
print(json.dumps([homes, [pid for pid in os.listdir("/proc") if pid.isdigit()]]))
"""
    homes, pids = json.loads((await walled.result(python(code))).stdout.data)
    parts = {*Path(sys.base_prefix).parts, *Path(sys.prefix).parts}
    assert set(homes) <= parts, "the agent's Python may be in a home"
    assert len(pids) <= 2  # its own, and the first of its namespace


@needs_bubblewrap
async def test_there_is_no_network(walled: Bench) -> None:
    assert (await walled.result(python(INTERFACES, network=True))).stdout.data == b"['lo']\n"


@needs_bubblewrap
@pytest.mark.parametrize("asks", [True, False])
async def test_there_is_where_the_job_asks_and_the_worker_allows(tmp_path: Path, asks: bool) -> None:
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.REQUESTED)
    async with Bench(tmp_path, sandbox=walls) as bench:
        result = await bench.result(run_of("readlink", "/proc/self/ns/net", network=asks))
    assert (result.stdout.data.strip().decode() == str(Path("/proc/self/ns/net").readlink())) is asks


@needs_bubblewrap
async def test_daemons_die_with_it(walled: Bench) -> None:
    run = run_of("sh", "-c", "setsid sleep 100 & echo > begun; exec sleep 100")
    await walled.begins(run)
    mine = processes_of(walled.folder)
    assert len(mine) == 2
    walled.runner.cancel(run.attempt)
    assert (await walled.end_of(run)).outcome is Outcome.CANCELLED
    assert not any(psutil.pid_exists(process.pid) and process.is_running() for process in mine)


@needs_bubblewrap
async def test_how_it_ended_is_told(walled: Bench) -> None:
    result = await walled.result(run_of("sh", "-c", "echo out; exit 3"))
    assert (result.outcome, result.exit_code, result.stdout.data) == (Outcome.FAILED, 3, b"out\n")


def test_folders_of_a_home_are_shown_where_the_worker_says_so(tmp_path: Path) -> None:
    options = options_of(wrapped("bwrap", shows=(tmp_path,)), Job(["true"], str(tmp_path / "1.1.1"), {}))
    at = options.index(str(tmp_path))
    assert options[at - 1 : at + 2] == ["--ro-bind-try", str(tmp_path), str(tmp_path)]


def test_of_what_is_shown_and_hidden_the_inner_counts(tmp_path: Path) -> None:
    data, python = tmp_path / "data", tmp_path / "data" / "python"
    python.mkdir(parents=True)
    walls = wrapped("bwrap", shows=(python, tmp_path), hides=(data,))
    options = options_of(walls, Job([], "", {}, room=str(data / "scratch" / "session")))
    outer, inner, own = (options.index(str(folder)) for folder in (tmp_path, python, data / "scratch"))
    assert options[options.index(str(data)) - 1] == "--tmpfs"
    assert outer < options.index(str(data)) < inner < own


@needs_bubblewrap
async def test_names_and_certificates_can_be_looked_up_where_there_is_network(tmp_path: Path) -> None:
    """What /etc/resolv.conf is a link to, in /run on many systems, is seen in its place; a folder as it is now."""
    async with Bench(tmp_path / "bench", sandbox=open_sandbox(etc=tmp_path / "etc")) as bench:
        names = await bench.result(run_of("cat", "/etc/resolv.conf"))
        certificates = await bench.result(run_of("sh", "-c", "ls -A /etc/ssl/certs | wc -l", task=2))
    assert names.stdout.data == Path("/etc/resolv.conf").read_bytes()
    assert int(certificates.stdout.data) == len(list(Path("/etc/ssl/certs").iterdir()))
    assert not list((tmp_path / "etc" / "ssl" / "certs").iterdir())


@needs_bubblewrap
async def test_what_others_have_in_the_data_folder_is_not_seen(tmp_path: Path) -> None:
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, hides=[Path("/usr/share")])  # as if the data folder were there
    async with Bench(tmp_path, sandbox=walls) as bench:
        assert (await bench.result(run_of("ls", "-A", "/usr/share"))).stdout.data == b""


@needs_bubblewrap
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_the_token_is_seen_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object) -> None:
    """Nor by a link, in the file of settings, in the data folder of a master, or once the hiding is unmounted."""
    token, shown = "ll_0badcafe_secret", tmp_path / "shown"  # as /srv is, which is in no home
    names = "token", "loopline.toml", "data/membership.json", "master/tokens/worker"
    places = {name: shown / name for name in names}
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(token)
    (shown / "link").symlink_to(places["token"])
    (shown / "plain").write_text("seen")
    places["loopline.toml"].write_text(f'[master]\ndata_dir = "{shown}/master"\n[worker]\ntoken = "{token}"\n')
    monkeypatch.setenv("LOOPLINE_CONFIG", str(places["loopline.toml"]))
    settings = WorkerSettings.load(
        token_file=shown / "link", data_dir=shown / "data", sandbox=kind, sandbox_shows=[shown]
    )
    files = " ".join(map(str, [*places.values(), shown / "link"]))
    look = f"umount {shown}/* 2>&1; grep -H . {shown}/plain; grep -r . {shown}; cat {files}"
    async with Bench(tmp_path, sandbox=parts._sandbox(settings, find_python(None))) as bench:
        result = await bench.result(run_of("sh", "-c", f"{{ {look}; }} 2>&1"))
    assert f"{shown}/plain:seen" in result.stdout.data.decode()
    assert token not in result.stdout.data.decode()


@needs_bubblewrap
async def test_nor_is_it_found_with_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKEN", "ll_0badcafe_secret")  # of the agent's process, and what it starts
    code = """
import glob, os
found = [os.environ.get("LOOPLINE_TOKEN", "")]
for file in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try: found.append(open(file, "rb").read())
    except PermissionError: assert file == "/proc/1/environ"
print(len(found), found)
"""
    async with Bench(tmp_path, sandbox=open_sandbox(SandboxChoice.BUBBLEWRAP)) as bench:
        result = await bench.result(python(code))
    count, _, found = result.stdout.data.decode().partition(" ")
    assert int(count) >= 3, "it looked somewhere"
    assert "ll_0badcafe" not in found


@needs_bubblewrap
async def test_a_task_of_a_worker_that_is_root_has_no_powers(walled: Bench) -> None:
    result = await walled.result(run_of("grep", "CapEff", "/proc/self/status"))
    assert int(result.stdout.data.split()[1], 16) == 0


def test_what_is_not_there_is_not_hidden(tmp_path: Path) -> None:
    options = options_of(wrapped("bwrap", hides=(tmp_path / "nothing",)), Job(["true"], str(tmp_path / "1.1.1"), {}))
    assert str(tmp_path / "nothing") not in options


async def test_the_sandbox_itself_has_nothing_of_the_jobs_environment(tmp_path: Path) -> None:
    """A library that an earlier task left, named in LD_PRELOAD, would run with all that the agent may do."""
    seen, program = tmp_path / "seen", tmp_path / "walls"
    program.write_text(f"#!/bin/sh\ncat /proc/$$/environ /proc/$$/cmdline > {seen}\n")
    program.chmod(0o700)
    async with Bench(tmp_path, sandbox=wrapped(str(program))) as bench:
        await bench.result(run_of("true", environment={"LD_PRELOAD": "/evil.so", "KEY": "secret"}))
    found = seen.read_bytes()
    assert b"--args" in found
    for word in (b"evil", b"LD_PRELOAD", b"KEY", b"secret", b"PATH="):
        assert word not in found


@needs_bubblewrap
async def test_the_task_has_all_of_it(walled: Bench) -> None:
    code = """
import os
print(os.environ["KEY"], len(os.environ["LONG"]), os.environ["LOOPLINE_JOB"], [fd for fd in range(3, 50)
    if os.path.exists(f"/proc/self/fd/{fd}")])
"""
    run = python(code, environment={"KEY": "--bind", "LONG": "x" * 100_000})
    assert (await walled.result(run)).stdout.data == b"--bind 100000 1 []\n"


@needs_bubblewrap
async def test_an_environment_cannot_tell_the_sandbox_what_to_do(walled: Bench) -> None:
    result = await walled.result(run_of("true", environment={"X": "\0--bind\0/\0/"}))
    assert result.outcome is Outcome.FAILED
    assert "null byte" in result.reason


@needs_bubblewrap
async def test_the_first_process_of_a_sandbox_is_not_left_running(walled: Bench) -> None:
    runs = [run_of("true", task=number) for number in range(1, 6)]
    assert [(await walled.result(run)).reason for run in runs] == [""] * 5


def test_where_there_can_be_none_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(LooplineError, match="there is no bwrap program") as caught:
        open_sandbox(SandboxChoice.BUBBLEWRAP)
    assert "apt install bubblewrap" in caught.value.hint


def test_a_kernel_that_forbids_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: "/bin/false")
    assert sandbox.obstacle() == "bwrap failed with 1"


async def test_a_worker_that_can_have_none_does_not_start(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "LOOPLINE_CONFIG": os.devnull}
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline_worker", "--sandbox", "bubblewrap", "--data-dir", str(tmp_path / "data"),
        env=environment, cwd=tmp_path, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await program.communicate()
    assert program.returncode == 2
    assert b"this computer can have no sandbox: there is no bwrap program\ninstall bubblewrap" in said


NOSY = """
import glob, json, os, socket, sys
secret, agent, writes = sys.argv[1], sys.argv[2], sys.argv[3]
def can(act):
    try: act()
    except (OSError, ValueError): return False
    return True
desk = socket.socket(socket.AF_UNIX)
print(json.dumps({
    "reads the owner's file": can(lambda: open(secret).read()),
    "lists the owner's folder": can(lambda: os.listdir(os.path.dirname(secret)).index(os.path.basename(secret))),
    "writes beside it": can(lambda: open(writes, "w")),
    "reads the agent's environment": can(lambda: open(f"/proc/{agent}/environ").read()),
    "opens the agent's memory": can(lambda: open(f"/proc/{agent}/mem", "r+b")),
    "signals the agent": can(lambda: os.kill(int(agent), 0)),
    "reaches a socket without a file": can(lambda: desk.connect(sys.argv[4])),
    "writes into /etc": can(lambda: open("/etc/loopline-nosy", "w")),
    "leaves a file in the computer's /tmp": can(lambda: open("/tmp/loopline-nosy-" + agent, "w"))
        and sys.argv[5] == "landlock",
    "has capabilities": any(line.split()[1].strip("0") for line in open("/proc/self/status") if "CapEff" in line),
    "writes into its folder": can(lambda: open("mine", "w")) and can(lambda: open(os.environ["TMPDIR"] + "/x", "w")),
}))
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_a_task_owns_nothing_but_its_folder(tmp_path: Path, kind: str) -> None:
    """Whatever it tries, on the owner's files, on the agent, and on a socket such as a desktop's."""
    choice = SandboxChoice(kind)
    if (choice is SandboxChoice.BUBBLEWRAP and without_bubblewrap()) or not landlock.version():
        pytest.skip("this computer has no such sandbox")
    secret = tmp_path / "owner" / "diary"
    secret.parent.mkdir()
    secret.write_text("dear diary")
    name = f"\0loopline-desk-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as desk:
        desk.bind(name)
        desk.listen()
        async with Bench(tmp_path, sandbox=open_sandbox(choice)) as bench:
            arguments = str(secret), str(os.getpid()), str(secret.parent / "planted"), name.replace("\0", "@")
            code = NOSY.replace("sys.argv[4]", "sys.argv[4].replace('@', chr(0))")
            result = await bench.result(python(code, *arguments, kind))
    found = json.loads(result.stdout.data)
    assert [what for what, did in found.items() if did] == ["writes into its folder"]
    assert not (secret.parent / "planted").exists()
    assert not Path(f"/tmp/loopline-nosy-{os.getpid()}").exists()


async def test_a_task_under_landlock_ends_with_all_that_it_started(tmp_path: Path) -> None:
    async with Bench(tmp_path, sandbox=open_sandbox(SandboxChoice.LANDLOCK)) as bench:
        run = run_of("sh", "-c", "setsid sleep 100 & echo > begun; exec sleep 100")
        await bench.begins(run)
        mine = processes_of(bench.folder)
        bench.runner.cancel(run.attempt)
        assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert len(mine) == 2
    assert not any(process.is_running() for process in mine)


async def test_where_namespaces_are_denied_it_is_landlock() -> None:
    """Denied by a filter as of a container, for this kernel here allows them."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "tests/worker/without_namespaces.py"),
        sys.executable, "-m", "loopline_worker.doctor", "--sandbox", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await program.communicate()
    found = json.loads(said)
    assert found["sandbox"] == "landlock"
    assert any(words in found["reason"] for words in ("not permitted", "No permissions", "no bwrap"))


def test_where_there_is_none_the_worker_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert open_sandbox() is None
    assert "may use all that this user may" in caplog.text
    assert "apt install bubblewrap" in caplog.text


def test_what_narrows_the_network_is_not_given_up_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(LooplineError, match="Landlock keeps no network"):
        open_sandbox(network=NetworkAccess.GANGS)


@pytest.mark.parametrize(
    ("access", "wants", "hosts", "has"),
    [("all", False, [], True), ("requested", False, ["a"], False), ("requested", True, [], True),
     ("gangs", True, [], False), ("gangs", False, ["a"], False), ("gangs", True, ["a"], True),
     ("none", True, ["a"], False)],
)  # fmt: skip
def test_who_has_the_network(access: str, wants: bool, hosts: list[str], has: bool, tmp_path: Path) -> None:
    made = Sandbox(Visible(), NetworkAccess(access), Bubblewrap("bwrap", Visible()))
    walls = made.walls(Job(["true"], str(tmp_path), {}, network=wants, hosts=hosts))
    assert walls.places
    assert walls.places[4] is has
    assert walls.reaches == (hosts if access == "gangs" and has else None)


async def test_shared_memory_is_its_own_and_bounded(tmp_path: Path) -> None:
    code = """
import os
try:
    open("/dev/shm/loopline-mine", "w").close()
    print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
except OSError:
    print(0)
"""
    for kind, size in ((SandboxChoice.BUBBLEWRAP, 2**27), (SandboxChoice.LANDLOCK, 0)):
        if kind is SandboxChoice.BUBBLEWRAP and without_bubblewrap():
            continue
        async with Bench(tmp_path / kind, quota=Quota(task_memory_bytes=2**27), sandbox=open_sandbox(kind)) as bench:
            assert (await bench.result(python(code))).stdout.data == f"{size}\n".encode()
    assert not Path("/dev/shm/loopline-mine").exists()


def is_zygote(process: psutil.Process) -> bool:
    try:
        return "zygote" in " ".join(process.cmdline())
    except psutil.ZombieProcess:  # of a test before, not yet waited for
        return False


@needs_bubblewrap
@pytest.mark.parametrize("kind", [SandboxChoice.BUBBLEWRAP, SandboxChoice.LANDLOCK])
async def test_nothing_outlives_all_who_watched_it(tmp_path: Path, kind: SandboxChoice) -> None:
    """All of Loopline is killed at once, and nobody is left to look for a daemon without an environment."""
    async with Bench(tmp_path, sandbox=open_sandbox(kind)) as bench:
        await bench.begins(run_of("sh", "-c", "(setsid env -i sleep 100 &); echo > begun; exec sleep 100"))
        [zygote] = [one for one in psutil.Process().children() if is_zygote(one)]
        below = partial(zygote.children, recursive=True)
        await until(lambda: [name_of(one) for one in below()].count("sleep") == 2)
        tasks = [one for one in below() if one.name() in ("sleep", "sh")]
        watchers = [zygote, *(one for one in below() if one not in tasks)]
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for one in watchers:
                act(one)
        await until(lambda: not any(is_alive(one) for one in tasks))
