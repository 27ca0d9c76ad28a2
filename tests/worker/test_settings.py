import argparse
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.configuration.settings_source import unknown_variables
from loopline_shared.errors import LooplineError
from loopline_worker import flags
from loopline_worker import settings as module
from loopline_worker.link.master_trust import MasterTrust
from loopline_worker.settings import WorkerSettings


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TOKEN", "TOKEN_FILE", "MASTER", "SLOTS", "CONFIG"):
        monkeypatch.delenv(f"LOOPLINE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(module, "_token_of_own_master", lambda: tmp_path / "own")


def mistake(**flags: object) -> LooplineError:
    with pytest.raises(LooplineError) as caught:
        WorkerSettings.load(**flags)
    return caught.value


def test_flags_over_environment_over_toml_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("loopline.toml").write_text("[worker]\nslots = 1\nlabels = ['a', 'b']\nname = 'toml'\n[master]\nport = 1\n")
    monkeypatch.setenv("LOOPLINE_SLOTS", "2")
    monkeypatch.setenv("LOOPLINE_NAME", "env")
    settings = WorkerSettings.load(slots=3, name=None)
    assert (settings.slots, settings.name, settings.labels) == (3, "env", ("a", "b"))
    assert settings.master == "http://127.0.0.1:7461"


def test_relative_data_folder_is_below_the_working_directory(tmp_path: Path) -> None:
    assert WorkerSettings.load(data_dir="here").data_dir == tmp_path / "here"


def test_labels_in_the_environment_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_LABELS", "matlab, gpu")
    assert WorkerSettings.load().labels == ("matlab", "gpu")


def test_error_for_an_unknown_key_suggests_a_similar_one() -> None:
    Path("loopline.toml").write_text("[worker]\nslotts = 1\n")
    error = mistake()
    assert error.message == "loopline.toml: slotts: unknown setting"
    assert error.hint == "did you mean slots?"


def test_error_for_an_unknown_table_suggests_a_similar_one() -> None:
    Path("loopline.toml").write_text("[wroker]\nslots = 1\n")
    assert mistake().hint == "did you mean worker?"


def test_unknown_variable_is_named_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unknown_variables(WorkerSettings) == []
    for known in ("SLOTS", "slots", "LEASE_S", "LIMITS__MAX_JOBS", "JOB_NAME", "CONFIG", "REQUIRE_BROWSER"):
        monkeypatch.setenv(f"LOOPLINE_{known}", "1")
    assert unknown_variables(WorkerSettings) == [], "of this program, of the master, of tasks, of the tests"
    monkeypatch.setenv("LOOPLINE_SLOTZ", "2")
    monkeypatch.setenv("LOOPLINE_XYZZY", "2")
    monkeypatch.setenv("LOOPLINEX", "2")
    assert unknown_variables(WorkerSettings) == [
        "LOOPLINE_SLOTZ is not a setting, and is ignored: did you mean LOOPLINE_SLOTS?",
        "LOOPLINE_XYZZY is not a setting, and is ignored",
    ]


def test_invalid_settings_file_is_named() -> None:
    Path("loopline.toml").write_text("[worker\n")
    assert "cannot read settings from loopline.toml" in mistake().message


def test_error_for_a_wrong_value_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_SLOTS", "many")
    assert mistake().message.startswith("LOOPLINE_SLOTS: expected a whole number")
    assert mistake(slots=0).message.startswith("--slots: ")
    monkeypatch.delenv("LOOPLINE_SLOTS")
    Path("loopline.toml").write_text("[worker]\nmaster = 'somewhere'\n")
    assert mistake().message.startswith("loopline.toml: master: ")


@pytest.mark.parametrize("hours", ["{text = 'mon'}", "{}", "3", "','", "' , '"])
def test_empty_hours_are_refused(hours: str) -> None:
    Path("loopline.toml").write_text(f"[worker]\nhours = {hours}\n")
    error = mistake()
    assert "hours" in error.message
    assert "mon-fri 18:00-08:00" in error.message


def test_missing_hours_mean_any_time() -> None:
    assert WorkerSettings.load(hours="").hours.include(0, 0)
    assert WorkerSettings.load(hours="sat").hours.spans


def test_token_is_read_from_its_sources_in_order(tmp_path: Path) -> None:
    assert WorkerSettings.load().find_token() is None
    (tmp_path / "own").write_text("of-own-master\n")
    assert WorkerSettings.load().find_token() == "of-own-master"
    (tmp_path / "file").write_text(" of-file\n")
    assert WorkerSettings.load(token_file=tmp_path / "file").find_token() == "of-file"
    assert WorkerSettings.load(token_file=tmp_path / "file", token="given").find_token() == "given"
    with pytest.raises(LooplineError, match="cannot read the join token from absent"):
        WorkerSettings.load(token_file="absent").find_token()


@pytest.mark.parametrize(
    "given",
    [
        {"master": "http://one:7461", "other_masters": ["http://two:7461"]},
        {"master": "http://one:7461,http://two:7461"},
    ],
)
def test_addresses_of_a_master_are_tried_in_turn(given: dict[str, Any]) -> None:
    settings = WorkerSettings.load(**given)
    trust = MasterTrust(settings)
    tried = []
    for _ in range(3):
        tried.append(trust.master)
        trust.turn_to_next()
    assert tried == ["http://one:7461", "http://two:7461", "http://one:7461"]


def test_every_setting_except_the_token_is_a_flag() -> None:
    parser = argparse.ArgumentParser()
    flags.add_to(parser)
    given = vars(parser.parse_args([]))
    assert given.keys() == WorkerSettings.model_fields.keys() - {"token"}
    assert set(given.values()) == {None}, "other settings are left to the environment and the file"
    words = [
        "--label",
        "a",
        "--label",
        "b",
        "--idle-s",
        "5",
        "--no-yield-to-load",
        "--hours",
        "sat, sun",
        "--pause-while-running",
        "vlc",
    ]
    read = WorkerSettings.load(**vars(parser.parse_args(words)))
    assert (read.labels, read.idle_s, read.yield_to_load, read.pause_while_running) == (
        ("a", "b"),
        5.0,
        False,
        ("vlc",),
    )
