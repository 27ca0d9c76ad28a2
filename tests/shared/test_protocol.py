"""The worker link without I/O: messages to frames and back, and both ends of a session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline_shared.errors import ProtocolError
from loopline_shared.model import (
    INLINE_LIMIT_BYTES,
    MAX_ID,
    MAX_INLINE_BYTES,
    AttemptId,
    Facts,
    Held,
    Load,
    Outcome,
    Output,
    Result,
    TaskId,
)
from loopline_shared.protocol import link_session
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.link_session import ANSWER, MasterSession, WorkerSession
from loopline_shared.protocol.transfers import PeerReport
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    MAX_FRAME_VALUES,
    MAX_HELLO_BYTES,
    MAX_RESULTS_PER_REPORT,
    PROTOCOL_VERSION,
    Assign,
    Hello,
    Refused,
    Report,
    Run,
    Welcome,
)
from tests.campaign import PATIENT, tried

# --- every message survives the way -----------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
plain_names = st.text("Az0._-", max_size=9).map("n{}".format)
counts = st.integers(0, MAX_ID)
seconds = st.floats(0, 1e10)
ids = st.builds(AttemptId, *[st.integers(0, 10**15)] * 3)
outputs = st.builds(
    Output,
    size_bytes=counts,
    cut=st.booleans(),
    data=st.binary(max_size=40),
    sha256=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
)
results = st.builds(
    Result,
    attempt=ids,
    outcome=st.sampled_from(Outcome),
    exit_code=st.none() | st.integers(-(2**31), 2**32),
    reason=texts,
    wall_s=seconds,
    cpu_s=seconds,
    peak_memory_bytes=counts,
    stdout=outputs,
    stderr=outputs,
)
loads = st.builds(
    Load,
    slots=st.integers(0, 65536),
    spare_cpu=seconds,
    memory_available_bytes=counts,
    disk_free_bytes=counts,
)
all_facts = st.builds(
    Facts,
    os=texts,
    arch=texts,
    python=texts,
    agent=texts,
    model=texts,
    cpus=st.integers(1, 65536),
    memory_bytes=counts,
    slots=st.integers(1, 65536),
    labels=st.lists(plain_names, max_size=3).map(tuple),
    speed=st.floats(1e-6, 1e6),
)
hellos = st.builds(
    Hello,
    version=st.integers(0, 99),
    worker=plain_names,
    boot=st.text("abc0", min_size=1),
    facts=all_facts,
    kind=st.just("hello"),
)
reports = st.builds(
    Report,
    seq=counts,
    seen=counts,
    holding=st.lists(st.builds(Held, attempt=ids, wall_s=seconds, cpu_s=seconds), max_size=3).map(tuple),
    results=st.lists(results, max_size=3).map(tuple),
    load=loads,
    waiting=st.lists(ids, max_size=9).map(ranges_of),
    kind=st.just("report"),
)
scalars = st.one_of(
    texts, st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
)
runs = st.builds(
    Run,
    attempt=ids,
    command=st.lists(texts, max_size=3).map(tuple),
    parameters=st.dictionaries(texts, scalars, max_size=3),
    environment=st.dictionaries(texts, texts, max_size=3),
    job_name=texts,
    slots=st.integers(1, 99),
    timeout_s=st.none() | seconds,
)
assigns = st.builds(
    Assign,
    seq=counts,
    seen=counts,
    run=st.lists(runs, max_size=3).map(tuple),
    cancel=st.lists(ids, max_size=3).map(tuple),
    kind=st.just("assign"),
)
welcomes = st.builds(Welcome, report_every_s=seconds, lease_s=seconds, kind=st.just("welcome"))
refusals = st.builds(Refused, code=texts, message=texts, hint=texts, kind=st.just("refused"))


def typed(value: Any) -> Any:
    """Return the value with its type, to distinguish 1, 1.0 and True."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return (type(value).__name__, value)


def test_good_bye_names_the_card() -> None:
    report = link_session.decode_from_worker(json.dumps({**GOOD, "good_bye": GOOD_BYE}).encode())
    assert isinstance(report, Report)
    assert report.good_bye
    assert report.good_bye.wake
    assert report.good_bye.wake.interface == "eth0"


@settings(PATIENT, max_examples=tried(40))
@given(st.one_of(hellos, reports))
def test_worker_message_survives_encoding(message: Hello | Report) -> None:
    assert link_session.decode_from_worker(link_session.encode(message)) == message


