"""What `make demo` installs: the versions that the suite tests, enough for master and worker, and little more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 60
UNUSED = {"uv"}
"""Parts of a worker that no task of the demo asks for: 20 MB."""


def test_the_demo_runs_on_the_versions_that_the_suite_tests() -> None:
    everything = _locked("requirements/all.txt")
    demo = _locked("requirements/demo.txt")
    differ = {name: entry for name, entry in demo.items() if everything.get(name) != entry}
    assert not differ, "run `make constraints`"


def test_the_demo_installs_what_master_and_worker_need_and_little_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    direct = project["project"]["dependencies"] + extras["master"] + extras["worker"]
    wanted = {_plain(re.split(r"[\[>=<~ ;]", line)[0]) for line in direct} - UNUSED
    locked = _locked("requirements/demo.txt")
    assert wanted <= locked.keys(), "run `make constraints`"
    assert len(locked) < MOST_PACKAGES


def _locked(file: str) -> dict[str, str]:
    """Return the version and hashes of each package of a lock file, without comments."""
    lines = [line for line in (ROOT / file).read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    return {_plain(entry.split("==")[0]): entry for entry in entries}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
