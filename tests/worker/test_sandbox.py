"""Tasks in a sandbox: visible and writable files; and computers without a sandbox."""

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
from loopline_worker.supervisor import requests
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
async def test_task_can_write_only_to_its_scratch_folder(walled: Bench, tmp_path: Path) -> None:
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
    assert not Path("/tmp/probe").exists()  # its /tmp was private


@needs_bubblewrap
async def test_task_cannot_see_the_owners_files_and_processes(walled: Bench) -> None:
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
async def test_task_has_no_network(walled: Bench) -> None:
    assert (await walled.result(python(INTERFACES, network=True))).stdout.data == b"['lo']\n"


@needs_bubblewrap
@pytest.mark.parametrize("asks", [True, False])
async def test_task_has_the_network_on_request_if_the_worker_allows_it(tmp_path: Path, asks: bool) -> None:
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.REQUESTED)
    async with Bench(tmp_path, sandbox=walls) as bench:
        result = await bench.result(run_of("readlink", "/proc/self/ns/net", network=asks))
    assert (result.stdout.data.strip().decode() == str(Path("/proc/self/ns/net").readlink())) is asks


@needs_bubblewrap
@pytest.mark.parametrize(
    ("is_service", "options", "network"),
    [
        (True, {}, NetworkAccess.REQUESTED),
        (False, {}, NetworkAccess.ALL),
        (True, {"sandbox": SandboxChoice.LANDLOCK}, NetworkAccess.ALL),
        (True, {"sandbox_network": NetworkAccess.ALL}, NetworkAccess.ALL),
        (False, {"sandbox_network": NetworkAccess.NONE}, NetworkAccess.NONE),
    ],
)
def test_tasks_of_the_system_service_have_a_network_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_service: bool, options: dict[str, Any], network: NetworkAccess
) -> None:
    """A stand-in for the service's zygote, which needs root; tests/live/test_systemd.py has a real one."""
    monkeypatch.setattr(requests, "inherited", lambda: object() if is_service else None)
    found = parts._sandbox(WorkerSettings(data_dir=tmp_path, **options), find_python(None))
    assert found
    assert found._network is network


@needs_bubblewrap
async def test_failure_without_a_network_tells_the_job_to_request_it(tmp_path: Path) -> None:
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.REQUESTED)
    connects = "import socket; socket.create_connection(('192.0.2.1', 80), 10)"
    async with Bench(tmp_path, sandbox=walls) as bench:
        offline = await bench.result(python(connects, network=False))
        other = await bench.result(python("raise SystemExit('no licence')", task=2, network=False))
    assert offline.reason.endswith("(it had no network: submit with `--network`, or `requires: {network: true}`)")
    assert offline.reason.startswith("OSError: [Errno 101] Network is unreachable")
    assert other.reason == "no licence"


@needs_bubblewrap
async def test_daemons_die_with_the_sandbox(walled: Bench) -> None:
    run = run_of("sh", "-c", "setsid sleep 100 & echo > begun; exec sleep 100")
    await walled.begins(run)
    await until(lambda: len(processes_of(walled.folder)) == 2)  # either may be in the middle of an exec
    mine = processes_of(walled.folder)
    walled.runner.cancel(run.attempt)
    assert (await walled.end_of(run)).outcome is Outcome.CANCELLED
    assert not any(psutil.pid_exists(process.pid) and process.is_running() for process in mine)


@needs_bubblewrap
async def test_exit_code_of_a_sandboxed_task_is_reported(walled: Bench) -> None:
    result = await walled.result(run_of("sh", "-c", "echo out; exit 3"))
    assert (result.outcome, result.exit_code, result.stdout.data) == (Outcome.FAILED, 3, b"out\n")


def test_folders_of_a_home_can_be_shown(tmp_path: Path) -> None:
    options = options_of(wrapped("bwrap", shows=(tmp_path,)), Job(["true"], str(tmp_path / "1.1.1"), {}))
    at = options.index(str(tmp_path))
    assert options[at - 1 : at + 2] == ["--ro-bind-try", str(tmp_path), str(tmp_path)]


