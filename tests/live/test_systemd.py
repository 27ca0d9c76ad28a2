"""Worker and master as services of a real systemd in a container: installed, attacked, killed and removed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from tests.live.booted import HOME, Computer, booted, missing

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(bool(missing()), reason=missing())]
MASTER = "LOOPLINE_MASTER=http://127.0.0.1:7461 LOOPLINE_TOKEN_FILE=/srv/m/tokens/admin"
UNIT = "loopline-worker.service"
LAST_JOB = "import json, sys; print(max(job['id'] for job in json.load(sys.stdin)))"
SCRATCH_BYTES = 10_000_000
SPY = """
id -un; grep CapEff /proc/self/status
worker=/var/lib/loopline
for path in $worker/.config/loopline/membership.json $worker/worker/owner-page /home/ann/private; do
    if cat $path 2>/dev/null; then echo reached $path; fi
done
mkdir -m 700 closed; touch closed/one
"""
STUBBORN = "trap '' TERM; (setsid env -i sh -c 'echo $$ > /dev/null; exec sleep 6543') & exec sleep 6543"

WHEEL = """
import zipfile
with zipfile.ZipFile("/opt/wheels/greeting-1.0-py3-none-any.whl", "w") as archive:
    archive.writestr("greeting.py", "HELLO = 'hello'")
    archive.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0")
    archive.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any")
    archive.writestr("greeting-1.0.dist-info/RECORD", "")
"""
GREETS = """
import getpass, greeting, time
print(greeting.HELLO, getpass.getuser())
time.sleep(2)
try: open(greeting.__file__, "a")
except OSError as error: print(error.strerror)
"""
CALLS = """
from loopline import Executor
def greet(number):
    import getpass, greeting, pathlib, time
    pathlib.Path("mine").touch()
    time.sleep(1)
    return greeting.HELLO, getpass.getuser()
with Executor(requirements=["greeting"]) as executor:
    print(*sorted({future.result(60) for future in [executor.submit(greet, number) for number in range(4)]}))
"""


@pytest.fixture(scope="module")
def computer() -> Iterator[Computer]:
    with booted() as computer:
        computer.says("systemd-run --quiet --unit=master loopline master --port 7461 --data-dir /srv/m")
        computer.until("test -s /srv/m/tokens/admin && curl -sf http://127.0.0.1:7461/healthz")
        computer.says("useradd --create-home ann && echo secret > /home/ann/private && chown ann /home/ann/private")
        computer.says("chmod 755 /home/ann; chmod 600 /home/ann/private")
        yield computer


def join_line(computer: Computer) -> str:
    said = computer.says(f"{MASTER} loopline token join --address http://127.0.0.1:7461 --json")
    return str(json.loads(said)["line"])


def until_workers_are(computer: Computer, number: int) -> None:
    connected = f"{MASTER} loopline workers --json | grep -c '\"connected\": *true'"
    computer.until(f'test "$({connected})" = {number}')


def submitted(computer: Computer, script: str, *options: str) -> str:
    """Submit a shell script as a job of one task; return the job's number."""
    computer.run(f"{MASTER} loopline submit {shlex.join(options)} -- sh -c {shlex.quote(script)}")
    return computer.says(f"{MASTER} loopline jobs --json | python3 -c {shlex.quote(LAST_JOB)}")


def test_system_service_has_separate_users_for_tasks(computer: Computer) -> None:
    computer.says(f"loopline service install --system -- --policy always --scratch-limit-bytes {SCRATCH_BYTES}")
    computer.says(f"runuser -u loopline -- env HOME=/var/lib/loopline {join_line(computer)}")
    computer.says(f"systemctl restart {UNIT}")
    until_workers_are(computer, 1)

    name, powers = said_by_spy(computer)
    assert name.startswith("loopline-task-")
    assert int(powers.split()[1], 16) == 0
    agent, *_ = computer.says("pgrep -u loopline -f 'm loopline_worker'").split()
    assert "CapPrm:\t0000000000000000" in computer.says(f"cat /proc/{agent}/status")
    until_no_folder_is_left(computer, "/var/lib/loopline/worker/scratch")
    sees = "readlink /proc/self/ns/net"
    assert said_by_task(computer, sees) != [computer.says(sees).strip()], "no network unless the job requests it"

    hides = "mkdir -m 700 closed; for file in one two; do head -c 9000000 /dev/zero > closed/$file; done; sleep 99"
    job = submitted(computer, hides, "--wait", "--max-attempts", "1")
    assert "on disk" in computer.says(f"{MASTER} loopline explain {job}.1")

    kill_all_while_a_task_runs(computer, "loopline")
    until_workers_are(computer, 1)  # systemd has restarted it
    until_no_folder_is_left(computer, "/var/lib/loopline/worker/scratch")

    assert computer.says("loopline service status --system").startswith("installed and running")
    computer.says("loopline service uninstall --system")
    assert computer.run(f"systemctl cat {UNIT}").returncode != 0
    assert computer.run("ls /etc/sysusers.d/loopline.conf").returncode != 0
    until_workers_are(computer, 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["auto", "off"])
