"""Networks and servers against closed forms, and against literal versions that go step by step."""

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_simulator.kernel import Kernel
from loopline_simulator.papers.global_computing.laws import Exponential, Numbers, draws
from loopline_simulator.papers.global_computing.network import PacketNetwork, PacketQueue
from loopline_simulator.papers.global_computing.servers import (
    FirstComeServer,
    ProcessorSharingServer,
    RoundRobinServer,
    Server,
)
from loopline_simulator.papers.global_computing.traffic import Packets, Rate
from loopline_simulator.streams import stream
from tests.campaign import tried

PACKET = 1000.0


def steady(rate: float, name: str) -> Packets:
    """Return foreign packets at ``rate`` per second."""
    return Packets(Rate(iter([(0.0, rate * PACKET)])), rate * PACKET, PACKET, Exponential(), 1, (name,))


def in_system(use: float, places: int) -> list[float]:
    """Of M/M/1/N: how often how many are in it."""
    total = sum(use**n for n in range(places + 1))
    return [use**n / total for n in range(places + 1)]


@pytest.mark.campaign
@pytest.mark.parametrize(("places", "use"), [(2, 3.0), (5, 0.9)])
def test_transfer_times_and_losses_are_those_of_m_m_1_n(places: int, use: float) -> None:
    """One packet a second is served; one in six arriving packets is ours."""
    random, count = stream(2, "ours"), 500_000
    network = PacketNetwork(steady(use * 5 / 6, f"m/m/1/{places}"), PACKET, places, PACKET)
    times = random.exponential(6 / use, count).cumsum().tolist()
    sizes = (random.standard_exponential(count) * PACKET).tolist()
    transfers = [
        leaves - now
        for now, size in zip(times, sizes, strict=True)
        if (leaves := network.offer(now, size)) is not None
    ]
    shares = in_system(use, places)
    mean_in_it, let_in = sum(n * share for n, share in enumerate(shares)), 1 - shares[-1]
    assert sum(transfers) / len(transfers) == pytest.approx(mean_in_it / (use * let_in), rel=0.005)
    assert len(transfers) / count == pytest.approx(let_in, rel=0.005)


def test_a_line_that_is_never_empty_gets_what_the_paper_lets_expect() -> None:
    """T_act * (1 - P_0), with T_act a tenth of the bandwidth."""
    kernel, times = Kernel(), []
    network = PacketNetwork(steady(9.0, "line"), PACKET, 2, PACKET)
    line = PacketQueue(kernel, draws(Exponential(), 1.0, stream(3, "line")), PACKET)
    line.send(network, 20_000, lambda: None, times.append)
    kernel.run()
    assert 20_000 / kernel.now == pytest.approx(0.1 * (1 - in_system(10.0, 2)[0]), rel=0.02)
    assert sum(times) == pytest.approx(kernel.now, rel=0.001)


DISCIPLINES: dict[str, Callable[[Kernel], Server]] = {
    "first-come": lambda kernel: FirstComeServer(kernel, 2.0),
    "processor-sharing": lambda kernel: ProcessorSharingServer(kernel, 2.0),
    "round-robin": lambda kernel: RoundRobinServer(kernel, 2.0, 0.125),
}


def ends_of(make: Callable[[Kernel], Server], jobs: list[tuple[float, float]]) -> tuple[list[float], Server]:
    """Of jobs that come at a time with an amount of work."""
    kernel, ends = Kernel(), [0.0] * len(jobs)
    server = make(kernel)

    def come(number: int, work: float) -> None:
        server.accept(work, lambda: ends.__setitem__(number, kernel.now))

    for number, (at, work) in enumerate(jobs):
        kernel.at(at, lambda number=number, work=work: come(number, work))
    kernel.run()
    return ends, server


@pytest.mark.campaign
@pytest.mark.parametrize(("discipline", "count"), [("first-come", 200_000), ("processor-sharing", 100_000)])
def test_the_mean_time_in_m_m_1_is_that_of_its_formula(discipline: str, count: int) -> None:
    random, use = stream(5, "m/m/1"), 0.5
    times = random.exponential(1 / use, count).cumsum().tolist()
    works = (2 * random.standard_exponential(count)).tolist()
    ends, server = ends_of(DISCIPLINES[discipline], list(zip(times, works, strict=True)))
    waits = [end - at - work / 2 for end, at, work in zip(ends, times, works, strict=True)]
    assert sum(waits) / count == pytest.approx(use / (1 - use), rel=0.03)
    assert server.busy_s / ends[-1] == pytest.approx(use, rel=0.01)


jobs_in_ticks = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=8).map(sorted)


