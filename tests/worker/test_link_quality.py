"""Delay and throughput of the link, measured from regular frames and files."""

import pytest

from loopline_worker.link.link_quality import LinkQuality


def test_delay_excludes_the_time_at_the_master() -> None:
    quality = LinkQuality()
    assert quality.delay_s is None
    quality.sent(1, now=10.0)
    quality.answered(1, 0.5, now=10.6)
    assert quality.delay_s == pytest.approx(0.1)


def test_delay_changes_after_eight_slow_answers_not_one() -> None:
    quality = LinkQuality()
    for seq, delay_s in enumerate([0.9, 0.1, *[0.9] * 7], start=1):
        quality.sent(seq, now=float(seq))
        quality.answered(seq, 0.0, now=seq + delay_s)
    assert quality.delay_s == pytest.approx(0.1)
    quality.sent(10, now=10.0)
    quality.answered(10, 0.0, now=10.9)
    assert quality.delay_s == pytest.approx(0.9)


def test_answer_without_its_report_or_duration_is_ignored() -> None:
    quality = LinkQuality()
    quality.sent(1, now=1.0)
    quality.answered(1, None, now=2.0)
    quality.answered(1, 0.0, now=3.0)
    quality.sent(2, now=4.0)
    quality.connected()
    quality.answered(2, 0.0, now=5.0)
    assert quality.delay_s is None


def test_slightly_different_clocks_give_no_negative_delay() -> None:
    quality = LinkQuality()
    quality.sent(1, now=1.0)
    quality.answered(1, 0.2, now=1.1)
    assert quality.delay_s == 0.0


def test_unanswered_reports_are_eventually_dropped() -> None:
    quality = LinkQuality()
    for seq in range(1, 1000):
        quality.sent(seq, now=float(seq))
    quality.answered(1, 0.0, now=1000.0)
    assert quality.delay_s is None


def test_throughput_is_measured_only_from_large_files() -> None:
    quality = LinkQuality()
    quality.moved(1000, 1.0)
    assert quality.throughput_bytes_s is None
    quality.moved(10**6, 0.5)
    assert quality.throughput_bytes_s == 2 * 10**6
    quality.moved(10**6, 1.0)
    assert 10**6 < quality.throughput_bytes_s < 2 * 10**6
