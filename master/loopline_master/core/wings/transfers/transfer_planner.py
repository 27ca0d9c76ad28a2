"""A plan for all transfers: sources, lines and rates, and whether other sources are better (Takahashi et al., 3).

1. Each file as if it were alone: sources and lines (``forest.py``). Running lines stay (section 3.5).
2. Rates for all of them together (``programme.py``), by the given solver.
3. Re-planning (section 3.4): for each file with several sources, new lines are made on the capacity that the other
   files leave. The paper adopts any lines that differ, which may lose. Here lines are adopted only if this capacity
   carries more to the file's receivers than they get now: then the others keep their rates, and the sum cannot fall.
   Beyond the paper, slower receivers may get a line of their own, so that they do not slow down the others: it begins
   at the last receiver of the faster line, which has the pieces first and whose own link outwards is idle. So the
   file leaves its source once.

Re-planning begins with fair rates, because the best rates leave no capacity on the links that matter, and continues
with the solver's unless there is very much to plan. Its result is adopted only if the objective does not fall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.forest import pipelines
from loopline_master.core.wings.transfers.pipeline import Pipeline, PlanRequest, TransferPlan
from loopline_master.core.wings.transfers.programme import Follow, LinearProgramme, Share, Solve, programme

_GAIN = 1 + 1e-9
"""Other lines for a file that does not move yet must be better by this factor: more than rounding."""
_GAIN_RUNNING = 1.05
"""... and for a file that moves: a host keeps the part that it has, but its line is broken off and made again."""
_ROUNDS = 1
"""Number of passes of re-planning over all files. A second costs as much, and adds a few per cent at most."""
_MOST_DEMANDS = 500
"""Limit of demands for re-planning from the solver's rates: 50 ms for 2,000 on 200 hosts without it."""
_LEAD_S = 10.0
"""A source that is itself a receiver may use up its lead within this time."""
_MOST_CLASSES = 3
"""Number of lines that one line may be split into ..."""
_JUMP = 1.5
"""... and the minimum ratio of their receivers' possible rates."""


@dataclass(frozen=True, slots=True)
class _Line:
    hosts: tuple[int, ...]
    use: dict[int, int]  # uses of each direction
    rate: float = 0.0

    @property
    def receivers(self) -> int:
        return len(self.hosts) - 1

    def at(self, rate: float) -> _Line:
        """Return the same line at another rate."""
        return _Line(self.hosts, self.use, rate)


_Draft = dict[str, list[_Line]]
"""The lines of each file."""


def plan(request: PlanRequest, solve: Solve, rounds: int = _ROUNDS, share: Share | None = None) -> TransferPlan:
    """Return a plan for the request; ``rounds`` of re-planning, 0 for none.

    The lines are chosen by the rates of ``solve``. If ``share`` is given, they flow at its rates. Raises KeyError for
    hosts that the network does not have.
    """
    return _Planner(request, solve).plan(rounds, share)


