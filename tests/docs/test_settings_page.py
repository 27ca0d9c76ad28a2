"""The page of settings has each one of them, as the programs load it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from loopline_master.settings import Limits, MasterSettings
from loopline_shared.configuration.settings_source import unknown_variables
from loopline_worker.settings import WorkerSettings

DOCS = Path(__file__).parents[2] / "docs"


def test_it_is_up_to_date() -> None:
    generator = runpy.run_path(str(DOCS / "settings.py"))
    for file, make in (("PAGE", "page"), ("NAMES", "names")):
        assert generator[file].read_text("utf-8") == generator[make](), "run: python docs/settings.py"


def test_each_setting_is_there() -> None:
    text = (DOCS / "settings.md").read_text("utf-8")
    for model in (MasterSettings, Limits, WorkerSettings):
        for name in model.model_fields:
            if name != "limits":
                assert re.search(rf"^\| `{name}` \| [^|]+ \| .* \|$", text, re.MULTILINE), name


def test_each_variable_in_code_and_docs_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise programs would warn of it."""
    for folder, kind in (("client", "py"), ("master", "py"), ("worker", "py"), ("shared", "py"), ("docs", "md")):
        for file in (DOCS.parent / folder).rglob(f"*.{kind}"):
            for name in re.findall(r"LOOPLINE_[A-Z][A-Z_]*[A-Z]\b", file.read_text("utf-8")):
                monkeypatch.setenv(name, "x")
    assert unknown_variables(WorkerSettings) == []