@settings(max_examples=tried(20, 1000), deadline=None)
@given(jobs_in_ticks)
def test_processor_sharing_agrees_with_small_steps(jobs: list[tuple[int, int]]) -> None:
    step, now, done = 1 / 64, 0.0, [0.0] * len(jobs)
    left = [float(work) for _, work in jobs]
    while any(work > 0 for work in left):
        there = [n for n, (at, _) in enumerate(jobs) if at <= now and left[n] > 0]
        for n in there:
            left[n] -= step * 2 / len(there)
            if left[n] <= 0:
                done[n] = now + step
        now += step
    ends, _ = ends_of(DISCIPLINES["processor-sharing"], [(float(at), float(work)) for at, work in jobs])
    assert ends == pytest.approx(done, abs=step * (len(jobs) + 1) ** 2)


@given(jobs_in_ticks, st.integers(1, 50))
def test_round_robin_agrees_with_single_ticks(jobs: list[tuple[int, int]], quantum: int) -> None:
    """With a quantum longer than every job it is first come, first served."""
    queue: deque[list[int]] = deque()  # number, work left
    now, had, done = 0, 0, [0] * len(jobs)
    while not all(done):
        queue.extend([n, work] for n, (at, work) in enumerate(jobs) if at == now)
        if had == quantum:
            queue.rotate(-1)  # an arrival of this moment precedes the job whose turn ends
            had = 0
        now += 1
        if queue:
            queue[0][1] -= 1
            had += 1
            if not queue[0][1]:
                done[queue.popleft()[0]] = now
                had = 0
    floats = [(float(at), float(work)) for at, work in jobs]
    assert ends_of(lambda kernel: RoundRobinServer(kernel, 1.0, float(quantum)), floats)[0] == done
    if quantum >= 20:
        assert ends_of(lambda kernel: FirstComeServer(kernel, 1.0), floats)[0] == done


@given(jobs_in_ticks)
def test_all_disciplines_are_equally_busy(jobs: list[tuple[int, int]]) -> None:
    floats = [(float(at), float(work)) for at, work in jobs]
    outcomes = [ends_of(make, floats) for make in DISCIPLINES.values()]
    assert {server.jobs for _, server in outcomes} == {0}
    for ends, server in outcomes:
        assert max(ends) == pytest.approx(max(outcomes[0][0]))
        assert server.busy_s == pytest.approx(sum(work for _, work in jobs) / 2)
        assert server.unfinished_s == 0.0


def test_unfinished_work_is_the_remaining_time() -> None:
    for make in DISCIPLINES.values():
        kernel = Kernel()
        server = make(kernel)
        server.accept(8.0, lambda: None)
        server.accept(2.0, lambda: None)
        kernel.run(until=1.5)
        kernel.at(1.5, lambda: None)
        kernel.run(until=1.5)
        assert server.unfinished_s == pytest.approx(3.5)


class Given:
    """Foreign packets as a list, in windows of ten seconds."""

    window_s = 10.0

    def __init__(self, packets: list[tuple[float, float]]) -> None:
        self._packets = packets

    def window(self, number: int) -> tuple[list[float], Numbers]:
        inside = [packet for packet in self._packets if number * 10 <= packet[0] < number * 10 + 10]
        return [at for at, _ in inside], np.array([size for _, size in inside])


moments = st.integers(0, 4000).map(lambda n: n / 64)
packet_lists = st.lists(st.tuples(moments, st.sampled_from([0.25, 0.5, 1.0, 2.0])), max_size=80).map(sorted)


def never_forgetting(packets: Given | Packets, bandwidth: float, places: int) -> PacketNetwork:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loopline_simulator.papers.global_computing.network._MEMORY", 1e12)
        return PacketNetwork(packets, bandwidth, places, bandwidth)


@settings(max_examples=tried(40, 3000), deadline=None)
@given(packet_lists, packet_lists, st.integers(1, 4))
def test_lazy_network_agrees_with_an_eager_one(
    others: list[tuple[float, float]], ours: list[tuple[float, float]], places: int
) -> None:
    network = never_forgetting(Given(others), 1.0, places)
    found = [network.offer(at, size) for at, size in ours]
    leaving: list[float] = []
    expected = []
    both = [(at, 0, size) for at, size in others] + [(at, 1, size) for at, size in ours]
    for at, is_ours, size in sorted(both, key=lambda packet: packet[:2]):
        leaving = [leaves for leaves in leaving if leaves > at]
        leaves = max([at, *leaving]) + size if len(leaving) < places else None
        leaving += [] if leaves is None else [leaves]
        expected += [leaves] if is_ours else []
    assert found == expected


@pytest.mark.campaign
def test_old_packets_do_not_matter() -> None:
    """Queried rarely, it skips packets too old to matter, and its occupancy agrees with the formula."""
    for use, places in ((1.0, 3), (4.0, 2)):
        others, asked = steady(use, f"{use}"), [500.0 * n for n in range(1, 4001)]
        network = PacketNetwork(others, PACKET, places, PACKET)
        found = sum(network.offer(at, PACKET) is not None for at in asked) / len(asked)
        assert found == pytest.approx(1 - in_system(use, places)[-1], abs=0.025)
        assert 0 < network.passed < use * asked[-1] / 5