def test_tasks_of_all_users_share_read_only_packages(computer: Computer, kind: str) -> None:
    """An environment built by one slot's user belongs to the worker afterwards; functions get their own folder."""
    computer.says(f"mkdir -p /opt/wheels; python3 -c {shlex.quote(WHEEL)}; echo greeting > /root/packages")
    computer.says("systemctl set-environment UV_OFFLINE=1 UV_FIND_LINKS=/opt/wheels")
    data = f"/var/lib/loopline/packages-{kind}"
    options = f"--policy always --slots 2 --sandbox {kind} --sandbox-show /opt/wheels --data-dir {data}"
    computer.says(f"loopline service install --system -- {options}")
    computer.says(f"runuser -u loopline -- env HOME=/var/lib/loopline {join_line(computer)}")
    computer.says(f"systemctl restart {UNIT}")
    until_workers_are(computer, 1)

    python = f"python3 -c {shlex.quote(GREETS)}"
    job = submitted(computer, python, "--requirements", "/root/packages", "--wait", "--array", "1-2")
    said = [computer.says(f"{MASTER} loopline logs {job}.{task}").splitlines() for task in (1, 2)]
    assert all(said), computer.says(f"{MASTER} loopline explain {job}.1; journalctl -n 20 -u {UNIT}")
    assert {line[0] for line in said} <= {f"hello loopline-task-{number}" for number in range(1, 9)}
    assert said[0][0] != said[1][0], "two slots in use at once"
    assert {line[1] for line in said} <= {"Permission denied", "Read-only file system"}
    assert set(computer.says(f"find {data}/environments -printf '%u\\n'").split()) == {"loopline"}
    called = computer.says(f"cd /; {MASTER} {HOME}/bin/python3 -P -c {shlex.quote(CALLS)}")
    assert called.count("hello") == 2, "the function ran in both slots"
    computer.says(f"systemctl restart {UNIT}")
    again = submitted(computer, python, "--requirements", "/root/packages", "--wait")
    assert computer.says(f"{MASTER} loopline logs {again}.1").startswith("hello")
    computer.says("loopline service uninstall --system")
    until_workers_are(computer, 0)


def test_user_service_runs_only_as_that_user(computer: Computer) -> None:
    ann = "XDG_RUNTIME_DIR=/run/user/$(id -u ann)"
    ann = f"runuser -u ann -- env --chdir=/home/ann HOME=/home/ann {ann}"
    computer.says("loginctl enable-linger ann")
    computer.until("test -S /run/user/$(id -u ann)/bus")
    computer.says(f"{ann} {join_line(computer)} --service")
    computer.says(f"{ann} loopline service install -- --policy always")
    until_workers_are(computer, 1)

    name, powers = said_by_spy(computer)
    assert name == "ann"
    assert int(powers.split()[1], 16) == 0
    scratch = "/home/ann/.local/state/loopline/worker/scratch"
    until_no_folder_is_left(computer, scratch)

    kill_all_while_a_task_runs(computer, "ann")
    until_workers_are(computer, 1)
    until_no_folder_is_left(computer, scratch)

    computer.says(f"{ann} loopline leave")
    assert computer.run(f"{ann} systemctl --user cat {UNIT}").returncode != 0