class _Planner:
    def __init__(self, request: PlanRequest, solve: Solve) -> None:
        network = self._network = request.network
        self._solve, self._least_rate = solve, request.least_rate
        self._ways: dict[tuple[int, int], list[int]] = {}
        self._programmes: dict[tuple[tuple[str, tuple[int, ...]], ...], LinearProgramme] = {}
        self._wanting: dict[str, set[int]] = {}
        self._overdue: dict[str, set[int]] = defaultdict(set)
        for demand in request.demands:
            host = network.number[demand.host]
            if demand.host not in request.holders.get(demand.file, ()):
                self._wanting.setdefault(demand.file, set()).add(host)
                if demand.overdue:
                    self._overdue[demand.file].add(host)
        self._holders = {
            file: {network.number[host] for host in request.holders.get(file, ())} for file in self._wanting
        }
        self._leads = request.leads
        self._running = self._kept(request.running)

    def plan(self, rounds: int, share: Share | None) -> TransferPlan:
        first = self._first_draft()
        kept = self._solved(first, self._solve)
        fair = self._improved(self._solved(first, fill), fill, rounds)
        best = self._solved(fair, self._solve)
        if sum(map(len, self._wanting.values())) <= _MOST_DEMANDS:
            best = self._improved(best, self._solve, rounds)
        best = best if _throughput(best) > _throughput(kept) else kept
        if share:
            best = _at_rates(best, share(self._programme(best), [line.rate for _, line in _flat(best)]))
        return self._in_words(best)

    def _kept(self, running: Iterable[Pipeline]) -> _Draft:
        """Return the running lines whose source exists, less the hosts that no longer want their file.

        A line that begins at a receiver comes after that receiver's own.
        """
        number, found = self._network.number, defaultdict[str, list[tuple[int, ...]]](list)
        for pipeline in running:
            wanting = self._wanting.get(pipeline.file, set())
            line = [number[host] for host in pipeline.receivers if number.get(host) in wanting]
            if line:
                found[pipeline.file].append((number.get(pipeline.hosts[0], -1), *line))
        return {file: kept for file, lines in found.items() if (kept := self._connected(file, lines))}

    def _connected(self, file: str, lines: Sequence[tuple[int, ...]]) -> list[_Line]:
        reached, found = set(self._holders[file]), list[_Line]()
        while more := [line for line in lines if line[0] in reached]:
            lines = [line for line in lines if line[0] not in reached]
            found += map(self._line, more)
            reached.update(*more)
        return found

    def _first_draft(self) -> _Draft:
        draft: _Draft = {}
        for file, wanting in sorted(self._wanting.items()):
            kept = self._running.get(file, [])
            waiting = wanting.difference(*(line.hosts for line in kept))
            draft[file] = [*kept, *self._lines(self._network.limits, file, waiting)]
        return draft

    def _lines(self, free: Sequence[float], file: str, receivers: set[int]) -> list[_Line]:
        return [self._line(hosts) for hosts in pipelines(self._network, free, self._holders[file], receivers)]

    def _line(self, hosts: tuple[int, ...]) -> _Line:
        """Return a line with its use of the network, like ``Network.use``; ways between hosts are cached."""
        use: dict[int, int] = {}
        for pair in pairwise(hosts):
            way = self._ways.get(pair)
            if way is None:
                way = self._ways[pair] = self._network.way(*pair)
            for direction in way:
                use[direction] = use.get(direction, 0) + 1
        return _Line(hosts, dict.fromkeys(use, 1) if self._network.summed else use)

    def _improved(self, draft: _Draft, solve: Solve, rounds: int) -> _Draft:
        """Return the draft after re-planning, or unchanged if that did not help."""
        for _ in range(rounds):
            changed = self._replanned(draft)
            if changed is None:
                break
            changed = self._solved(changed, solve)
            if _throughput(changed) < _throughput(draft):
                break
            draft = changed
        return draft

    def _solved(self, draft: _Draft, solve: Solve) -> _Draft:
        """Return the same lines with the solver's rates."""
        return _at_rates(draft, solve(self._programme(draft)))

    def _programme(self, draft: _Draft) -> LinearProgramme:
        """Return the programme of a draft's lines, cached for the next solver."""
        flat = _flat(draft)
        key = tuple((file, line.hosts) for file, line in flat)
        found = self._programmes.get(key)
        if found is None:
            asked = [self._asked(file, line) for file, line in flat]
            uses, receivers = [line.use for _, line in flat], [line.receivers for _, line in flat]
            found = self._programmes[key] = programme(self._network, uses, receivers, asked, self._follows(flat))
        return found

    def _follows(self, flat: Sequence[tuple[str, _Line]]) -> tuple[Follow, ...]:
        """Return the lines that begin at a receiver of another line of the file or wave, or of an earlier wave."""
        names, found = [node.name for node in self._network.nodes], list[Follow]()
        receiving: dict[tuple[str, str], int] = {}
        for number, (file, line) in enumerate(flat):
            receiving |= dict.fromkeys(((file, names[host]) for host in line.hosts[1:]), number)
        for number, (file, line) in enumerate(flat):
            source = names[line.hosts[0]]
            wave, lead_bytes = self._leads.get(file, {}).get(source, (file, 0.0))
            if (ahead := receiving.get((wave, source))) is not None:
                found.append((number, ahead, lead_bytes / _LEAD_S))
        return tuple(found)

    def _asked(self, file: str, line: _Line) -> float:
        """Return the minimum rate of a line."""
        overdue = self._overdue.get(file)
        return self._least_rate if overdue and not overdue.isdisjoint(line.hosts) else 0.0

    def _replanned(self, draft: _Draft) -> _Draft | None:
        """Return the draft with better lines for some files; None if no file has better ones."""
        free, changed = list(self._network.limits), dict(draft)
        for lines in draft.values():
            _occupy(free, lines)
        for file, lines in draft.items():
            _occupy(free, lines, back=True)
            others = [
                part for line in self._lines(free, file, self._wanting[file]) for part in self._split(free, line)
            ]
            gain = _GAIN_RUNNING if file in self._running else _GAIN
            if _arriving(others) > gain * _arriving(lines):
                changed[file] = others
            _occupy(free, changed[file])
        return None if all(changed[file] is draft[file] for file in draft) else changed

    def _split(self, free: Sequence[float], line: _Line) -> list[_Line]:
        """Return the line at the rate that is free all along it, or a faster one and others behind it.

        A line is as slow as its slowest receiver. So the slower receivers may form a line of their own, behind the
        others; it may be split again.
        """
        done: list[_Line] = []
        rest, left = _at_width(free, line), list(free)
        for _ in range(_MOST_CLASSES - 1):
            found = max(self._halves(left, rest), key=_arriving, default=None)
            if found is None or _arriving(found) <= _arriving([rest]) * _GAIN:
                break
            fast, rest = found
            done.append(fast)
            _occupy(left, [fast])
        return [*done, rest]

    def _halves(self, free: Sequence[float], line: _Line) -> Iterator[tuple[_Line, _Line]]:
        """Yield the line's faster receivers, and behind them its slower ones, cut where their widths differ most.

        The slower ones come in the order of the way back, which uses the links in the other direction.
        """
        source, receivers = line.hosts[0], line.hosts[1:]
        widths = self._widths(free, source, receivers)
        levels = sorted(set(widths.values()))
        jumps = [(high - low * _JUMP, high) for low, high in pairwise(levels) if high > low * _JUMP]
        for _, width in sorted(jumps, reverse=True)[:_MOST_CLASSES]:
            slow, fast = ([host for host in receivers if (widths[host] >= width) is side] for side in (False, True))
            first = _at_width(free, self._line((source, *fast)))
            left = list(free)
            _occupy(left, [first])
            behind = _at_width(left, self._line((fast[-1], *reversed(slow))))
            yield first, behind.at(min(behind.rate, first.rate))

    def _widths(self, free: Sequence[float], source: int, hosts: Sequence[int]) -> dict[int, float]:
        """Return the rates at which the hosts could receive from the source and pass on."""
        network, found = self._network, dict[int, float]()
        upto: dict[int, float] = {}  # by switch
        for host in hosts:
            switch = network.parent[host]
            if switch not in upto:
                upto[switch] = min(free[direction] for direction in network.way(source, switch))
            found[host] = max(0.0, min(upto[switch], free[network.ups[host]], free[network.downs[host]]))
        return found

    def _in_words(self, draft: Mapping[str, Sequence[_Line]]) -> TransferPlan:
        nodes = self._network.nodes
        found = tuple(
            Pipeline(file, tuple(nodes[host].name for host in line.hosts), line.rate)
            for file, lines in draft.items()
            for line in lines
        )
        return TransferPlan(found, _throughput(draft))


def _flat(draft: _Draft) -> list[tuple[str, _Line]]:
    return [(file, line) for file, lines in draft.items() for line in lines]


def _at_rates(draft: _Draft, rates: Iterable[float]) -> _Draft:
    """Return the same lines at these rates, which are in the order of ``_flat``."""
    following = iter(rates)
    return {file: [line.at(next(following)) for line in lines] for file, lines in draft.items()}


def _at_width(free: Sequence[float], line: _Line) -> _Line:
    """Return the line at the rate that is free all along it."""
    return line.at(min(max(0.0, free[direction]) / count for direction, count in line.use.items()))


def _occupy(free: list[float], lines: Iterable[_Line], *, back: bool = False) -> None:
    """Subtract the lines' use from the free capacity, or give it back."""
    sign = -1 if back else 1
    for line in lines:
        for direction, count in line.use.items():
            free[direction] -= sign * count * line.rate


def _arriving(lines: Iterable[_Line]) -> float:
    return sum(line.rate * line.receivers for line in lines)


def _throughput(draft: Mapping[str, Sequence[_Line]]) -> float:
    return sum(map(_arriving, draft.values()))
