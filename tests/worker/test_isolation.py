"""Code outside the agent process runs with the standard library only, as the import contracts require."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "worker" / "loopline_worker"
ISOLATED = {"supervisor": WORKER / "supervisor", "functions.program": WORKER / "functions" / "program"}
MODULES = [
    ".".join(file.relative_to(WORKER.parent).with_suffix("").parts)
    for folder in ISOLATED.values()
    for file in folder.rglob("*.py")
]


def run_isolated(code: str) -> None:
    """Run ``code`` as the zygote runs: without the environment and without installed packages."""
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd="/", timeout=60)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no supervisors")
def test_every_module_imports_without_installed_packages() -> None:
    """Each in a process of its own, forked before any is imported."""
    run_isolated(f"""
import importlib, os, sys
sys.path.append({str(WORKER.parent)!r})
for module in {MODULES!r}:
    if os.fork() == 0:
        importlib.import_module(module)
        os._exit(0)
    assert os.wait()[1] == 0, module
""")


def test_the_call_loop_imports_from_a_folder_of_its_own(tmp_path: Path) -> None:
    """An interpreter in a sandbox sees the copy in the task's folder only."""
    shutil.copyfile(ISOLATED["functions.program"] / "call_loop.py", tmp_path / "copied.py")
    run_isolated(f"import sys; sys.path.append({str(tmp_path)!r}); import copied")


@pytest.mark.parametrize("package", ISOLATED)
def test_the_contract_forbids_every_other_package(package: str) -> None:
    """A package that is added to the project or to the worker is forbidden there too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    forbidden = _contract_of(project, f"loopline_worker.{package}")
    ours = {file.stem for file in WORKER.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()}
    siblings = {f"loopline_worker.{name}" for name in ours - {"__init__", package.split(".")[0]}}
    roots = set(project["tool"]["importlinter"]["root_packages"]) - {"loopline_worker"}
    assert forbidden >= siblings | roots | _imported_by_the_worker()


def _contract_of(project: dict[str, Any], source: str) -> set[str]:
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each.get("source_modules") == [source])
    return set(contract["forbidden_modules"])


def _imported_by_the_worker() -> set[str]:
    """The third-party packages of the agent, functions' interpreters aside."""
    lines = "\n".join(file.read_text("utf-8") for file in WORKER.rglob("*.py"))
    names = set(re.findall(r"^\s*(?:from|import) (\w+)", lines, re.MULTILINE))
    return {
        name for name in names - set(sys.stdlib_module_names) - {"cloudpickle"} if not name.startswith("loopline")
    }
