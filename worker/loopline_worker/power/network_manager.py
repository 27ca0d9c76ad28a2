"""Wake-on-LAN as NetworkManager sets it on a card: the only way to know it without CAP_NET_ADMIN.

NetworkManager applies the setting each time that it activates a connection, and a card keeps it when the computer is
suspended or switched off. By default NetworkManager leaves the card as the driver has set it, which says nothing.
"""

from __future__ import annotations

from loopline_shared.protocol.power import Armed
from loopline_worker.presence.bus import Bus, BusError
from loopline_worker.presence.waiting.routine import Routine

_SERVICE = "org.freedesktop.NetworkManager"
_PATH = "/org/freedesktop/NetworkManager"
_WIRED, _SETTING = "802-3-ethernet", "wake-on-lan"
_DEFAULT, _MAGIC, _IGNORE = 0x1, 0x40, 0x8000


def armed(card: str) -> Routine[Armed]:
    """Return whether NetworkManager arms this card for magic packets; UNKNOWN if it does not manage or set it.

    Raises BusError if there is no bus, and others if it does not answer.
    """
    with (yield from Bus.open(of_system=True)) as bus:
        return (yield from _armed_by(bus, card))


def _armed_by(bus: Bus, card: str) -> Routine[Armed]:
    try:
        device = yield from bus.ask(_SERVICE, _PATH, _SERVICE, "GetDeviceByIpIface", "s", card)
        active = (yield from bus.properties(_SERVICE, device, f"{_SERVICE}.Device"))["ActiveConnection"]
        profile = (yield from bus.properties(_SERVICE, active, f"{_SERVICE}.Connection.Active"))["Connection"]
        settings = yield from bus.ask(_SERVICE, profile, f"{_SERVICE}.Settings.Connection", "GetSettings")
        flags = int(settings[_WIRED][_SETTING][1])
    except (BusError, KeyError, TypeError, ValueError, IndexError):  # no NetworkManager, or not its card
        return Armed.UNKNOWN
    if flags & (_DEFAULT | _IGNORE):
        return Armed.UNKNOWN
    return Armed.YES if flags & _MAGIC else Armed.NO
