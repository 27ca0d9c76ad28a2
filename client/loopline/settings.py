"""Settings of a client: its master and its token. Flags go over LOOPLINE_... and these over [client] in
loopline.toml.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, Field, SecretStr

from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import DEFAULT_PORT, DEFAULT_URL
from loopline_shared.settings_source import Settings


def _address(text: str) -> str:
    """Return the address as a URL: ``lab-pc:7461`` is as good as ``http://lab-pc:7461/``."""
    url = text.strip().rstrip("/") if "://" in text else f"http://{text.strip().rstrip('/')}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://lab-pc:7461")
    return url


class ClientSettings(Settings):
    """Settings of a client, with defaults."""

    table: ClassVar[str] = "client"

    master: Annotated[str, AfterValidator(_address), Field(description="the master's address")] = DEFAULT_URL
    token: Annotated[SecretStr | None, Field(description="the access token")] = None
    token_file: Annotated[Path | None, Field(description="a file with the token")] = None
    data_dir: Annotated[Path | None, Field(description="a master's data folder on this computer")] = None

    def find_token(self) -> str | None:
        """Return the token that was given, else the admin token that a master of the same user left."""
        if self.token:
            return self.token.get_secret_value().strip() or None
        if self.token_file:
            return _read(self.token_file)
        if not is_here(self.master):
            return None  # this computer's secret must not be sent to another
        return next((token for file in self._admin_tokens() if (token := _read_if_there(file))), None)

    def _admin_tokens(self) -> list[Path]:
        folders = [self.data_dir, self.data_dir / "master"] if self.data_dir else [_home() / "master"]
        if (local := local_folder(urlsplit(self.master).port or DEFAULT_PORT)) and _is_kept(local):
            folders.insert(0, local / "master")
        return [folder / "tokens" / "admin" for folder in folders]


def local_folder(port: int) -> Path:
    """Return the folder of a grid of ``loopline local`` whose master serves at this port."""
    return _home() / "local" / str(port)


def _home() -> Path:
    return platformdirs.user_data_path("loopline", appauthor=False)


def _is_kept(local: Path) -> bool:
    """True if the caretaker of a local grid is alive: its folder may have outlived it when all was killed at once."""
    try:
        pid = int((local / "caretaker.pid").read_text("utf-8"))
        if os.name == "posix":  # where signal 0 only asks
            os.kill(pid, 0)
    except (OSError, ValueError):
        return False
    return True


def is_here(url: str) -> bool:
    """True if the address is of this computer."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "correct token_file or LOOPLINE_TOKEN_FILE, or give the token itself with --token"
        raise LooplineError("token_file", f"cannot read a token from {file}: {error}", hint, 401) from None


def _read_if_there(file: Path) -> str | None:
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        return None
