"""``loopline join`` and ``loopline token join``."""

import io
import json
import sys
from pathlib import Path

import pytest

from loopline.cli import joining
from loopline.cli.errors import Exit
from loopline.service import install
from loopline_shared.joining import Membership, hash_of
from loopline_shared.rest.access import JoinTokenCreated, JoinTokenView, TokenView
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, hang_up, ok, page, refuse

VIEW = JoinTokenView(id="a1", uses=1, used=0, created_at=1.0, expires_at=2.0)
MADE = JoinTokenCreated(**VIEW.model_dump(), secret="lj_a1_x", address="http://lab-pc:7461")
IN = TokenView(id="b2", name="pc-1", role="worker", created_at=1.0)


def member(tmp_path: Path) -> Membership:
    found = Membership.read(tmp_path / "config" / "loopline" / "membership.json")
    assert found
    return found


def test_line_is_a_complete_command(run: Run, fake: FakeMaster) -> None:
    fake.on("POST /join-tokens", ok(MADE, 201))
    ran = run("token", "join", "--uses", "3", "--expires", "2h")
    assert ran.out.startswith("loopline join http://lab-pc:7461#lj_a1_x\n")
    assert fake.asked("POST /join-tokens")[0].body == {"uses": 3, "expires_s": 7200.0}


def test_line_bounds_what_its_computers_may_offer(run: Run, fake: FakeMaster) -> None:
    fake.on("POST /join-tokens", ok(MADE, 201))
    for words, offers in (("--offers fpga=1 --offers gpu=2", {"fpga": 1, "gpu": 2}), ("--offers none", {})):
        run("token", "join", *words.split())
        assert fake.asked("POST /join-tokens")[-1].body == {"uses": 1, "expires_s": 86400.0, "offers": offers}
    assert "`--offers none` alone" in run("token", "join", "--offers", "fpga=").err
    assert len(fake.asked("POST /join-tokens")) == 2


def test_address_unreachable_from_elsewhere_gives_a_warning(run: Run, fake: FakeMaster) -> None:
    fake.on("POST /join-tokens", ok(MADE.model_copy(update={"address": "http://127.0.0.1:1"}), 201))
    assert "--host 0.0.0.0" in run("token", "join").out
    assert (
        run("token", "join", "--address", "http://lab:1/", "--json").document["line"]
        == "loopline join http://lab:1#lj_a1_x"
    )


def test_lines_are_listed_and_revoked_like_tokens(run: Run, fake: FakeMaster) -> None:
    fake.on("GET /join-tokens", page(VIEW))
    fake.on("POST /join-tokens/a1/revoke", ok(VIEW))
    assert "a1" in run("token", "joins").out
    assert run("token", "revoke", "a1").out == "join token a1 is revoked: 0 of 1 have joined\n"


def test_joining_leaves_a_token_that_the_master_knows_by_its_hash(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    fake.on("POST /join", ok(IN, 201))
    ran = run("join", f"{fake.url}#lj_a1_x", "--name", "pc-1")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "start it: loopline worker" in ran.out
    kept = member(tmp_path)
    asked = fake.asked("POST /join")[0]
    assert asked.body == {
        "secret": "lj_a1_x",
        "worker": "pc-1",
        "token": kept.token.split("_")[1],
        "hash": hash_of(kept.token),
    }
    assert kept.token not in json.dumps(asked.body)
    assert "Authorization" not in asked.headers


def test_line_can_be_read_from_stdin(
    run: Run, fake: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("POST /join", ok(IN, 201))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"loopline join {fake.url}#lj_a1_x\n"))
    assert run("join").code == Exit.OK
    assert member(tmp_path).master == fake.url
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    ran = run("join")
    assert (ran.code, "expected the line that" in ran.err) == (Exit.USAGE, True)


