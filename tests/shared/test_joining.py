import stat
from pathlib import Path

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.joining import JoinLine, Membership, hash_of, new_worker_token, token_id


@pytest.mark.parametrize("fingerprint", ["", "ab" * 32])
def test_a_line_is_read_as_it_was_written(fingerprint: str) -> None:
    line = JoinLine("http://lab-pc:7461", "lj_12ab_s-e_cret", fingerprint)
    assert JoinLine.parse(str(line)) == line
    assert JoinLine.parse(f" loopline join {line}\n") == line  # as it was pasted


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://Lab-PC:7461/", "http://lab-pc:7461"),
        ("http://lab:80", "http://lab"),
        ("https://LAB:443/Grid/", "https://lab/Grid"),
        ("https://lab:80", "https://lab:80"),
        ("http://[FE80::1]:7461", "http://[fe80::1]:7461"),
        ("https://One:7461/,https://two:7461", "https://one:7461,https://two:7461"),  # a master and its standby
    ],
)
def test_an_address_is_written_in_one_way(written: str, meant: str) -> None:
    assert JoinLine.parse(f"{written}#lj_1_x").master == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lab-pc:7461",
        "http://lab-pc:7461",
        "http://#lj_1_x",
        "ftp://a#lj_1_x",
        "http://a,b#lj_1_x",
        "http://a#ll_1_x",
        "http://a:x#lj_1_x",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="loopline token join"):
        JoinLine.parse(text)


def test_membership_file_is_readable_by_its_user_only(tmp_path: Path) -> None:
    file = tmp_path / "config" / "membership.json"
    member = Membership("http://lab-pc:7461", "pc-1", "ll_1_x", "ab")
    assert Membership.read(file) is None
    member.write(file)
    assert Membership.read(file) == member
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]


def test_unreadable_membership_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('{"master": 1}')
    with pytest.raises(LooplineError) as caught:
        Membership.read(tmp_path / "file")
    assert "loopline join" in caught.value.hint


def test_a_token_names_itself() -> None:
    token = new_worker_token()
    assert token == f"ll_{token_id(token)}_{token.split('_', 2)[2]}"
    assert len(hash_of(token)) == 64
