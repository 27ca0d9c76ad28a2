"""The network card that wakes this computer, as the kernel describes it in /sys.

The file ``power/wakeup`` of the card's device says whether the card may wake the computer from suspend. Drivers set
it together with Wake-on-LAN. Whether the card stays armed when the computer is off can only be read with
CAP_NET_ADMIN, which no part of a worker has, not even the service that gives tasks users of their own. So it is
known only where NetworkManager sets it (network_manager.py).
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import psutil

from loopline_shared.protocol.power import MAX_SPANS, Armed, WakeFacts
from loopline_worker.core.hours import Hours
from loopline_worker.host.load import Battery

_SYS = Path("/sys")
_LID = Path("/proc/acpi/button/lid")
_FOR_GOOD, _DAY_S = 1e10, 86400
_ARMED = {"enabled": Armed.YES, "disabled": Armed.NO}


def card_of(address: str) -> str:
    """Return the name of the network card that has this address; empty if none has it."""
    for card, found in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in found):
            return card
    return ""


def read(
    card: str, subnet: str, *, is_allowed: bool, can_suspend: bool, sys: Path = _SYS, lid: Path = _LID
) -> WakeFacts | None:
    """Return the facts about a card for waking this computer; None if the card has no hardware address."""
    folder = sys / "class/net" / card
    address = _word(folder / "address").lower()
    if not card or not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", address) or not address.strip("0:"):
        return None
    is_wired = not (folder / "wireless").exists() and not (folder / "phy80211").exists()
    chosen = re.search(r"\[(\w+)\]", _word(sys / "power/mem_sleep"))
    return WakeFacts(
        card,
        address,
        subnet,
        is_wired,
        from_suspend=_ARMED.get(_word(folder / "device/power/wakeup"), Armed.UNKNOWN),
        mem_sleep=chosen[1].replace("_", "") if chosen else "",
        is_allowed=is_allowed,
        can_suspend=can_suspend,
        obstacle=_obstacle(is_wired, sys, lid),
    )


def with_setting(facts: WakeFacts, armed: Armed) -> WakeFacts:
    """Return the facts about a card that NetworkManager arms, or does not; from suspend the kernel knows better."""
    is_known = facts.from_suspend is not Armed.UNKNOWN
    return replace(facts, from_suspend=facts.from_suspend if is_known else armed, from_off=armed)


def with_hours(facts: WakeFacts, hours: Hours, paused_s: float) -> WakeFacts:
    """Return the facts with the hours when the owner allows tasks, and the end of a pause of this many seconds."""
    now = time.time()
    not_before = min(now + paused_s, _FOR_GOOD) if paused_s else 0.0
    change_at, change_min = _clock_change(now)
    return replace(
        facts,
        hours=hours.in_utc(_ahead_s(now) // 60)[:MAX_SPANS],
        hours_change_at=change_at,
        hours_change_min=change_min,
        not_before=not_before,
    )


def _clock_change(now: float) -> tuple[float, int]:
    """Return when clocks change next, and the minutes that they are put forward. (0.0, 0): not within half a year."""
    days = (int(now) + day * _DAY_S for day in range(1, 184))
    high = next((at for at in days if _ahead_s(at) != _ahead_s(now)), None)
    if high is None:
        return 0.0, 0
    low = high - _DAY_S
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _ahead_s(middle) == _ahead_s(now) else (low, middle)
    return float(high), (_ahead_s(high) - _ahead_s(now)) // 60


def _ahead_s(at: float) -> int:
    """Return the seconds that local time is ahead of UTC at this time."""
    return time.localtime(at).tm_gmtoff


def _obstacle(is_wired: bool, sys: Path, lid: Path) -> str:
    if not is_wired:
        return "it is on Wi-Fi"
    if any("closed" in _word(state) for state in lid.glob("*/state")):
        return "its lid is closed"
    if Battery(sys / "class/power_supply").is_in_use():
        return "it runs on battery"
    return ""


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
