"""Carriers: workers that take files from one another, with their files and fetches, and requests to the planner.

The pipelines in force follow from each worker's source of each file. So a restart continues with the previous plan,
and a request to the planner needs stored knowledge only.

Pieces come in order, so a worker can take a file only from a host that has as much of it. The planner does not model
this: receivers of one file that are far ahead of others are sources to these, and the others ask for it under another
name, a *wave* of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from loopline_master.core.wings.transfers.assumed_network import MASTER, ROOT, UNKNOWN_RATE
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.pipeline import Demand, Pipeline, PlanRequest, TransferPlan

OVERDUE_S = 30.0
"""A transfer that has waited for this long ..."""
LEAST_RATE = 1e6
"""... is given at least this rate in bytes per second, or its share of the links' capacity."""
LAG_BYTES, _LAG_S = 2 * 2**20, 0.5
"""Receivers belong to the same wave if their progress differs by at most ``LAG_BYTES`` or ``_LAG_S`` of transfer: a
receiver behind another may have to wait for this long."""
_SAME_LINE = 0.05
"""Receivers that follow one another are on one line if their planned rates differ by at most this share."""
_WAVE = "/"
"""Separates a file's name from the number of a wave, which has leading zeros: waves are sorted by name."""
_SLIGHTLY_LESS = 1 - 1e-6
"""Factor on the capacity of the master's link, so that a worker is preferred to an equally good master."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A file on its way to one worker. Times are in seconds since 1970."""

    size_bytes: int
    since: float  # time of the first request
    have_bytes: int  # bytes received ...
    at: float  # ... at this time, as its worker reported ...
    flows: float = 0.0  # ... at this rate in bytes per second
    source: str | None = None  # as planned: a worker, or MASTER; None: it is not planned
    rate: float = 0.0  # planned, in bytes per second; 0 with a source: it waits

    def left_bytes(self, now: float) -> float:
        """Return the expected number of missing bytes."""
        return max(0.0, self.size_bytes - self.have_bytes - self.flows * (now - self.at))

    def is_overdue(self, now: float) -> bool:
        """True if it has waited for too long."""
        return self.rate <= LEAST_RATE and now >= self.since + OVERDUE_S


@dataclass(slots=True)
class Carrier:
    """A worker that takes part in carrying. The mappings are never changed in place."""

    name: str
    has: dict[str, int] = field(default_factory=dict)  # large files in its cache, by SHA-256: bytes
    fetching: dict[str, Transfer] = field(default_factory=dict)  # by SHA-256
    failed: dict[str, float] = field(default_factory=dict)  # sources that failed it, and until when
    mute_until: float | None = None  # it answers, but passed nothing on
    unheard_since: float | None = None  # a receiver got nothing from it then; no Report since

    @property
    def is_known(self) -> bool:
        """True if it has or fetches a file."""
        return bool(self.has or self.fetching)

    def avoids(self, source: str, now: float) -> bool:
        """True if that worker has failed it lately."""
        return self.failed.get(source, 0.0) > now

    def is_mute(self, now: float) -> bool:
        """True if no receiver may wait for it: a receiver's accusation was believed."""
        return self.unheard_since is not None or (self.mute_until or 0.0) > now