def test_system_service_detects_the_active_user(computer: Computer) -> None:
    """The reporter is started as by a desktop: in ann's session, beside her X server."""
    idle = "--policy when-idle --idle-s 2 --reserve-memory-bytes 0"
    computer.says(f"loopline service install --system -- {idle} --data-dir /var/lib/loopline/other")
    computer.says(f"runuser -u loopline -- env HOME=/var/lib/loopline {join_line(computer)}")
    computer.says(f"systemctl restart {UNIT}")
    computer.until("test -S /run/loopline/sessions")
    assert "logged in" in computer.run("runuser -u loopline-task-1 -- loopline owner pause 1h").stderr

    session = "-p PAMName=login -E XDG_SESSION_TYPE=x11 -E XDG_SESSION_CLASS=user -E DISPLAY=:7"
    reporter = computer.says("sed -n s/^Exec=//p /etc/xdg/autostart/loopline-reporter.desktop")
    computer.says(f"systemd-run --quiet --unit=desk --uid=ann {session} Xvfb :7 -nolisten tcp")
    owner = "runuser -l ann -c 'loopline owner --json'"
    computer.until(f"{owner} | grep -q 'somebody is using'")
    computer.says(f"systemd-run --quiet --unit=reporter --uid=ann -E DISPLAY=:7 {reporter}")
    computer.until(f"{owner} | grep -q '\"in_use\": false'")
    computer.says("DISPLAY=:7 runuser -u ann -- xdotool mousemove 7 7")
    computer.until(f"{owner} | grep -q '\"in_use\": true'", within_s=10)
    computer.says("runuser -l ann -c 'loopline owner pause 1h'")
    computer.says("systemctl stop reporter desk")
    computer.says("loopline service uninstall --system")
    assert computer.run("ls /etc/xdg/autostart/loopline-reporter.desktop").returncode != 0


def test_master_is_restarted_after_a_crash_and_at_boot(computer: Computer) -> None:
    """Must be the last test here: it ends the processes that other tests started by hand."""
    address, data = "http://127.0.0.1:7471", "/var/lib/loopline-master"
    ask = f"LOOPLINE_MASTER={address} LOOPLINE_TOKEN_FILE={data}/tokens/admin loopline"
    computer.says("loopline service install --master --system -- --port 7471")
    computer.until(f"curl -sf {address}/healthz")
    assert computer.says("systemctl show -p User --value loopline-master") == "loopline-master"
    assert computer.says(f"stat -c %a:%U {data}") == "700:loopline-master"
    computer.says(f"{ask} submit -- true")
    assert computer.says("loopline service status --master --system").startswith("installed and running")

    before = computer.says("systemctl show -p MainPID --value loopline-master")
    computer.says(f"kill -9 {before}")
    computer.until(f"curl -sf {address}/healthz && ! kill -0 {before} 2>/dev/null")
    computer.says("systemctl isolate --no-block rescue.target")
    computer.until("! systemctl is-active loopline-master")
    computer.says("systemctl isolate --no-block multi-user.target")  # like booting
    computer.until(f"curl -sf {address}/healthz")
    assert len(json.loads(computer.says(f"{ask} jobs --json"))) == 1

    computer.says("loopline service uninstall --master --system")
    assert computer.run("systemctl cat loopline-master").returncode != 0
    assert computer.run(f"{ask} jobs").returncode == 5


def said_by_spy(computer: Computer) -> list[str]:
    """Return the output of a task that tries to reach other users' data: it should print only its own user."""
    return said_by_task(computer, SPY)


def said_by_task(computer: Computer, script: str) -> list[str]:
    job = submitted(computer, script, "--wait")
    return computer.says(f"{MASTER} loopline logs {job}.1").splitlines()


def kill_all_while_a_task_runs(computer: Computer, user: str) -> None:
    """Kill agent, zygote and supervisors at once, and check that the task's processes end within 1 s."""
    job = submitted(computer, STUBBORN)
    computer.until("test $(pgrep -c -x sleep) -ge 2")
    pids = computer.says(f"pgrep -u {user} -f 'loopline_worker|service.py'")
    computer.says(f"kill -9 {' '.join(pids.split())}")
    computer.until("! pgrep -x sleep", within_s=1)
    computer.says(f"{MASTER} loopline cancel {job}")


def until_no_folder_is_left(computer: Computer, scratch: str) -> None:
    computer.until(f'test -d {scratch} && test -z "$(ls {scratch})"')
