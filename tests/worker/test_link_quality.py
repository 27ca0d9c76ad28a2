"""What is learnt of the way to the master from the frames and files that travel it anyway."""

import pytest

from loopline_worker.link.link_quality import LinkQuality


def test_the_delay_is_the_time_of_the_answer_less_what_the_master_took() -> None:
    quality = LinkQuality()
    assert quality.delay_s is None
    quality.sent(1, now=10.0)
    quality.answered(1, 0.5, now=10.6)
    assert quality.delay_s == pytest.approx(0.1)


def test_one_slow_answer_does_not_move_it_and_eight_do() -> None:
    quality = LinkQuality()
    for seq, delay_s in enumerate([0.9, 0.1, *[0.9] * 7], start=1):
        quality.sent(seq, now=float(seq))
        quality.answered(seq, 0.0, now=seq + delay_s)
    assert quality.delay_s == pytest.approx(0.1)
    quality.sent(10, now=10.0)
    quality.answered(10, 0.0, now=10.9)
    assert quality.delay_s == pytest.approx(0.9)


def test_an_answer_that_says_not_how_long_it_took_or_to_what_tells_nothing() -> None:
    quality = LinkQuality()
    quality.sent(1, now=1.0)
    quality.answered(1, None, now=2.0)
    quality.answered(1, 0.0, now=3.0)
    quality.sent(2, now=4.0)
    quality.connected()
    quality.answered(2, 0.0, now=5.0)
    assert quality.delay_s is None


def test_clocks_that_disagree_a_little_make_no_negative_delay() -> None:
    quality = LinkQuality()
    quality.sent(1, now=1.0)
    quality.answered(1, 0.2, now=1.1)
    assert quality.delay_s == 0.0


def test_unanswered_reports_are_forgotten_in_the_end() -> None:
    quality = LinkQuality()
    for seq in range(1, 1000):
        quality.sent(seq, now=float(seq))
    quality.answered(1, 0.0, now=1000.0)
    assert quality.delay_s is None


def test_throughput_is_that_of_files_worth_measuring() -> None:
    quality = LinkQuality()
    quality.moved(1000, 1.0)
    assert quality.throughput_bytes_s is None
    quality.moved(10**6, 0.5)
    assert quality.throughput_bytes_s == 2 * 10**6
    quality.moved(10**6, 1.0)
    assert 10**6 < quality.throughput_bytes_s < 2 * 10**6