def test_innermost_shown_or_hidden_folder_takes_precedence(tmp_path: Path) -> None:
    data, python = tmp_path / "data", tmp_path / "data" / "python"
    python.mkdir(parents=True)
    walls = wrapped("bwrap", shows=(python, tmp_path), hides=(data,))
    options = options_of(walls, Job([], "", {}, room=str(data / "scratch" / "session")))
    outer, inner, own = (options.index(str(folder)) for folder in (tmp_path, python, data / "scratch"))
    assert options[options.index(str(data)) - 1] == "--tmpfs"
    assert outer < options.index(str(data)) < inner < own


@needs_bubblewrap
async def test_names_and_certificates_are_available_with_the_network(tmp_path: Path) -> None:
    """The target of /etc/resolv.conf, in /run on many systems, is shown in its place; a folder as it is now."""
    async with Bench(tmp_path / "bench", sandbox=open_sandbox(etc=tmp_path / "etc")) as bench:
        names = await bench.result(run_of("cat", "/etc/resolv.conf"))
        certificates = await bench.result(run_of("sh", "-c", "ls -A /etc/ssl/certs | wc -l", task=2))
    assert names.stdout.data == Path("/etc/resolv.conf").read_bytes()
    assert int(certificates.stdout.data) == len(list(Path("/etc/ssl/certs").iterdir()))
    assert not list((tmp_path / "etc" / "ssl" / "certs").iterdir())


@needs_bubblewrap
async def test_other_content_of_the_data_folder_is_hidden(tmp_path: Path) -> None:
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, hides=[Path("/usr/share")])  # stands in for the data folder
    async with Bench(tmp_path, sandbox=walls) as bench:
        assert (await bench.result(run_of("ls", "-A", "/usr/share"))).stdout.data == b""


@needs_bubblewrap
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_token_is_hidden_at_all_its_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object
) -> None:
    """Also behind a link, in the settings file, in a master's data folder, and after unmounting the cover."""
    token, shown = "ll_0badcafe_secret", tmp_path / "shown"  # outside of any home, like /srv
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
async def test_token_cannot_be_read_from_the_agents_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKEN", "ll_0badcafe_secret")  # of the agent's process and its children
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
    assert int(count) >= 3, "the task did search"
    assert "ll_0badcafe" not in found


@needs_bubblewrap
async def test_task_of_a_root_worker_has_no_capabilities(walled: Bench) -> None:
    result = await walled.result(run_of("grep", "CapEff", "/proc/self/status"))
    assert int(result.stdout.data.split()[1], 16) == 0


def test_missing_folder_is_not_hidden(tmp_path: Path) -> None:
    options = options_of(wrapped("bwrap", hides=(tmp_path / "nothing",)), Job(["true"], str(tmp_path / "1.1.1"), {}))
    assert str(tmp_path / "nothing") not in options


async def test_sandbox_program_gets_no_variables_of_the_job(tmp_path: Path) -> None:
    """A library named in LD_PRELOAD would run with the permissions of the agent."""
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
async def test_task_gets_all_variables_of_the_job(walled: Bench) -> None:
    code = """
import os
print(os.environ["KEY"], len(os.environ["LONG"]), os.environ["LOOPLINE_JOB"], [fd for fd in range(3, 50)
    if os.path.exists(f"/proc/self/fd/{fd}")])
"""
    run = python(code, environment={"KEY": "--bind", "LONG": "x" * 100_000})
    assert (await walled.result(run)).stdout.data == b"--bind 100000 1 []\n"


@needs_bubblewrap
async def test_variables_cannot_change_sandbox_options(walled: Bench) -> None:
    result = await walled.result(run_of("true", environment={"X": "\0--bind\0/\0/"}))
    assert result.outcome is Outcome.FAILED
    assert "null byte" in result.reason


@needs_bubblewrap
async def test_first_process_of_a_sandbox_does_not_keep_running(walled: Bench) -> None:
    runs = [run_of("true", task=number) for number in range(1, 6)]
    assert [(await walled.result(run)).reason for run in runs] == [""] * 5