def test_second_try_joins_as_the_same_computer(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    """As after a crash between the master's commit and our receipt of the response."""
    fake.on("POST /join", refuse(503, "away"))
    fake.on("POST /join", refuse(403, "join_refused"), ok(IN, 201))
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.NOT_AUTHORISED
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.OK
    first, second = (seen.body for seen in fake.asked("POST /join"))
    assert first == second


def test_failed_try_keeps_an_earlier_membership(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    before = Membership("http://other:7461", "pc-1", "ll_12345678_x")
    before.write(tmp_path / "config" / "loopline" / "membership.json")
    fake.on("POST /join", refuse(403, "join_refused"), ok(IN, 201))
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.NOT_AUTHORISED
    assert member(tmp_path) == before
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.OK
    assert member(tmp_path).master == fake.url
    assert [file.name for file in (tmp_path / "config" / "loopline").iterdir()] == ["membership.json"]


def test_joining_after_a_revocation_makes_a_new_token(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    before = Membership(fake.url, "pc-1", "ll_12345678_x")
    before.write(tmp_path / "config" / "loopline" / "membership.json")
    fake.on("POST /join", refuse(403, "join_token_refused"), ok(IN, 201))
    assert run("join", f"{fake.url}#lj_b2_x").code == Exit.OK
    first, second = (seen.body for seen in fake.asked("POST /join"))
    assert first["hash"] == hash_of("ll_12345678_x")
    assert (second["worker"], second["hash"]) == ("pc-1", hash_of(member(tmp_path).token))
    assert second["hash"] != first["hash"]


@pytest.mark.parametrize("pin", ["a" * 64, "b" * 64])
def test_moved_grid_keeps_the_name_and_token_of_a_worker(
    run: Run, fake: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin: str
) -> None:
    before = Membership("https://where-it-was:7461", "pc-1", "ll_12345678_x", "a" * 64, "its CA")
    before.write(tmp_path / "config" / "loopline" / "membership.json")
    monkeypatch.setattr(joining, "fetch_ca", lambda *_: "")
    fake.on("POST /join", ok(IN, 201))
    assert run("join", f"{fake.url}#lj_b2_x.{pin}").code == Exit.OK
    after = member(tmp_path)
    assert (after.master, after.fingerprint) == (fake.url, pin)
    assert (after.name == before.name, after.token == before.token) == (pin == before.fingerprint,) * 2


def test_joining_again_repairs_an_unreadable_membership(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    file = tmp_path / "config" / "loopline" / "membership.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    fake.on("POST /join", ok(IN, 201))
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.OK
    assert member(tmp_path).master == fake.url


def test_lost_response_is_requested_again(run: Run, fake: FakeMaster) -> None:
    fake.on("POST /join", hang_up(), ok(IN, 201))
    assert run("join", f"{fake.url}#lj_a1_x").code == Exit.OK
    first, second = (seen.body for seen in fake.asked("POST /join"))
    assert first == second


def test_invalid_line_is_refused_with_a_hint(run: Run) -> None:
    ran = run("join", "lab-pc:7461")
    assert ran.code == Exit.USAGE
    assert "loopline token join" in ran.err


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("contained", [True, False])
def test_computer_without_a_sandbox_joins_only_with_an_option(
    run: Run, fake: FakeMaster, monkeypatch: pytest.MonkeyPatch, contained: bool
) -> None:
    """A container has no owner's files, so the option is not needed there."""
    found = {"sandbox": "none", "means": "may use all", "reason": "there is no bwrap program", "contained": contained}
    ask = [sys.executable, "-c", f"print({json.dumps(json.dumps(found))})"]
    monkeypatch.setattr(joining, "program", lambda *_: ask)
    fake.on("POST /join", ok(IN, 201))
    ran = run("join", f"{fake.url}#lj_a1_x", "--name", "pc-1")
    assert ran.code == (Exit.OK if contained else Exit.FAILED)
    if not contained:
        assert "there is no bwrap program" in ran.err
        assert "--no-sandbox" in ran.err
        assert not fake.asked("POST /join"), "the computer does not join before its owner has agreed"
        agreed = run("join", f"{fake.url}#lj_a1_x", "--name", "pc-1", "--no-sandbox")
        assert "without a sandbox" in agreed.out


def test_leaving_reverts_everything_that_joining_changed(
    run: Run, fake: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[list[str]]()
    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(install, "_LINGERING", tmp_path / "linger")
    monkeypatch.setattr(install, "_run", lambda command: ran.append(list(command)))
    monkeypatch.setattr(install, "_succeeds", lambda _: True)
    config = tmp_path / "config"
    before = {file for file in config.rglob("*") if file.is_file()}
    fake.on("POST /join", ok(IN, 201))
    fake.on("POST /leave", refuse(503, "busy"))
    run("join", f"{fake.url}#lj_a1_x", "--name", "pc-1", "--service", "--no-sandbox")
    assert any(command[:2] == ["loginctl", "enable-linger"] for command in ran)
    failed = run("leave")
    assert "the token is not revoked" in failed.err, "it is still a member, and can try again"
    token = member(tmp_path).token
    fake.on("POST /leave", ok(IN))
    left = run("leave")
    assert (left.code, left.err) == (Exit.OK, "")
    assert "its token is revoked" in left.out
    assert fake.asked("POST /leave")[-1].headers["Authorization"] == f"Bearer {token}"
    assert ran[-1][:2] == ["loginctl", "disable-linger"]
    assert {file for file in config.rglob("*") if file.is_file()} == before
    assert "has not joined any master" in run("leave").err


def test_leaving_a_clone_keeps_the_token_of_the_original(run: Run, fake: FakeMaster, tmp_path: Path) -> None:
    fake.on("POST /join", ok(IN, 201))
    run("join", f"{fake.url}#lj_a1_x", "--name", "pc-1", "--no-sandbox")
    assert "its token is still valid" in run("leave", "--here-only").out
    assert fake.asked("POST /leave") == []
    assert not (tmp_path / "config" / "loopline" / "membership.json").exists()