@dataclass(frozen=True, slots=True)
class NumberedRequest:
    """A request for a plan, to be answered under its number. Its parts are never changed in place."""

    number: int
    now: float
    network: Network = field(repr=False)
    carriers: tuple[tuple[str, Mapping[str, int], Mapping[str, Transfer]], ...]  # name, has, fetching
    avoided: Mapping[str, frozenset[str]]  # by receiver: sources that failed it
    mute: frozenset[str]  # workers that pass nothing on
    unheard: frozenset[str] = frozenset()  # subset: nothing is planned for them either

    def request(self) -> PlanRequest:
        """Return the planner's input."""
        receivers: dict[str, dict[str, Transfer]] = {}
        for name, _, fetching in self.carriers:
            for file, transfer in fetching.items() if name not in self.unheard else ():
                receivers.setdefault(file, {})[name] = self._with_fallback(file, transfer)
        holders: dict[str, list[str]] = {file: [MASTER] for file in receivers}
        for name, has, _ in self.carriers:
            if name not in self.mute:
                for file in receivers.keys() & has.keys():
                    holders[file].append(name)
        found: dict[str, tuple[str, ...]] = {}
        demands: list[Demand] = []
        running: list[Pipeline] = []
        leads: dict[str, dict[str, tuple[str, float]]] = {}
        for file, wanting in sorted(receivers.items()):
            left = {host: transfer.left_bytes(self.now) for host, transfer in wanting.items()}
            wave_of: dict[str, str] = {}
            for name, holding, wave in self._waves(file, wanting, holders[file]):
                found[name] = tuple(holding)
                least = min(left[host] for host in wave)
                leads[name] = {
                    host: (wave_of[host], max(0.0, least - left[host])) for host in holding if host in wave_of
                }
                wave_of |= dict.fromkeys(wave, name)
                demands += (Demand(name, host, transfer.is_overdue(self.now)) for host, transfer in wave.items())
                running += pipelines_of(name, wave)
        return PlanRequest(self.network, found, tuple(demands), tuple(running), LEAST_RATE, leads=leads)

    def _with_fallback(self, file: str, transfer: Transfer) -> Transfer:
        """Return a transfer with its receiver's fallback: the first host before it in line that is not mute."""
        source = transfer.source
        for _ in self.mute if source in self.mute else ():
            before = next((fetching.get(file) for name, _, fetching in self.carriers if name == source), None)
            source = before.source if before else None
            if source not in self.mute:
                break
        return transfer if source == transfer.source else replace(transfer, source=source)

    def _waves(
        self, file: str, receivers: Mapping[str, Transfer], holders: list[str]
    ) -> Iterator[tuple[str, list[str], dict[str, Transfer]]]:
        """Yield name, holders and receivers of each wave of a file.

        A receiver forms a wave of its own if it passes nothing on, or was failed by a source that others still use:
        no other receiver waits for it.
        """
        number, holders = 0, list(holders)
        for wave in waves(receivers, self.now):
            alone = [name for name in wave if name in self.mute or self.avoided.get(name, self.mute) - self.mute]
            together = {name: transfer for name, transfer in wave.items() if name not in alone}
            if together:
                yield f"{file}{_WAVE}{number:06}", list(holders), together
                number, holders = number + 1, holders + list(together)
            for name in alone:
                avoided = self.avoided.get(name, frozenset())
                yield f"{file}{_WAVE}{number:06}", [one for one in holders if one not in avoided], {name: wave[name]}
                number += 1

    def answer(self, plan: TransferPlan) -> tuple[Pipeline, ...]:
        """Return the plan's pipelines under the files' own names."""
        return tuple(replace(line, file=line.file.partition(_WAVE)[0]) for line in plan.pipelines)


def waves(receivers: Mapping[str, Transfer], now: float) -> Iterator[dict[str, Transfer]]:
    """Yield the receivers of a file in groups of about equal progress, the most advanced first."""
    have = {name: transfer.size_bytes - transfer.left_bytes(now) for name, transfer in receivers.items()}
    lag = max(LAG_BYTES, _LAG_S * max(transfer.flows for transfer in receivers.values()))
    wave: dict[str, Transfer] = {}
    head = 0.0
    for name in sorted(receivers, key=lambda name: (-have[name], name)):
        if wave and have[name] < head - lag:
            yield wave
            wave = {}
        head = head if wave else have[name]
        wave[name] = receivers[name]
    yield wave


def pipelines_of(file: str, receivers: Mapping[str, Transfer]) -> Iterator[Pipeline]:
    """Yield the pipelines in force of a file; each begins at a source, or at a receiver of another pipeline."""
    after: dict[str, str] = {}  # next in the line, which takes it at about the same rate
    firsts: list[str] = []
    for name, transfer in receivers.items():
        if transfer.source is None:
            continue
        if transfer.source in receivers and transfer.source not in after and _is_one_line(receivers, name):
            after[transfer.source] = name
        else:
            firsts.append(name)
    for first in firsts:
        line = [receivers[first].source or MASTER, first]
        while follower := after.get(line[-1]):
            line.append(follower)
        yield Pipeline(file, tuple(line), receivers[first].rate)


