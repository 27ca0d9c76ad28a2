"""What a release is made of installs anywhere, and runs from the wheel alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import loopline

ROOT = Path(__file__).parents[2]
INSTALLERS = {
    "pip": [[sys.executable, "-m", "venv", "{env}"], ["{env}/bin/python", "-m", "pip", "install", "-q", "{what}"]],
    "uv": [
        [sys.executable, "-m", "uv", "venv", "-q", "{env}"],
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", "{env}/bin/python", "{what}"],
    ],
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist and the wheel of this tree, by the ends of their names."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return {file.suffix: file for file in folder.iterdir()}


def test_the_version_is_the_changelogs_first() -> None:
    heading = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heading
    assert heading[1] == loopline.__version__.removesuffix(".dev0")


@pytest.mark.campaign
def test_both_have_what_a_user_needs_and_nothing_of_this_computer(dist: dict[str, Path]) -> None:
    with zipfile.ZipFile(dist[".whl"]) as wheel:
        names = wheel.namelist()
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith("METADATA"))
    assert "loopline/demo/tasks/mandelbrot.py" in names
    assert f"Version: {loopline.__version__}\n" in metadata
    with tarfile.open(dist[".gz"]) as sdist:
        sources = [name.partition("/")[2] for name in sdist.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "mkdocs.yml", "docs/tutorial.md"} <= set(
        sources
    )
    assert not [name for name in sources if name.startswith((".venv", ".git/", "dist/"))]


@pytest.mark.campaign
@pytest.mark.parametrize(("installer", "kind"), [("pip", ".whl"), ("uv", ".whl"), ("uv", ".gz")])
@pytest.mark.timeout(600)
def test_it_installs_and_the_demo_runs(installer: str, kind: str, dist: dict[str, Path], tmp_path: Path) -> None:
    environment = tmp_path / "env"
    for command in INSTALLERS[installer]:
        words = [word.format(env=environment, what=f"{dist[kind]}[master,worker]") for word in command]
        subprocess.run(words, check=True, cwd=tmp_path)
    users = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOOPLINE"))}
    demo = subprocess.run(
        [environment / "bin" / "loopline", "demo", "--json"],
        env=users,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr.decode()
    assert json.loads(demo.stdout)["passing"]["passings"] == 0
    assert (tmp_path / "loopline-demo" / "mandelbrot.png").read_bytes().startswith(b"\x89PNG")
