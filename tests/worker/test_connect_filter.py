"""This computer's addresses are closed to tasks except for their own servers: real sockets, both sandboxes."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import NetworkAccess, SandboxChoice
from loopline_worker.supervisor.walls import connect_filter, connect_rules
from tests.sandboxes import without_bubblewrap
from tests.worker.bench import Bench, python

pytestmark = pytest.mark.skipif(not connect_filter.is_possible(), reason="this kernel or container cannot ask")
KINDS = ["bubblewrap", "landlock"]
TRY = """
import json, os, socket, sys
port, wild, lan, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
found = {}
def connects(address, family=socket.AF_INET, kind=socket.SOCK_STREAM, wait_s=5.0):
    with socket.socket(family, kind) as it:
        it.settimeout(wait_s)
        it.connect(address)
    return True
def attempt(name, act):
    try: found[name] = act()
    except OSError as error: found[name] = type(error).__name__
def serves(family, address):
    with socket.socket(family) as it:
        it.bind(address)
        it.listen()
        return connects(it.getsockname(), family)
def decoy():
    with socket.socket() as it:
        it.bind(("127.0.0.2", port))
        it.listen()
        return connects(("127.0.0.1", port))
def fast_open():
    with socket.socket() as it:
        return it.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
attempt("the owner's service", lambda: connects(("127.0.0.1", port)))
attempt("the same, waiting for it", lambda: connects(("127.0.0.1", port), wait_s=None))
attempt("nobody's address", lambda: connects(("0.0.0.0", port)))
attempt("as IPv6", lambda: connects(("::ffff:127.0.0.1", port), socket.AF_INET6))
attempt("one that listens everywhere", lambda: connects(("127.0.0.3", wild)))
attempt("the same at its address in the network", lambda: connects((lan, wild)))
attempt("the same, as IPv6", lambda: connects(("::ffff:" + lan, wild), socket.AF_INET6))
attempt("behind a decoy of one's own", decoy)
attempt("by sending at once", fast_open)
attempt("a desktop's socket without a file", lambda: connects("\\0loopline-desk-" + sys.argv[5], socket.AF_UNIX))
attempt("another's socket in a file", lambda: connects(file, socket.AF_UNIX))
print(json.dumps(found))
found.clear()
attempt("its own service", lambda: serves(socket.AF_INET, ("127.0.0.1", 0)))
attempt("its own socket without a file", lambda: serves(socket.AF_UNIX, "\\0mine-" + sys.argv[5] + sys.argv[6]))
attempt("its own socket in a file", lambda: serves(socket.AF_UNIX, "mine"))
attempt("its own service in the network", lambda: serves(socket.AF_INET, (lan, 0)))
attempt("datagrams", lambda: connects(("127.0.0.1", port), kind=socket.SOCK_DGRAM))
print(json.dumps(found))
"""


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[list[str]]:
    """Servers of other programs on this computer, as arguments for ``TRY``."""
    with ExitStack() as stack:
        here, everywhere = (stack.enter_context(socket.create_server((host, 0))) for host in ("127.0.0.1", ""))
        desk, file = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        for server, name in ((desk, f"\0loopline-desk-{os.getpid()}"), (file, str(tmp_path / "file"))):
            server.bind(name)
            server.listen()
        ports = [str(server.getsockname()[1]) for server in (here, everywhere)]
        yield [*ports, own_address(), str(tmp_path / "file"), str(os.getpid())]


def own_address() -> str:
    """Return an address of this computer outside its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        try:
            it.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this computer has no network")
        return str(it.getsockname()[0])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_reaches_the_network_and_its_own_services_and_no_others(
    tmp_path: Path, owners: list[str], kind: str
) -> None:
    if kind == "bubblewrap" and without_bubblewrap():
        pytest.skip("no bubblewrap here")
    walls = open_sandbox(SandboxChoice(kind), NetworkAccess.ALL)
    async with Bench(tmp_path, sandbox=walls) as bench:
        result = await bench.result(python(TRY, *owners, kind))
    others, own = map(json.loads, result.stdout.data.splitlines())
    assert True not in others.values(), others
    assert len(others) == 11
    assert set(own.values()) == {True}, own


ELSEWHERE = """
import errno, socket, sys
for address in sys.argv[1:]:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as it:
        it.setblocking(False)
        print(it.connect_ex((address, 9)) == errno.EACCES)
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_link_local_and_metadata_addresses_are_refused_and_others_are_not(tmp_path: Path, kind: str) -> None:
    if kind == "bubblewrap" and without_bubblewrap():
        pytest.skip("no bubblewrap here")
    async with Bench(tmp_path, sandbox=open_sandbox(SandboxChoice(kind), NetworkAccess.ALL)) as bench:
        closed, others = ["169.254.169.254", "169.254.1.1", "fe80::1", "fd00:ec2::254"], ["192.0.2.1", "2001:db8::1"]
        result = await bench.result(python(ELSEWHERE, *closed, *others))
    assert result.stdout.data.split() == [b"True"] * len(closed) + [b"False"] * len(others)


@pytest.mark.parametrize("kind", KINDS)
async def test_setting_opens_addresses_of_this_computer(tmp_path: Path, owners: list[str], kind: str) -> None:
    if kind == "bubblewrap" and without_bubblewrap():
        pytest.skip("no bubblewrap here")
    script = """
import socket, sys
for address in sys.argv[2:]:
    socket.create_connection((address, int(sys.argv[1])), 5).close()
"""
    _, wild, lan, *_ = owners
    walls = open_sandbox(SandboxChoice(kind), NetworkAccess.ALL, opens=[lan, "127.0.0.1"])
    async with Bench(tmp_path, sandbox=walls) as bench:
        result = await bench.result(python(script, wild, lan, "127.0.0.3"))
        assert result.exit_code == 0, result.stderr
        assert walls
        walls.opens = ()
        assert (await bench.result(python(script, wild, lan, task=2))).exit_code == 1


def test_jumps_of_the_filter_end_at_the_right_lines() -> None:
    """For all architectures; calls of 32-bit programs are checked by separate lines of the filter."""
    for machine in ("x86_64", "aarch64"):
        lines = connect_filter._program(machine)
        for at, (code, yes, no, _) in enumerate(lines):
            if code in (connect_filter._EQUAL, connect_filter._AT_LEAST, connect_filter._ANY_BIT):
                assert at + 1 + max(yes, no) < len(lines)
        native = lines[1 + 1 + lines[1][1]]
        assert native == (connect_filter._LOAD, 0, 0, 0), (
            "a native call continues at its number, past those of other architectures"
        )


def test_addresses_of_the_loopback() -> None:
    def of(ip: str) -> bytes:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        head = family.to_bytes(2, sys.byteorder) + (80).to_bytes(2, "big")
        return head + (bytes(4) if ":" in ip else b"") + socket.inet_pton(family, ip)

    assert connect_rules._is_local(socket.inet_aton("127.9.9.9"))
    assert not connect_rules._is_local(socket.inet_aton("192.0.2.1"))
    there = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"]
    assert all(connect_rules._is_loopback(of(ip)) for ip in there)
    assert not any(
        connect_rules._is_loopback(of(ip)) for ip in ["10.0.0.1", "128.0.0.1", "fe80::1", "::ffff:10.0.0.1"]
    )