def test_required_sandbox_that_is_unavailable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(LooplineError, match="there is no bwrap program") as caught:
        open_sandbox(SandboxChoice.BUBBLEWRAP)
    assert "apt install bubblewrap" in caught.value.hint


def test_kernel_that_forbids_namespaces_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: "/bin/false")
    assert sandbox.obstacle() == "bwrap failed with 1"


async def test_worker_does_not_start_without_its_required_sandbox(tmp_path: Path) -> None:
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
async def test_task_cannot_change_files_outside_its_folder(tmp_path: Path, kind: str) -> None:
    """Attempts on the owner's files, on the agent, and on a socket such as a desktop's."""
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


async def test_task_under_landlock_ends_with_its_descendants(tmp_path: Path) -> None:
    async with Bench(tmp_path, sandbox=open_sandbox(SandboxChoice.LANDLOCK)) as bench:
        run = run_of("sh", "-c", "setsid sleep 100 & echo > begun; exec sleep 100")
        await bench.begins(run)
        await until(lambda: len(processes_of(bench.folder)) == 2)  # either may be in the middle of an exec
        mine = processes_of(bench.folder)
        bench.runner.cancel(run.attempt)
        assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert not any(process.is_running() for process in mine)


async def test_landlock_is_used_if_namespaces_are_denied() -> None:
    """Denied by a filter like a container's, since this kernel allows them."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "tests/worker/without_namespaces.py"),
        sys.executable, "-m", "loopline_worker.doctor", "--sandbox", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await program.communicate()
    found = json.loads(said)
    assert found["sandbox"] == "landlock"
    assert any(words in found["reason"] for words in ("not permitted", "No permissions", "no bwrap"))


def test_missing_sandbox_is_logged_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert open_sandbox() is None
    assert "may use all that this user may" in caplog.text
    assert "apt install bubblewrap" in caplog.text


def test_network_restriction_without_a_sandbox_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(LooplineError, match="Landlock keeps no network"):
        open_sandbox(network=NetworkAccess.GANGS)


@pytest.mark.parametrize(
    ("access", "wants", "hosts", "has"),
    [("all", False, [], True), ("requested", False, ["a"], False), ("requested", True, [], True),
     ("gangs", True, [], False), ("gangs", False, ["a"], False), ("gangs", True, ["a"], True),
     ("none", True, ["a"], False)],
)  # fmt: skip
def test_network_access_follows_setting_and_request(
    access: str, wants: bool, hosts: list[str], has: bool, tmp_path: Path
) -> None:
    made = Sandbox(Visible(), NetworkAccess(access), Bubblewrap("bwrap", Visible()))
    walls = made.walls(Job(["true"], str(tmp_path), {}, network=wants, hosts=hosts))
    assert walls.places
    assert walls.places[4] is has
    assert walls.reaches == (hosts if access == "gangs" and has else None)


async def test_shared_memory_is_private_and_limited(tmp_path: Path) -> None:
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


@needs_bubblewrap
@pytest.mark.parametrize("kind", [SandboxChoice.BUBBLEWRAP, SandboxChoice.LANDLOCK])
async def test_tasks_end_when_all_loopline_processes_are_killed(tmp_path: Path, kind: SandboxChoice) -> None:
    """All Loopline processes are killed at once, so none is left to find a daemon without an environment."""
    async with Bench(tmp_path, sandbox=open_sandbox(kind)) as bench:
        await bench.begins(run_of("sh", "-c", "(setsid env -i sleep 100 &); echo > begun; exec sleep 100"))
        assert bench.launcher._process
        zygote = psutil.Process(bench.launcher._process.pid)
        below = partial(zygote.children, recursive=True)
        await until(lambda: [name_of(one) for one in below()].count("sleep") == 2)
        tasks = [one for one in below() if one.name() in ("sleep", "sh")]
        watchers = [zygote, *(one for one in below() if one not in tasks)]
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for one in watchers:
                act(one)
        await until(lambda: not any(is_alive(one) for one in tasks))