def _is_one_line(receivers: Mapping[str, Transfer], name: str) -> bool:
    rate, before = receivers[name].rate, receivers[receivers[name].source or ""].rate
    return abs(rate - before) <= _SAME_LINE * before


def _place(node: NetworkNode) -> tuple[bool, bool, list[tuple[int, str]], str]:
    """Return a node's sort key: hosts before switches, so that lines visit near hosts before they leave a switch.

    pc-9 comes before pc-10: neighbours in number are mostly neighbours on the wire.
    """
    words = [(int(word), "") if word.isdecimal() else (-1, word) for word in re.split(r"(\d+)", node.name)]
    return node.is_switch, node.name != MASTER, words, node.name


class TransferState:
    """The reported network, and the planner's present request. Starts empty with each start of the master."""

    def __init__(self) -> None:
        self.nodes: dict[str, NetworkNode] = {}  # from NetworkChanged events
        self.guesses: tuple[str, ...] = ()  # hosts whose places are guesses; none with an operator's file
        self.number = 0  # of the last request
        self.is_pending = False  # it has not been answered
        self.is_due = False  # something has changed since the last request
        self.is_outdated = False  # the network has changed since the last request
        self.held: set[str] = set()  # workers that may only take first pieces, until the next plan
        self.overdue_at: float | None = None  # time when the next transfer will be overdue, if nothing changes
        self.served: dict[str, list[tuple[str, str]]] = {}  # by source: files and their receivers
        self._network: tuple[tuple[str, ...], Network] | None = None
        self._copies: dict[str, tuple[int, list[str]]] | None = None

    def forget_copies(self) -> None:
        """Note that some worker has, or fetches, another file than before."""
        self._copies = None

    def copies(self, carriers: Mapping[str, Carrier]) -> Mapping[str, tuple[int, list[str]]]:
        """Return size and places of each file that some worker has or fetches; workers with all of it come first."""
        if self._copies is None:
            found: dict[str, tuple[int, list[str]]] = {}
            for name, carrier in sorted(carriers.items()):
                for file, size_bytes in carrier.has.items():
                    found.setdefault(file, (size_bytes, []))[1].append(name)
            for name, carrier in sorted(carriers.items()):
                for file, transfer in carrier.fetching.items():
                    found.setdefault(file, (transfer.size_bytes, []))[1].append(name)
            self._copies = found
        return self._copies

    def change(self, nodes: Iterable[NetworkNode], gone: Iterable[str]) -> None:
        """Apply new, changed and removed nodes. Raises ValueError if the result is not a tree."""
        changed = {name: node for name, node in self.nodes.items() if name not in set(gone)}
        changed |= {node.name: node for node in nodes}
        if changed:
            Network([*changed.values()])
        self.set_nodes(changed)
        self.is_due = self.is_outdated = True

    def set_nodes(self, nodes: dict[str, NetworkNode]) -> None:
        """Replace all nodes."""
        self.nodes, self._network = nodes, None
        self.guesses = tuple(name for name, node in nodes.items() if node.is_guess)

    def network(self, workers: Iterable[str]) -> Network:
        """Return the network with these workers. Workers that no event named are at the root, on 1 Gbit/s."""
        hosts = tuple(sorted(workers))
        if self._network is None or self._network[0] != hosts:
            known = self.nodes or {ROOT: NetworkNode(ROOT, None, is_switch=True)}
            root = next(node.name for node in known.values() if node.parent is None)
            missing = {MASTER, *hosts} - known.keys()
            nodes = known | {name: NetworkNode(name, root, UNKNOWN_RATE, UNKNOWN_RATE) for name in missing}
            nodes[MASTER] = replace(nodes[MASTER], up=nodes[MASTER].up * _SLIGHTLY_LESS)
            self._network = hosts, Network(sorted(nodes.values(), key=_place))
        return self._network[1]

    def switch_of(self, name: str) -> str | None:
        """Return the switch of a worker or the master; None if no event named it."""
        node = self.nodes.get(name)
        return node.parent if node is not None else None

    def is_host(self, name: str) -> bool:
        """True unless the network has a switch of that name, or it is the master's."""
        return name != MASTER and (name not in self.nodes or not self.nodes[name].is_switch)