@settings(PATIENT, max_examples=tried(40))
@given(st.one_of(welcomes, refusals, assigns))
def test_master_message_survives_encoding(message: Welcome | Refused | Assign) -> None:
    again = link_session.decode_from_master(link_session.encode(message))
    assert again == message
    if isinstance(message, Assign) and isinstance(again, Assign):
        assert [typed(run.parameters) for run in again.run] == [typed(run.parameters) for run in message.run]


# --- what is no message -----------------------------------------------------------------------------------------

CARD = {"interface": "eth0", "hardware_address": "3c:52:82:0a:11:f0"}
GOOD_BYE = {"kind": "suspend", "by": "idle", "wake": CARD}
GOOD = json.loads(link_session.encode(Report(1, 0, (Held(AttemptId(1, 1, 1)),), (), Load(1))))


@settings(PATIENT, max_examples=tried(40))
@given(st.one_of(st.binary(max_size=50), st.text(max_size=50).map(lambda text: text.encode("utf-8", "replace"))))
def test_noise_is_a_protocol_error_and_nothing_else(frame: bytes) -> None:
    for decode in (link_session.decode_from_worker, link_session.decode_from_master):
        with pytest.raises(ProtocolError):
            decode(frame)


@pytest.mark.parametrize(
    "frame",
    [b"", b"null", b"[]", b"{}", b'{"kind":"report"}', b'{"kind":"shout"}', b"[" * 10**5, b'{"kind":1}', b"\xff"],
)
def test_malformed_frames(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed frame"):
        link_session.decode_from_worker(frame)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", -1),
        ("seq", 2**53),
        ("seq", None),
        ("seen", "x"),
        ("load", {"slots": -1}),
        ("load", {"slots": 1, "spare_cpu": -0.5}),
        ("load", {}),
        ("holding", [{"attempt": "1.1"}]),
        ("holding", [{"attempt": "1.1.x"}]),
        ("holding", [{"attempt": "1.1.-1"}]),
        ("holding", [{"attempt": "1.1." + "1" * 17}]),
        ("holding", [{"attempt": "1.1.1\n"}]),
        ("holding", [{"attempt": "١.١.١"}]),
        ("holding", [{"attempt": 1}]),
        ("holding", None),
        ("results", [{"attempt": "1.1.1"}]),
        ("results", [{"attempt": "1.1.1", "outcome": "won"}]),
        ("results", [{"attempt": "1.1.1", "outcome": "failed", "reason": "x" * 501}]),
        ("results", [{"attempt": "1.1.1", "outcome": "failed", "exit_code": 2**33}]),
        ("results", [{"attempt": "1.1.1", "outcome": "failed", "stdout": {"data": "no base64!"}}]),
        ("results", [{"attempt": "1.1.1", "outcome": "failed", "stdout": {"sha256": "../../etc/passwd"}}]),
        ("results", [{"attempt": "1.1.1", "outcome": "succeeded"}] * (MAX_RESULTS_PER_REPORT + 1)),
        ("good_bye", {**GOOD_BYE, "wake": {**CARD, "interface": "eth0\x1b[2J"}}),
        ("good_bye", {**GOOD_BYE, "wake": {**CARD, "obstacle": "its lid\nis closed"}}),
    ],
)
def test_a_bad_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(ProtocolError, match=rf"malformed frame: report\.{field}"):
        link_session.decode_from_worker(json.dumps({**GOOD, field: value}).encode())


def test_output_over_the_inline_limit_must_be_a_blob() -> None:
    def report(size: int) -> bytes:
        result = Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, stdout=Output(size, data=b"x" * size))
        return link_session.encode(Report(1, 0, (), (result,), Load(1)))

    link_session.decode_from_worker(report(INLINE_LIMIT_BYTES))
    with pytest.raises(ProtocolError, match="stdout"):
        link_session.decode_from_worker(report(INLINE_LIMIT_BYTES + 1))


def test_a_first_frame_is_short() -> None:
    with pytest.raises(ProtocolError, match=f"a first frame of {MAX_HELLO_BYTES + 1:,} bytes"):
        MasterSession().receive(b" " * (MAX_HELLO_BYTES + 1))


