"""Settings of a client: its master and its token. Flags go over LOOPLINE_... and these over [client] in
loopline.toml.
"""

from __future__ import annotations

import ipaddress
import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr

from loopline.local.folder import local_folder
from loopline_shared.configuration.settings_source import (
    ENV_PREFIX,
    Settings,
    config_file,
    read_table,
    unknown_variables,
)
from loopline_shared.configuration.user_folders import user_folder
from loopline_shared.disk.durable_files import make_folder, replace_file
from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import DEFAULT_PORT, DEFAULT_URL


def _addresses(text: str) -> str:
    """Return the address as a URL, and those of standbys, which follow behind commas, likewise."""
    return ",".join(_address(each) for each in text.split(","))


def _address(text: str) -> str:
    """Return the address as a URL: ``lab-pc:7461`` is as good as ``http://lab-pc:7461/``."""
    url = text.strip().rstrip("/") if "://" in text else f"http://{text.strip().rstrip('/')}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://lab-pc:7461")
    if parts.port == 0:  # reading it also checks it
        raise ValueError("port 0 is no address")
    if "@" in parts.netloc:
        raise ValueError("it has a user or a password in it, which a master does not take: give --token")
    return url


class ClientSettings(Settings):
    """Settings of a client, with defaults."""

    table: ClassVar[str] = "client"

    master: Annotated[
        str, AfterValidator(_addresses), Field(description="the master's address; behind commas, its standbys'")
    ] = DEFAULT_URL
    token: Annotated[SecretStr | None, Field(description="the access token")] = None
    token_file: Annotated[Path | None, Field(description="a file with the token")] = None
    ca_file: Annotated[
        Path | None,
        Field(description="a file with the CA to trust the master by; default: as logged in, or beside the token"),
    ] = None
    data_dir: Annotated[Path | None, Field(description="a master's data folder on this computer")] = None
    _unconfirmed: bool = PrivateAttr(default=False)

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Load the settings; where no master is named, it is the one of ``loopline login``."""
        settings = super().load(**flags)
        for unknown in unknown_variables(cls):
            warnings.warn(unknown, stacklevel=2)
        settings._unconfirmed = _named_here(settings, flags)
        if "master" not in settings.model_fields_set and (login := Login.read()):
            return settings.model_copy(update={"master": login.master})
        return settings

    def find_token(self) -> str | None:
        """Return the token that was given, else that of ``loopline login``, else the admin token that a master of
        the same user left.
        """
        if self.token:
            self._check_confirmed()
            return self.token.get_secret_value().strip() or None
        if login := self._login():
            return login.token
        file = self._token_file()
        if file:
            self._check_confirmed()
        return (_read(file) if file == self.token_file else _read_if_there(file)) if file else None

    def find_ca(self) -> str:
        """Return the certificate (PEM) to trust the master by; empty for the authorities of this computer."""
        if self.ca_file:
            return _read(self.ca_file)
        if login := self._login():
            return login.ca
        file = self._token_file()
        if file is None or (self.token and file == self.token_file):  # another token is used, maybe for another grid
            return ""
        return _read_if_there(file.with_name("ca.pem")) or ""

    def _check_confirmed(self) -> None:
        """Raise LooplineError if a file of the working folder would redirect a token that does not come from it."""
        if self._unconfirmed:
            message = f"loopline.toml in this folder names the master {self.master}, and your token is from elsewhere"
            hint = f"if the token is for that master, say so: LOOPLINE_MASTER={self.master}"
            raise LooplineError("settings", message, hint)

    def _login(self) -> Login | None:
        """Return the login at this master, unless another token file was named."""
        login = None if self.token_file else Login.read()
        return login if login and _places(login.master) & _places(self.master) else None

    def _token_file(self) -> Path | None:
        """Return the file of the token: this computer's own must not be sent to another."""
        if self.token_file or not all(is_here(each) for each in self.master.split(",")):
            return self.token_file
        return next((file for file in self._admin_tokens() if _read_if_there(file)), None)

    def _admin_tokens(self) -> list[Path]:
        folders = [self.data_dir, self.data_dir / "master"] if self.data_dir else [_home() / "master"]
        if (local := local_folder(urlsplit(self.master.partition(",")[0]).port or DEFAULT_PORT)) and _is_kept(local):
            folders.insert(0, local / "master")
        return [folder / "tokens" / "admin" for folder in folders]


def _named_here(settings: ClientSettings, flags: dict[str, Any]) -> bool:
    """True if a loopline.toml of the working folder names the master, and the token comes from elsewhere.

    That folder may be another person's. A file that LOOPLINE_CONFIG names is trusted.
    """
    file = config_file()
    if file is None or file.parent != Path() or f"{ENV_PREFIX}CONFIG" in os.environ:
        return False
    given = {name.upper() for name in os.environ}
    given |= {f"{ENV_PREFIX}{name.upper()}" for name, value in flags.items() if value}
    table = read_table(settings.table)
    if "master" not in table or f"{ENV_PREFIX}MASTER" in given or settings.master == DEFAULT_URL:
        return False
    is_of_file = "token" in table or "token_file" in table
    return not is_of_file or bool(given & {f"{ENV_PREFIX}TOKEN", f"{ENV_PREFIX}TOKEN_FILE"})


@dataclass(frozen=True, slots=True)
class Login:
    """A login as it is kept: the master, this user's token, and the CA that its line pinned."""

    master: str
    token: str
    ca: str = ""

    @classmethod
    def read(cls) -> Login | None:
        """Return the login; None if there is none. Raises LooplineError if the file cannot be read."""
        file = login_file()
        try:
            return cls(**json.loads(file.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            hint = "`loopline login LINE` again, or `loopline logout`"
            raise LooplineError("login", f"cannot read {file}: {error}", hint, 401) from None

    def write(self) -> Path:
        """Write the file, readable by this user only. Raises LooplineError if it cannot be written."""
        file = login_file()
        try:
            make_folder(file.parent)
            replace_file(file, (json.dumps(asdict(self), indent=2) + "\n").encode())
        except OSError as error:
            raise LooplineError("login", f"cannot write {file}: {error.strerror}") from None
        return file


def login_file() -> Path:
    """Return the file of the login, beside loopline.toml of this user."""
    return user_folder("config") / "login.json"


def _places(master: str) -> set[tuple[str, int]]:
    """Return host and port of each address: a login holds by http and https alike, and is only used by https."""
    parts = [urlsplit(each) for each in master.split(",")]
    return {(each.hostname or "", each.port or (443 if each.scheme == "https" else 80)) for each in parts}


def _home() -> Path:
    return user_folder("data")


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
        return file.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        hint = "correct token_file or LOOPLINE_TOKEN_FILE, or give the token itself with --token"
        raise LooplineError("token_file", f"cannot read a token from {file}: {error}", hint, 401) from None


def _read_if_there(file: Path) -> str | None:
    try:
        return file.read_text("utf-8-sig").strip()
    except OSError:
        return None
