"""Rates, in virtual time: bytes are counted, no clock is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loopline_worker.peers.token_bucket import TokenBucket

PIECE = 2**18


@given(
    st.floats(1e3, 1e9),
    st.floats(1e3, 1e7),
    st.lists(st.tuples(st.integers(1, PIECE), st.floats(0, 2)), min_size=1, max_size=60),
)
def test_the_rate_is_kept_and_used(rate: float, burst: float, wishes: list[tuple[int, float]]) -> None:
    """Never more than the burst, what the rate gives, and one piece; and whoever waits as told never waits again."""
    bucket, now, spent = TokenBucket(rate, burst), 0.0, 0
    for count, idle_s in wishes:
        now += idle_s
        now += bucket.wait_s(now)
        assert bucket.wait_s(now + 1e-3) == 0.0
        bucket.spend(count, now)
        spent += count
        assert spent <= burst + rate * now + count + 2


def test_two_that_share_a_bucket_share_its_rate() -> None:
    bucket, now, spent = TokenBucket(1000.0, 100.0), 0.0, [0, 0]
    while now < 100.0:
        for which in (0, 1):
            now += bucket.wait_s(now)
            bucket.spend(50, now)
            spent[which] += 50
    assert 100_000 <= sum(spent) <= 100_000 + 100 + 100
    assert spent[0] == spent[1]


def test_without_a_rate_nobody_waits_and_a_new_rate_counts_from_now() -> None:
    bucket = TokenBucket(None, 100.0)
    bucket.spend(10**9, 0.0)
    assert bucket.wait_s(0.0) == 0.0
    bucket = TokenBucket(10.0, 100.0)
    bucket.spend(300, 0.0)
    assert bucket.wait_s(0.0) == 20.1  # until one token is there
    bucket.change(100.0, 10.0)
    assert bucket.wait_s(10.0) == 1.01