def test_a_frame_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(
        ProtocolError, match=f"{MAX_FRAME_BYTES + 1:,} bytes is over the limit of {MAX_FRAME_BYTES:,}"
    ):
        link_session.decode_from_worker(b" " * (MAX_FRAME_BYTES + 1))


def test_a_frame_of_very_many_values_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match=f"more than {MAX_FRAME_VALUES:,} values"):
        link_session.decode_from_worker(b"[" + b"1," * MAX_FRAME_VALUES + b"1,1]")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("holding",), "holding"),
        (("waiting",), "waiting"),
        (("results",), "results"),
        (("members",), "members"),
        (("load", "preparing"), "preparing"),
        (("peers", "cached"), "cached"),
    ],
)
def test_a_list_is_read_up_to_its_first_mistake(place: tuple[str, ...], name: str) -> None:
    frame = json.loads(link_session.encode(Report(1, 0, (), (), Load(1), peers=PeerReport())))
    inner = frame
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = [1] * 1000
    with pytest.raises(ValidationError) as raised:
        link_session._from_worker.validate_json(json.dumps(frame))
    assert [error["loc"][-2:] for error in raised.value.errors() if name in error["loc"]] == [(name, 0)]


def test_the_largest_report_fits_into_a_frame() -> None:
    output = Output(INLINE_LIMIT_BYTES, data=b"x" * INLINE_LIMIT_BYTES)
    value = Output(MAX_INLINE_BYTES, data=b"x" * MAX_INLINE_BYTES)
    full = Result(AttemptId(10**15, 1, 1), Outcome.FAILED, 1, "ü" * 500, stdout=output, stderr=output, value=value)
    report = Report(1, 0, (), (full,) * MAX_RESULTS_PER_REPORT, Load(1))
    assert len(link_session.encode(report)) < MAX_FRAME_BYTES


def test_a_newer_peer_may_say_more() -> None:
    assert link_session.decode_from_worker(
        json.dumps({**GOOD, "mood": "good"}).encode()
    ) == link_session.decode_from_worker(json.dumps(GOOD).encode())


def test_message_of_the_other_end_is_refused() -> None:
    with pytest.raises(ProtocolError):
        link_session.decode_from_worker(link_session.encode(Welcome(1.0, 1.0)))
    with pytest.raises(ProtocolError):
        link_session.decode_from_master(link_session.encode(Report(1, 0, (), (), Load(1))))


# --- ids --------------------------------------------------------------------------------------------------------


@given(ids)
def test_ids_are_written_as_dotted_numbers(attempt: AttemptId) -> None:
    assert AttemptId.parse(str(attempt)) == attempt
    assert TaskId.parse(str(attempt.task_id)) == attempt.task_id


@pytest.mark.parametrize(
    "text", ["", "1", "1.2.3", "1.", ".1", "1.a", "1.-2", "+1.2", " 1.2", "1.2 ", "1_0.2", "²1.2"]
)
def test_invalid_task_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected job\.task as numbers"):
        TaskId.parse(text)


# --- sessions ---------------------------------------------------------------------------------------------------

FACTS = Facts("linux", "x86_64", "3.11", "0.1", "model", cpus=1, memory_bytes=1, slots=1)


def opened() -> tuple[WorkerSession, MasterSession]:
    worker, master = WorkerSession("w", "boot", FACTS), MasterSession()
    hello = master.receive(worker.hello())
    assert hello == Hello(PROTOCOL_VERSION, "w", "boot", FACTS)
    assert master.refusal() is None
    assert worker.receive(master.send(Welcome(10.0, 30.0))) == Welcome(10.0, 30.0)
    assert worker.welcome == Welcome(10.0, 30.0)
    return worker, master


def test_reports_have_numbers_and_acknowledge_assigns() -> None:
    worker, master = opened()
    first, frame = worker.report([], [], Load(1))
    report = master.receive(frame)
    assert isinstance(report, Report)
    assert (first, report.seq, report.seen) == (1, 1, 0)
    worker.receive(master.send(Assign(1, 1)))
    second, frame = worker.report([Held(AttemptId(1, 1, 1))], [], Load(1))
    report = master.receive(frame)
    assert isinstance(report, Report)
    assert (second, report.seq, report.seen, report.holding) == (2, 2, 1, (Held(AttemptId(1, 1, 1)),))


