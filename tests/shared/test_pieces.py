"""Lists of pieces, and grants: a worker's checks before it trusts another one."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared import checksums, grants, pieces
from loopline_shared.checksums import ContentCheck
from loopline_shared.pieces import LEAST_PIECE_BYTES, MOST_PIECES, PieceLayout, PieceList
from loopline_shared.protocol.transfers import Grant

CONTENT = bytes(range(256)) * 4 * 1024 + b"the end"  # four pieces and a short one


def list_of(content: bytes) -> PieceList:
    check = ContentCheck(hashlib.sha256(content).hexdigest())
    made = PieceList.of(io.BytesIO(content), len(content), check)
    assert check.is_passed
    return made


@given(st.integers(0, 2**45))
def test_pieces_cover_a_file_without_gap_and_are_not_too_many(size_bytes: int) -> None:
    layout = PieceLayout(size_bytes)
    assert layout.count <= MOST_PIECES
    assert layout.start(0) == 0
    assert layout.start(layout.count) == size_bytes
    assert layout.piece_bytes == LEAST_PIECE_BYTES or layout.count > MOST_PIECES // 2
    if layout.count:
        last = layout.count - 1
        assert 0 < layout.length(last) <= layout.piece_bytes
        assert layout.start(last) == last * layout.piece_bytes


@pytest.mark.parametrize("has_blake3", [True, False])
def test_a_list_survives_the_way_and_finds_the_piece_with_a_wrong_byte(
    has_blake3: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_blake3:
        monkeypatch.setattr(checksums, "_blake3", None)
    made = list_of(CONTENT)
    assert made.algorithm == ("blake3" if has_blake3 else "sha256")
    assert PieceList.decode(made.encode()) == made
    layout = made.layout
    spoilt = bytearray(CONTENT)
    spoilt[layout.start(2) + 5] ^= 1
    parts = [bytes(spoilt[layout.start(n) : layout.start(n + 1)]) for n in range(layout.count)]
    assert [made.is_sound(n, part) for n, part in enumerate(parts)] == [True, True, False, True, True]
    assert not made.is_sound(1, parts[3] + b"x")
    assert not made.is_sound(layout.count, b"")


def test_a_computer_without_blake3_says_that_it_cannot_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list_of(CONTENT)
    assert made.can_be_checked
    monkeypatch.setattr(checksums, "_blake3", None)
    assert not made.can_be_checked
    assert not made.is_sound(0, CONTENT[:LEAST_PIECE_BYTES])


def test_hashes_agree_with_other_tools() -> None:
    first = CONTENT[:LEAST_PIECE_BYTES]
    assert list_of(CONTENT).digests[:32] == blake3(first).digest()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"loopline-pieces 1 blake3 10\n",
        b"loopline-pieces 1 blake3 10\n" + b"x" * 33,
        b"loopline-pieces 1 md5 10\n" + b"x" * 32,
        b"loopline-pieces 2 blake3 10\n" + b"x" * 32,
        b"loopline-pieces 1 blake3 -1\n" + b"x" * 32,
        b"loopline-pieces 1 blake3 " + b"9" * 17 + b"\n" + b"x" * 32,
    ],
)
def test_invalid_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        PieceList.decode(content)


def test_a_spoilt_file_is_noticed_while_its_list_is_made() -> None:
    check = ContentCheck("0" * 64)
    PieceList.of(io.BytesIO(CONTENT), len(CONTENT), check)
    assert not check.is_passed


def test_pieces_of_an_empty_file() -> None:
    assert list_of(b"") == PieceList(0, checksums.best_algorithm(), b"")
    assert pieces.piece_bytes(0) == LEAST_PIECE_BYTES


GRANT = Grant("a" * 64, "ant", "bee", 1_800_000_000.0)


def test_each_field_of_a_grant_and_the_key_make_another_secret() -> None:
    key = grants.worker_key(b"master", "ant", "boot")
    others = [
        replace(GRANT, sha256="b" * 64),
        replace(GRANT, source="bee", receiver="ant"),
        replace(GRANT, receiver="cat"),
        replace(GRANT, expires_at=GRANT.expires_at + 300),
    ]
    secrets = {grants.secret_of(key, grant) for grant in [GRANT, *others]}
    keys = {grants.worker_key(*words) for words in [(b"m", "ant", "b"), (b"n", "ant", "b"), (b"m", "ant", "c")]}
    secrets |= {grants.secret_of(other, GRANT) for other in keys}
    assert len(secrets) == 8


def test_a_proof_is_for_one_end_of_one_connection() -> None:
    secret = grants.secret_of(b"key", GRANT)
    made = [
        grants.proof(secret, "caller", b"opening", "0" * 32),
        grants.proof(secret, "listener", b"opening", "0" * 32),
        grants.proof(secret, "caller", b"another", "0" * 32),
        grants.proof(secret, "caller", b"opening", "1" * 32),
        grants.proof(b"other", "caller", b"opening", "0" * 32),
    ]
    assert len(set(made)) == 5
    assert grants.is_proof(made[0], grants.proof(secret, "caller", b"opening", "0" * 32))
    assert not grants.is_proof(made[0], made[1])
