"""Command-line flags of the worker: one for each of its settings, in the groups that its settings page has."""

from __future__ import annotations

import argparse
from typing import Any, get_origin

from pydantic.fields import FieldInfo

from loopline_worker.settings import WorkerSettings

_LEFT_OUT = frozenset({"token"})  # a secret on a command line can be read by every user of the computer
_NAMES = {
    "labels": "label",
    "resources": "resource",
    "gpu_devices": "gpu-device",
    "sandbox_shows": "sandbox-show",
    "sandbox_opens": "sandbox-open",
    "shared_folders": "shared-folder",
    "other_masters": "other-master",
}
"""Flags that may be given several times are named for one value."""
_GROUPS = {
    "the master and this worker": (
        "master",
        "other_masters",
        "token_file",
        "ca_file",
        "name",
        "slots",
        "labels",
        "resources",
        "gpu",
        "gpu_devices",
        "gpu_shares",
        "data_dir",
        "python",
    ),
    "how long this worker stays": ("until", "idle_timeout_s", "death_timeout_s", "transient"),
    "the owner of this computer": (
        *(
            "policy",
            "dedicated",
            "idle_s",
            "grace_s",
            "reserve_cores",
            "reserve_memory_bytes",
            "yield_to_load",
            "on_battery",
        ),
        *("on_metered", "max_mb_per_day", "hours", "pause_while_running", "off_file", "owner_page", "owner_port"),
    ),
    "what tasks may do": (
        *(
            "shared_folders",
            "sandbox",
            "sandbox_network",
            "sandbox_shows",
            "sandbox_opens",
            "task_memory_bytes",
            "scratch_limit_bytes",
        ),
        *("output_flood_bytes", "max_processes", "fetch_pythons", "images"),
    ),
}
_METAVARS = {
    "s": "SECONDS",
    "master": "URL",
    "slots": "N",
    "port": "N",
    "dir": "FOLDER",
    "shows": "FOLDERS",
}
_METAVARS |= {
    "pause_while_running": "PROGRAM",
    "off_file": "FILE",
    "max_temperature_c": "DEGREES",
    "max_mb_per_day": "MB",
    "policy": "WHEN",
    "until": "TIME",
    "sandbox": "KIND",
    "gpu": "WHICH",
    "gpu_devices": "GPU",
    "sandbox_network": "WHICH",
    "sandbox_opens": "IP",
    "images": "PROGRAM",
    "peer_bytes_s": "BYTES",
}
_OTHERS = "limits"


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags. One that is not given is None, as ``Settings.load`` expects it."""
    groups = {name: parser.add_argument_group(title) for title, names in _GROUPS.items() for name in names[:1]}
    of = {name: groups[names[0]] for names in _GROUPS.values() for name in names}
    others = parser.add_argument_group(_OTHERS)
    for name in [*of, *(name for name in WorkerSettings.model_fields if name not in of)]:
        if name not in _LEFT_OUT:
            _add(of.get(name, others), name, WorkerSettings.model_fields[name])


def _add(group: argparse._ArgumentGroup, name: str, field: FieldInfo) -> None:
    flag = f"--{_NAMES.get(name, name).replace('_', '-')}"
    help_text = (field.description or "something that jobs may require") + _default(field)
    last = name.rpartition("_")[2]
    more: dict[str, Any] = {"metavar": _METAVARS.get(name, _METAVARS.get(last, last.upper()))}
    if field.annotation is bool:
        more = {"action": argparse.BooleanOptionalAction}
    elif get_origin(field.annotation) is tuple:
        more = {"action": "append", "metavar": more["metavar"].removesuffix("S")}
        help_text += "; repeatable"
    if name == "sandbox":
        group.add_argument(
            "--no-sandbox", dest=name, action="store_const", const="off", help="the same as --sandbox off"
        )
    group.add_argument(flag, dest=name, default=None, help=help_text.replace("%", "%%"), **more)


def _default(field: FieldInfo) -> str:
    """Return the default for people; empty where the description says it, or where there is none to say."""
    default = field.default
    if field.default_factory is not None or default in (None, (), "") or field.is_required():
        return ""
    if isinstance(default, bool):
        return " (default: yes)" if default else ""
    return f" (default: {default})" if isinstance(default, str | int | float) else ""