def test_a_frame_that_comes_twice_is_taken_once() -> None:
    worker, master = opened()
    _, first = worker.report([], [], Load(1))
    _, second = worker.report([], [], Load(1))
    taken = [master.receive(frame) for frame in (first, first, second, first, second)]
    assert [isinstance(message, Report) for message in taken] == [True, False, True, False, False]
    assert worker.receive(master.send(Assign(1, 1))) == Assign(1, 1)
    assert worker.receive(master.send(Assign(1, 1))) is None
    assert worker.receive(master.send(Welcome(1.0, 1.0))) is None
    assert worker.welcome == Welcome(10.0, 30.0)
    assert master.receive(worker.hello()) is None


def test_a_gap_closes_the_link() -> None:
    worker, master = opened()
    worker.report([], [], Load(1))
    _, second = worker.report([], [], Load(1))
    with pytest.raises(ProtocolError, match="frame 2 came after frame 0: frames were lost"):
        master.receive(second)
    with pytest.raises(ProtocolError, match="frame 2 came after frame 0"):
        worker.receive(master.send(Assign(2, 1)))


def test_a_session_begins_with_its_greeting() -> None:
    worker, master = WorkerSession("w", "boot", FACTS), MasterSession()
    _, report = worker.report([], [], Load(1))
    with pytest.raises(ProtocolError, match="report before hello"):
        master.receive(report)
    with pytest.raises(ProtocolError, match="assign before welcome"):
        worker.receive(master.send(Assign(1, 0)))


def test_worker_of_another_version_gets_a_hint() -> None:
    master = MasterSession()
    assert master.refusal() is None, "nobody has called yet"
    master.receive(link_session.encode(Hello(PROTOCOL_VERSION + 1, "w", "boot", FACTS)))
    refused = master.refusal()
    assert refused is not None
    assert (refused.code, "install" in refused.hint) == ("version", True)
    known = PROTOCOL_VERSION
    assert refused.message == f"worker w (loopline 0.1) speaks link version {known + 1}, this master speaks {known}"
    worker = WorkerSession("w", "boot", FACTS)
    assert worker.receive(master.send(refused)) == refused
    assert worker.welcome is None


def test_malformed_frames_are_dropped() -> None:
    worker, master = opened()
    for receive in (worker.receive, master.receive):
        with pytest.raises(ProtocolError, match="malformed"):
            receive(b"{")


def test_answers_between_have_numbers_of_their_own_on_the_way_alone() -> None:
    """The worker sees Assigns 1, 2, 3, ...; the scheduler's are its own, sent as well as seen."""
    worker, master = opened()
    numbers, seen = [], []
    for seq in (1, ANSWER, ANSWER, 2, ANSWER, 3):
        message = worker.receive(master.send(Assign(seq, 7)))
        assert isinstance(message, Assign)
        numbers.append(message.seq)
        report = master.receive(worker.report([], [], Load(1))[1])
        assert isinstance(report, Report)
        seen.append(report.seen)
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert seen == [1, 1, 1, 2, 2, 3]
    with pytest.raises(ProtocolError, match="frame 8 came after frame 6: frames were lost"):
        worker.receive(master.send(Assign(5, 7)))


@given(st.lists(st.sampled_from(["assign", "answer", "hold", "release"]), max_size=40), st.data())
@settings(PATIENT, max_examples=tried(50))
def test_held_answers_are_acknowledged_with_the_next_frame(deeds: list[str], data: st.DataObject) -> None:
    worker, master = opened()
    seq, sent, seen = 0, 0, 0
    for deed in deeds:
        frame = None
        if deed == "hold":
            master.hold(Assign(seq := seq + 1, 7))
        elif deed == "assign":
            frame, sent = master.send(Assign(seq := seq + 1, 7)), seq
        elif deed == "answer" and master.may_answer:
            frame, sent = master.send(Assign(ANSWER, 7)), seq
        elif deed == "release" and master.held:
            frame, sent = master.send(master.held), seq
        if frame and isinstance(worker.receive(frame), Assign):
            seen = sent
            assert master.held is None
        if data.draw(st.booleans()):
            report = master.receive(worker.report([], [], Load(1))[1])
            assert isinstance(report, Report)
            assert report.seen == seen


def test_peer_that_saw_none_of_many_answers_is_answered_by_the_scheduler() -> None:
    _, master = opened()
    while master.may_answer:
        master.send(Assign(ANSWER, 1))
