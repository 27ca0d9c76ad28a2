"""Sources of a client's master address and token, and their order."""

import os
import subprocess
from pathlib import Path

import pytest

from loopline.settings import ClientSettings
from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import DEFAULT_URL
from tests.warm import starting


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_default_is_the_master_of_this_computer() -> None:
    settings = ClientSettings.load()
    assert settings.master == DEFAULT_URL
    assert settings.find_token() is None


def test_flag_overrides_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "loopline.toml", '[client]\nmaster = "http://file:1"\ntoken = "of file"\n')
    assert ClientSettings.load().master == "http://file:1"
    assert ClientSettings.load().find_token() == "of file"
    monkeypatch.setenv("LOOPLINE_MASTER", "http://environment:1")
    monkeypatch.setenv("LOOPLINE_TOKEN", "of environment")
    assert ClientSettings.load().master == "http://environment:1"
    assert ClientSettings.load().find_token() == "of environment"
    assert ClientSettings.load(master="http://flag:1", token=None).master == "http://flag:1"
    assert ClientSettings.load(token="of flag").find_token() == "of flag"


def test_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKENFILE", "/secret")
    with pytest.warns(UserWarning, match=r"^LOOPLINE_TOKENFILE is not .* did you mean LOOPLINE_TOKEN_FILE\?$"):
        ClientSettings.load()
    absent = {"LOOPLINE_TOKEN_FILE": "/absent/token"}
    said = subprocess.run([*starting("loopline"), "jobs"], capture_output=True, text=True, env=os.environ | absent)
    lines = said.stderr.splitlines()
    assert lines[0].startswith("warning: LOOPLINE_TOKENFILE is not a setting")
    assert lines[1].startswith("error: ")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("lab-pc:7461", "http://lab-pc:7461"),
        ("http://lab-pc:7461/", "http://lab-pc:7461"),
        ("https://grid.example.org", "https://grid.example.org"),
        (" [::1]:7461 ", "http://[::1]:7461"),
    ],
)
def test_addresses_are_normalized(given: str, address: str) -> None:
    assert ClientSettings.load(master=given).master == address


@pytest.mark.parametrize("given", ["", "ftp://lab-pc", "http://", "http://[::1"])
def test_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(LooplineError, match="--master"):
        ClientSettings.load(master=given)


@pytest.mark.parametrize("given", ["http://me:secret@lab-pc:7461", "http://lab-pc:99999", "lab-pc:0"])
def test_address_with_credentials_or_without_a_port_is_refused(given: str) -> None:
    with pytest.raises(LooplineError, match="--master") as refused:
        ClientSettings.load(master=given)
    assert "secret" not in refused.value.message


def test_settings_may_begin_with_a_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "loopline.toml", '\ufeff[client]\nmaster = "http://file:1"\n')
    assert ClientSettings.load().master == "http://file:1"
    monkeypatch.setenv("LOOPLINE_TOKEN_FILE", str(write(tmp_path / "token", "\ufeffsecret\n")))
    assert ClientSettings.load(master="http://file:1").find_token() == "secret"


def test_file_of_the_working_folder_does_not_redirect_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "loopline.toml", '[client]\nmaster = "http://other:1"\n')
    assert ClientSettings.load().find_token() is None
    for given in ({"token": "mine"}, {"token_file": write(tmp_path / "token", "mine")}):
        with pytest.raises(LooplineError, match="names the master http://other:1, and your token is from elsewhere"):
            ClientSettings.load(**given).find_token()
        assert ClientSettings.load(**given, master="http://other:1").find_token() == "mine"
    monkeypatch.setenv("LOOPLINE_TOKEN", "mine")
    with pytest.raises(LooplineError, match="is from elsewhere"):
        ClientSettings.load().find_token()
    monkeypatch.setenv("LOOPLINE_CONFIG", str(file))
    assert ClientSettings.load().find_token() == "mine", "a file that the user names is trusted"


def test_token_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKEN_FILE", str(write(tmp_path / "token", "secret\n")))
    assert ClientSettings.load().find_token() == "secret"
    monkeypatch.setenv("LOOPLINE_TOKEN", "nearer")
    assert ClientSettings.load().find_token() == "nearer"


def test_missing_token_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(LooplineError, match="none") as raised:
        ClientSettings.load().find_token()
    assert raised.value.status == 401


def test_token_of_a_local_master_is_found(tmp_path: Path) -> None:
    write(tmp_path / "data" / "loopline" / "master" / "tokens" / "admin", "admin's\n")
    assert ClientSettings.load().find_token() == "admin's"
    assert ClientSettings.load(master="http://localhost:9").find_token() == "admin's"


def test_token_of_this_computer_is_sent_to_no_other(tmp_path: Path) -> None:
    write(tmp_path / "data" / "loopline" / "master" / "tokens" / "admin", "admin's\n")
    for other in ("http://10.0.0.1:7461", "http://lab-pc:7461", "https://localhost.example.org"):
        assert ClientSettings.load(master=other).find_token() is None


@pytest.mark.parametrize("place", ["tokens/admin", "master/tokens/admin"])
def test_token_is_found_in_a_custom_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("LOOPLINE_DATA_DIR", str(tmp_path / "own"))
    write(tmp_path / "own" / place, "own\n")
    assert ClientSettings.load().find_token() == "own"


def test_error_for_a_mistyped_setting_suggests_the_right_one(tmp_path: Path) -> None:
    write(tmp_path / "loopline.toml", '[client]\nmastre = "http://file:1"\n')
    with pytest.raises(LooplineError) as raised:
        ClientSettings.load()
    assert "mastre" in raised.value.message
    assert "master" in raised.value.hint


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(ClientSettings.load(token="hush"))
