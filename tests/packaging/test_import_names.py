"""The import names that an installed Loopline takes: `loopline` and `loopline_*`, so that users keep all others."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USERS_NAMES = ("shared", "master", "worker", "simulator", "migrations")
SCRIPT = """
import shared, master, worker, simulator, migrations
import loopline
import loopline.__main__, loopline_master.__main__, loopline_worker.__main__, loopline_simulator.__main__
print(loopline.Client.__name__, shared.whose, master.whose, worker.whose, simulator.whose, migrations.whose)
"""


def test_modules_beside_a_script_keep_their_names(tmp_path: Path) -> None:
    for name in USERS_NAMES:
        (tmp_path / f"{name}.py").write_text(f"whose = 'users-{name}'\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["Client", *(f"users-{name}" for name in USERS_NAMES)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in the wheel that users install."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


def test_the_wheel_brings_no_other_import_name(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel if ".dist-info/" not in name}
    packages = {"loopline_shared", "loopline_master", "loopline_worker", "loopline_simulator", "loopline_migrations"}
    assert tops == {"loopline", *packages}


def test_the_wheel_ships_the_types_of_each_package(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel if name.endswith("/__init__.py")}
    assert {f"{top}/py.typed" for top in tops} - set(wheel) == set()
