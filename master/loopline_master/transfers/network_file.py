"""``network.toml``: the operator's word on the network. Mistakes name their line.

[switches.core]              # the root: it names no switch above it

[switches.lab-1]
above = "core"
capacity = "1 Gbit/s"        # of its link to core, in both directions; or up = "...", down = "..."
hosts = ["lab1-*"]           # workers whose names look so are at this switch ...
edge = "100 Mbit/s"          # ... each on a link of this capacity
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_shared.errors import LooplineError

_KEYS = ("above", "capacity", "up", "down", "hosts", "edge")
_CAPACITY = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)(bit|B)/s")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class HostRule:
    """Workers whose names match ``pattern`` are at ``switch``, on links of ``capacity`` bytes per second each way."""

    pattern: str
    switch: str
    capacity: float


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """The switches of a network.toml, and its rules for hosts: the first that matches a name holds."""

    switches: tuple[NetworkNode, ...]
    rules: tuple[HostRule, ...]

    def network(self, hosts: Iterable[str]) -> tuple[Network, list[str]]:
        """Return the network with these hosts, and the names of hosts without a matching rule."""
        found, unplaced = list(self.switches), []
        for name in hosts:
            rule = next((rule for rule in self.rules if fnmatchcase(name, rule.pattern)), None)
            if rule is None:
                unplaced.append(name)
            else:
                found.append(NetworkNode(name, rule.switch, rule.capacity, rule.capacity))
        return Network(found), unplaced


def read_network(text: str, name: str = "network.toml") -> NetworkFile:
    """Return what the file says. Raises LooplineError that names the file, the line and the mistake."""
    return _Reader(text, name).read()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._lines = text.splitlines()

    def read(self) -> NetworkFile:
        try:
            document = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise LooplineError("bad_network", f"{self._name}: {error}") from None
        switches = document.pop("switches", {})
        for extra in document:
            raise self._mistake(extra, "", f"there is no section {extra!r}", "sections are called [switches.NAME]")
        if not switches:
            raise LooplineError("bad_network", f"{self._name}: it names no switch", "begin with [switches.core]")
        nodes = [self._switch(name, table, switches) for name, table in switches.items()]
        self._check_tree(nodes)
        rules = [rule for name, table in switches.items() for rule in self._rules(name, table)]
        return NetworkFile(tuple(nodes), tuple(rules))

    def _switch(self, name: str, table: Any, switches: Mapping[str, Any]) -> NetworkNode:
        if not isinstance(table, dict):
            raise self._mistake(name, "", f"{name!r} is not a section", f"write it as [switches.{name}]")
        for key in table:
            if key not in _KEYS:
                raise self._mistake(name, key, f"there is no key {key!r}", _nearest(key, _KEYS))
        above = table.get("above")
        if above is None:
            return NetworkNode(name, None, is_switch=True)
        if above not in switches:
            raise self._mistake(name, "above", f"there is no switch {above!r}", _nearest(str(above), switches))
        up, down = (self._capacity(name, table, key, "capacity") for key in ("up", "down"))
        return NetworkNode(name, above, up, down, is_switch=True)

    def _check_tree(self, nodes: Iterable[NetworkNode]) -> None:
        above = {node.name: node.parent for node in nodes}
        for name in above:
            way, at = {name}, above[name]
            while at is not None and at not in way:
                way.add(at)
                at = above[at]
            if at == name:
                raise self._mistake(
                    name, "above", f"the switches above {name!r} lead back to it", "a tree has a root"
                )
        roots = [node.name for node in nodes if node.parent is None]
        for second in roots[1:]:
            hint = 'each switch but one says `above = "..."`'
            raise self._mistake(second, "", f"{second!r} has no switch above it, as {roots[0]!r} has none", hint)

    def _rules(self, name: str, table: Mapping[str, Any]) -> list[HostRule]:
        patterns = table.get("hosts", [])
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise self._mistake(name, "hosts", "hosts are a list of names", 'such as ["lab1-*", "pc-7"]')
        return [HostRule(pattern, name, self._capacity(name, table, "edge")) for pattern in patterns]

    def _capacity(self, name: str, table: Mapping[str, Any], *keys: str) -> float:
        """Return the first of the keys that is there, in bytes per second."""
        key = next((key for key in keys if key in table), keys[-1])
        value = table.get(key, "")
        match = _CAPACITY.fullmatch(value) if isinstance(value, str) else None
        if match is None or not float(match[1]):
            missing = f"{key!r} is missing" if key not in table else f"{value!r} is no capacity"
            raise self._mistake(name, key, missing, 'write it like "1 Gbit/s" or "12.5 MB/s"')
        return float(match[1]) * _UNITS[match[2]] / (8 if match[3] == "bit" else 1)

    def _mistake(self, section: str, key: str, message: str, hint: str) -> LooplineError:
        return LooplineError("bad_network", f"{self._name}, line {self._line(section, key)}: {message}", hint)

    def _line(self, section: str, key: str) -> int:
        """Return the line of a key in a section; of the section, or the first, where it is not found."""
        header = re.compile(rf"\s*\[\s*(switches\s*\.\s*)?[\"']?{re.escape(section)}[\"']?\s*\]")
        start = next((at for at, line in enumerate(self._lines) if header.match(line)), 0)
        for at in range(start + 1, len(self._lines)):
            if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", self._lines[at]) and key:
                return at + 1
            if self._lines[at].lstrip().startswith("["):
                break
        return start + 1


def _nearest(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
