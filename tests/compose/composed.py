"""A grid of docker-compose.yml under a name of its own, on a real container engine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener
from uuid import uuid4

import pytest

from loopline_shared.rest.trust import trusting

ROOT = Path(__file__).parents[2]
TASKS = 8


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Grid:
    """One project of the compose file, under a name and on a port of its own."""

    project: str = field(default_factory=lambda: f"loopline-test-{uuid4().hex[:8]}")
    port: int = field(default_factory=free_port)
    more: dict[str, str] = field(default_factory=dict)
    """Variables of the environment, which the compose file hands on."""

    @cached_property
    def tool(self) -> list[str]:
        return _compose_tool()

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.tool, "--project-name", self.project, *arguments],
            cwd=ROOT, env={**os.environ, "LOOPLINE_PORT": str(self.port), **self.more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def must(self, *arguments: str) -> str:
        done = self.compose(*arguments)
        assert done.returncode == 0, f"compose {' '.join(arguments)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self.compose("exec", "-T", "--user", "loopline", service, *command)

    @cached_property
    def token(self) -> str:
        return self.must("exec", "-T", "master", "cat", "/data/tokens/admin").strip()

    @cached_property
    def direct(self) -> OpenerDirector:
        """What opens addresses on this machine, whatever proxy is set, and knows the master by its CA."""
        ca = self.must("exec", "-T", "master", "cat", "/data/tokens/ca.pem")
        return build_opener(ProxyHandler({}), HTTPSHandler(context=trusting(ca)))

    def fetch(self, path: str, body: object = None, port: int = 0) -> str:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"https://127.0.0.1:{port or self.port}{path}", data, headers)
        with self.direct.open(request, timeout=10) as answer:
            content: bytes = answer.read()
        return content.decode()

    def api(self, path: str, body: object = None, port: int = 0) -> Any:
        return json.loads(self.fetch(f"/api/v1{path}", body, port))

    def until(self, what: str, holds: Callable[[], bool], within_s: float = 120) -> None:
        """Wait for a fact about the master, which may be away for a moment."""
        deadline = time.monotonic() + within_s
        while not _answered(holds):
            if time.monotonic() > deadline:
                logs = self.compose("logs", "--tail", "30").stdout
                pytest.fail(f"not within {within_s:g} s: {what}\n{logs}")
            time.sleep(0.5)

    def is_healthy(self) -> bool:
        return bool(self.fetch("/healthz"))

    def serves(self, port: int = 0) -> bool:
        """True if a master works there, False if one waits; URLError if none answers."""
        try:
            return bool(self.api("/whoami", port=port))
        except HTTPError as error:
            if error.code != 503:
                raise
            return False

    def connected(self) -> int:
        return sum(worker["connected"] for worker in self.api("/workers")["items"])

    def outputs(self, job: int, port: int = 0) -> list[str]:
        return [self.fetch(f"/api/v1/jobs/{job}/tasks/{n}/stdout", port=port) for n in range(1, TASKS + 1)]

    def down(self) -> None:
        self.compose("down", "--volumes", "--rmi", "local", "--timeout", "5")


def _compose_tool() -> list[str]:
    """The compose command here, where an engine answers it; else the test fails with what to do."""
    for tool in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(tool[0]) and _runs([*tool, "version"]):
            break
    else:
        pytest.fail("no compose command: install Docker with its compose plugin, or docker-compose 1.29")
    if not _runs(["docker", "info", "--format", "{{.ServerVersion}}"]):
        pytest.fail("no container engine answers: start Docker (`docker info` says why), then run this again")
    return tool


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _answered(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except (URLError, ConnectionError, TimeoutError):
        return False
