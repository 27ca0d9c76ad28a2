"""What is learnt of the way to the master from the frames and files that travel it anyway."""

import pytest

from loopline_worker.link.link_quality import Network


def test_the_delay_is_the_time_of_the_answer_less_what_the_master_took() -> None:
    network = Network()
    assert network.delay_s is None
    network.sent(1, now=10.0)
    network.answered(1, 0.5, now=10.6)
    assert network.delay_s == pytest.approx(0.1)


def test_what_is_measured_later_moves_it_little_by_little() -> None:
    network = Network()
    for seq, delay_s in enumerate([0.1, 0.9, 0.1], start=1):
        network.sent(seq, now=float(seq))
        network.answered(seq, 0.0, now=seq + delay_s)
    assert 0.1 < (network.delay_s or 0.0) < 0.3


def test_an_answer_that_says_not_how_long_it_took_or_to_what_tells_nothing() -> None:
    network = Network()
    network.sent(1, now=1.0)
    network.answered(1, None, now=2.0)
    network.answered(1, 0.0, now=3.0)
    network.sent(2, now=4.0)
    network.connected()
    network.answered(2, 0.0, now=5.0)
    assert network.delay_s is None


def test_clocks_that_disagree_a_little_make_no_negative_delay() -> None:
    network = Network()
    network.sent(1, now=1.0)
    network.answered(1, 0.2, now=1.1)
    assert network.delay_s == 0.0


def test_unanswered_reports_are_forgotten_in_the_end() -> None:
    network = Network()
    for seq in range(1, 1000):
        network.sent(seq, now=float(seq))
    network.answered(1, 0.0, now=1000.0)
    assert network.delay_s is None


def test_throughput_is_that_of_files_worth_measuring() -> None:
    network = Network()
    network.moved(1000, 1.0)
    assert network.throughput_bytes_s is None
    network.moved(10**6, 0.5)
    assert network.throughput_bytes_s == 2 * 10**6
    network.moved(10**6, 1.0)
    assert 10**6 < network.throughput_bytes_s < 2 * 10**6
