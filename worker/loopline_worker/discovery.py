"""Discovery of the master: the setting, else the master that this computer has joined, else one on this computer.

If none of these is known, a master that announces itself on the local network is logged, for a person to choose.
Anybody can announce anything, and a master may run any program here, so that none is ever used unasked.
"""

from __future__ import annotations

import importlib.util
import logging
import time

from loopline_shared.joining import Membership, addresses_of
from loopline_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

SERVICE = "_loopline._tcp.local."
_LISTEN_S = 3.0


def with_master(settings: WorkerSettings) -> WorkerSettings:
    """Return the settings with a master in them; settings that were given stay."""
    is_set = "master" in settings.model_fields_set
    member = Membership.read()
    if member and not is_set:
        first, *others = addresses_of(member.master)
        settings = settings.model_copy(update={"master": first, "other_masters": (*others, *settings.other_masters)})
    if member and settings.belongs_to(member):  # its token is good for its name only
        return settings.model_copy(update={"name": settings.name or member.name})
    if is_set:
        return settings
    if settings.find_token() is None and (found := announced()):
        log.warning(
            "a master announces itself at %s; if it is yours, get a join line from it: loopline token join", found
        )
    return settings


def announced() -> str:
    """Return the first master that announces itself; empty if none does. It needs zeroconf."""
    if not importlib.util.find_spec("zeroconf"):
        return ""
    from zeroconf import ServiceBrowser, Zeroconf

    seen: list[str] = []

    def note(zeroconf: Zeroconf, service_type: str, name: str, **_: object) -> None:
        info = zeroconf.get_service_info(service_type, name)
        if info and info.port and (hosts := info.parsed_addresses()):
            seen.append(f"http://{f'[{hosts[0]}]' if ':' in hosts[0] else hosts[0]}:{info.port}")

    network, give_up = Zeroconf(), time.monotonic() + _LISTEN_S
    try:
        ServiceBrowser(network, SERVICE, handlers=[note])
        while not seen and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        network.close()
    return seen[0] if seen else ""
