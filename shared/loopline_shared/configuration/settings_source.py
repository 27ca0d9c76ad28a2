"""Sources of every program's settings: flags over environment over TOML over defaults.

The environment is ``LOOPLINE_<NAME>``. LOOPLINE_CONFIG names the TOML file; by default it is ``loopline.toml`` in
the working folder, else the one in the platform's configuration folder; each program reads its own table of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from loopline_shared.configuration.setting_names import SETTING_NAMES
from loopline_shared.configuration.user_folders import known_user_folder
from loopline_shared.errors import LooplineError
from loopline_shared.plain_words import meant, plain

ENV_PREFIX = "LOOPLINE_"
TABLES = ("master", "worker", "client")
_OF_TASKS = """
ATTEMPT CALL CHECKPOINT GANG_SECRET GPUS HOSTS JOB JOB_NAME NODES PARAMETERS PROGRESS RANK RENDEZVOUS RESULT RESUMED
SCRATCH SECRETS SLOTS TASK WORKER
"""
_OF_STARTS = "CONFIG LOG_FILE MESSAGE ZYGOTE"
_OF_COMPOSE_AND_TESTS = """
BASE_IMAGE CAMPAIGNS POSTGRES_IMAGE RANDOM_EXAMPLES REQUIRE_BROWSER STANDBY_PORT TEST TEST_SNAKEMAKE WORKER_CPUS
"""
_OF_COMMANDS = "HARDWARE_ADDRESS IN_USE LIMIT SUBNET WAKE"
_NO_SETTINGS = frozenset(f"{_OF_TASKS} {_OF_STARTS} {_OF_COMMANDS} {_OF_COMPOSE_AND_TESTS}".split())
"""Names of variables that are not settings."""


class Settings(BaseModel):
    """Base of a program's settings; ``table`` names its table in the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)
    table: ClassVar[str]

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Load the present settings; a flag of None counts as absent. Raises LooplineError with the mistake and its
        place.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        try:
            return cls(**_over(_over(read_table(cls.table), _from_environment(cls)), given))
        except ValidationError as error:
            raise _explain(cls, error, given) from None


def home() -> Path | None:
    """Return the home folder of this user; None if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def config_file() -> Path | None:
    """Return the TOML file in use, or None. The file that LOOPLINE_CONFIG names is in use even if it is missing."""
    if named := os.environ.get(f"{ENV_PREFIX}CONFIG"):
        return Path(named)
    places = [Path(), *([folder] if (folder := known_user_folder("config")) else [])]
    return next((file for place in places if (file := place / "loopline.toml").is_file()), None)


def read_table(name: str) -> dict[str, Any]:
    """Return a program's table of the TOML file. Raises LooplineError for an unreadable file or unknown tables."""
    file = config_file()
    if file is None:
        return {}
    import tomllib  # only where there is a file

    try:
        document = tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise LooplineError(
            "settings", f"cannot read settings from {file}: {error}", "fix it or move it away"
        ) from None
    for table in document:
        if table not in TABLES:
            raise LooplineError("settings", f"{file}: unknown table [{table}]", meant(table, TABLES))
    content = document.get(name, {})
    if not isinstance(content, dict):
        raise LooplineError("settings", f"{file}: {name} is not a table", f"write [{name}] above its settings")
    return content


def _from_environment(settings: type[BaseModel], prefix: str = ENV_PREFIX) -> dict[str, Any]:
    """Return settings from ``LOOPLINE_<NAME>``, in any case, and ``LOOPLINE_<TABLE>__<NAME>`` of tables."""
    variables = {name.upper(): text for name, text in os.environ.items()}
    found: dict[str, Any] = {}
    for name, field in settings.model_fields.items():
        variable = prefix + name.upper()
        if variable in variables:
            found[name] = _value(variable, field, variables[variable])
        within = f"{variable}__"
        if _is_table(field) and (texts := {key: text for key, text in variables.items() if key.startswith(within)}):
            unknown = {key.removeprefix(within).lower(): text for key, text in texts.items()}
            known = _from_environment(field.annotation, within)  # type: ignore[arg-type]
            found[name] = _over(found.get(name, {}), unknown | known)
    return found


def unknown_variables(settings: type[Settings]) -> list[str]:
    """Return a warning for each ``LOOPLINE_...`` variable that no program knows.

    They may be misspelt, and are ignored: another release, or the user's own scripts, may have variables too.
    """
    from difflib import get_close_matches  # hardly ever needed

    known = {*(name.upper() for name in SETTING_NAMES), *_NO_SETTINGS}
    found = []
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(ENV_PREFIX)
        if name != variable.upper() and name.partition("__")[0] not in known:
            close = get_close_matches(name, [each.upper() for each in settings.model_fields], n=1)
            hint = f": did you mean {ENV_PREFIX}{close[0]}?" if close else ""
            found.append(f"{variable} is not a setting, and is ignored{hint}")
    return found


def _value(variable: str, field: FieldInfo, text: str) -> Any:
    """Return the setting's value. Lists and tables are JSON, unless the setting has its own notation."""
    is_plain = not _is_table(field) and get_origin(field.annotation) not in (list, dict, tuple)
    if is_plain or any(isinstance(part, BeforeValidator) for part in field.metadata):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise LooplineError("settings", f"{variable}: expected JSON, got {text!r:.80}") from None


def _is_table(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings, tables within tables too; ``above`` overrides ``below``."""
    both = {name for name in above if isinstance(above[name], dict) and isinstance(below.get(name), dict)}
    return {**below, **above, **{name: _over(below[name], above[name]) for name in both}}


def _explain(settings: type[Settings], error: ValidationError, flags: dict[str, Any]) -> LooplineError:
    """Describe the first mistake: the setting, its source, the problem, and the remedy."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    place = _place(path, flags)
    if first["type"] == "extra_forbidden":
        return LooplineError("settings", f"{place}: unknown setting", meant(path[-1], _known(settings, path[:-1])))
    is_shown = not isinstance(first["input"], dict) and "@" not in str(first["input"])  # there may be a password
    got = f", got {first['input']!r:.80}" if is_shown else ""
    return LooplineError("settings", f"{place}: {plain(first)}{got}")


def _place(path: list[str], flags: dict[str, Any]) -> str:
    variable = ENV_PREFIX + "__".join(path).upper()
    if path and path[0] in flags:
        return f"--{path[0].replace('_', '-')}"
    if variable in os.environ:
        return variable
    return f"{config_file() or 'settings'}: {'.'.join(path)}".removesuffix(": ")


def _known(settings: type[BaseModel], tables: list[str]) -> Iterable[str]:
    """Return the names of the settings in the table at the end of this path."""
    model: Any = settings
    for table in tables:
        model = model.model_fields[table].annotation
    return list(model.model_fields)
