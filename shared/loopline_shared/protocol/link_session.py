"""The session of a worker link without I/O: the form of its messages as bytes, and their numbers, at both ends.

A session lives as long as one connection. It opens with Hello / Welcome; afterwards Reports and Assigns are numbered
1, 2, 3, ...: a repeated number is a duplicate and is dropped; a gap means that frames were lost, which closes the
link (ProtocolError), and the next session's first Report restores the state. A Read and its answer, Wrote, are
repeated by the reader if it still needs them.

The scheduler numbers the Assigns that follow from its steps. Between them the master answers Reports without news,
which the scheduler never sees, and an Assign that only acknowledges may be merged into the next one. So the worker
and the scheduler count differently. OutgoingNumbers translates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from loopline_shared.errors import ProtocolError
from loopline_shared.model import AttemptId, Facts, Held, Load, Result
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.checkpoints import CheckpointReport
from loopline_shared.protocol.gang_messages import Member
from loopline_shared.protocol.power import GoodBye
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow, PeerReport
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    MAX_FRAME_VALUES,
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    Assign,
    FromMaster,
    FromWorker,
    Hello,
    Read,
    Refused,
    Report,
    ToMaster,
    ToWorker,
    Welcome,
    Wrote,
)

ANSWER = 0
"""Instead of the scheduler's number: this Assign but answers a Report."""
_MAX_UNSEEN = 100
Message = TypeVar("Message")

_from_worker: TypeAdapter[ToMaster] = TypeAdapter(FromWorker, config=ConfigDict(defer_build=True))
_from_master: TypeAdapter[ToWorker] = TypeAdapter(FromMaster, config=ConfigDict(defer_build=True))
_result: TypeAdapter[Result] = TypeAdapter(Result)
_NO_RESULTS = b'"results":[]'


def prepare() -> None:
    """Build what encodes and decodes frames, which the first frame would wait for."""
    _from_worker.rebuild()
    _from_master.rebuild()


def encode(message: ToMaster | ToWorker) -> bytes:
    adapter: TypeAdapter[Any] = _from_worker if isinstance(message, ToMaster) else _from_master
    return adapter.dump_json(message)


def decode_from_worker(frame: bytes) -> ToMaster:
    """Read a worker's frame. Raises ProtocolError if it is invalid."""
    return _decode(_from_worker, frame)


def decode_from_master(frame: bytes) -> ToWorker:
    """Read a master's frame. Raises ProtocolError if it is invalid."""
    return _decode(_from_master, frame)


def _decode(adapter: TypeAdapter[Message], frame: bytes) -> Message:
    if len(frame) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(frame):,} bytes is over the limit of {MAX_FRAME_BYTES:,}")
    if frame.count(b",") > MAX_FRAME_VALUES:
        raise ProtocolError(f"a frame of more than {MAX_FRAME_VALUES:,} values")
    try:
        return adapter.validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(f"malformed frame: {place}: {first['msg']}") from None


def write_result(result: Result) -> bytes:
    return _result.dump_json(result)


def read_result(text: bytes) -> Result:
    """Read a result. Raises ValidationError if it is invalid."""
    return _result.validate_json(text)


def with_results(report: bytes, results: list[bytes]) -> bytes:
    """Insert these results into the frame of a Report without results, at the first empty list of that name."""
    return report.replace(_NO_RESULTS, b'"results":[%s]' % b",".join(results), 1)


class WorkerSession:
    """The worker's end."""

    def __init__(self, worker: str, boot: str, facts: Facts, *, instance: str = "") -> None:
        self.welcome: Welcome | None = None
        self._hello = Hello(PROTOCOL_VERSION, worker, boot, facts, instance=instance)
        self._inbound = IncomingNumbers()
        self.sent = 0  # number of the last Report

    def hello(self, request: str = "") -> bytes:
        """Return the first frame; ``request``: for a certificate."""
        return encode(replace(self._hello, request=request))

    def receive(self, frame: bytes) -> ToWorker | None:
        """Return the message in a frame; None for a duplicate. Raises ProtocolError, which closes the link."""
        message = decode_from_master(frame)
        if isinstance(message, Assign | Read | MeasureFlow):
            if self.welcome is None:
                raise ProtocolError(f"{message.kind} before welcome")
            return message if not isinstance(message, Assign) or self._inbound.is_new(message.seq) else None
        if self.welcome is not None:
            return None
        if isinstance(message, Welcome):
            self.welcome = message
        return message

    def report(
        self,
        holding: Sequence[Held],
        results: Sequence[Result],
        load: Load,
        waiting: Iterable[AttemptId] = (),
        members: Sequence[Member] = (),
        peers: PeerReport | None = None,
        *,
        delivering: Iterable[AttemptId] = (),
        checkpoints: CheckpointReport | None = None,
        good_bye: GoodBye | None = None,
        life: str = "",
    ) -> tuple[int, bytes]:
        """Return the next Report's number and frame. ``life``: of the attempts; the first Report has it.

        Results that are already written (``write_result``) are added to the frame by ``with_results``.
        """
        self.sent += 1
        report = Report(
            self.sent,
            self._inbound.last,
            tuple(holding),
            tuple(results),
            load,
            waiting=ranges_of(waiting) if waiting else (),
            delivering=ranges_of(delivering) if delivering else (),
            members=tuple(members),
            peers=peers,
            checkpoints=checkpoints,
            good_bye=good_bye,
            life=life if self.sent == 1 else "",
        )
        return self.sent, encode(report)


class MasterSession:
    """The master's end. The scheduler numbers its Assigns; others, of number ANSWER, but answer a Report."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.held: Assign | None = None  # it has not been sent, and is not if another is sent before
        self._inbound, self._outbound = IncomingNumbers(), OutgoingNumbers()

    @property
    def may_answer(self) -> bool:
        """True if a Report may be answered by an Assign of number ANSWER."""
        return self._outbound.may_answer

    def receive(self, frame: bytes) -> ToMaster | None:
        """Return the message in a frame; None for a duplicate. Raises ProtocolError, which closes the link."""
        if self.hello is None and len(frame) > MAX_HELLO_BYTES:
            raise ProtocolError(f"a first frame of {len(frame):,} bytes is over the limit of {MAX_HELLO_BYTES:,}")
        message = decode_from_worker(frame)
        if isinstance(message, Report | Wrote | FlowMeasured):
            if self.hello is None:
                raise ProtocolError(f"{message.kind} before hello")
            if not isinstance(message, Report):
                return message
            if not self._inbound.is_new(message.seq):
                return None
            seen = self._outbound.seen(message.seen)
            return message if seen == message.seen else replace(message, seen=seen)
        if self.hello is not None:
            return None
        self.hello = message
        return message

    def refusal(self) -> Refused | None:
        """Return the reason for refusing this worker; None if it speaks this version."""
        if self.hello is None or self.hello.version == PROTOCOL_VERSION:
            return None
        return Refused(
            "version",
            f"worker {self.hello.worker} (loopline {self.hello.facts.agent}) speaks link version "
            f"{self.hello.version}, this master speaks {PROTOCOL_VERSION}",
            "install the same loopline release on both",
        )

    def hold(self, assign: Assign) -> None:
        """Hold the scheduler's next Assign, which but acknowledges: so does the next that is sent, or else itself."""
        if self.held:
            self._outbound.skip()
        self.held = assign

    def send(self, message: ToWorker, held_s: float | None = None) -> bytes:
        """Return the frame: of an Assign with the number that the worker sees, and how long its Report was here."""
        if isinstance(message, Assign):
            if self.held and message is not self.held:
                self._outbound.skip()
            self.held = None
            if (seq := self._outbound.number(message.seq)) != message.seq or held_s is not None:
                message = replace(message, seq=seq, held_s=held_s)
        return encode(message)


class IncomingNumbers:
    """Check of the numbers of incoming frames."""

    def __init__(self) -> None:
        self.last = 0

    def is_new(self, seq: int) -> bool:
        """True if it is the next; False for a duplicate. Raises ProtocolError if frames before it were lost."""
        if seq > self.last + 1:
            raise ProtocolError(f"frame {seq} came after frame {self.last}: frames were lost")
        if seq <= self.last:
            return False
        self.last = seq
        return True


class OutgoingNumbers:
    """Numbers of Assigns: the scheduler's, and the worker's."""

    def __init__(self) -> None:
        self._last = 0  # that the worker sees
        self._ahead = 0  # the worker's next number minus the scheduler's
        self._unseen: deque[tuple[int, int]] = (
            deque()
        )  # numbers that it has not seen, each by how much that grew there

    @property
    def may_answer(self) -> bool:
        """False if the worker leaves many answers unseen."""
        return len(self._unseen) < _MAX_UNSEEN

    def number(self, seq: int) -> int:
        """Return the number that the worker sees of the next Assign.

        Where one of the scheduler's is missing before it, one is missing to the worker, too.
        """
        if seq == ANSWER:
            self._shift(1)
            self._last += 1
        else:
            self._last = seq + self._ahead
        return self._last

    def skip(self) -> None:
        """Let one of the scheduler's be seen with the next that is sent."""
        self._shift(-1)

    def seen(self, number: int) -> int:
        """Return the scheduler's number of its last Assign that a worker has seen which has seen ``number``."""
        while self._unseen and self._unseen[0][0] <= number:
            self._unseen.popleft()
        for _, step in self._unseen:
            number += step
        return max(0, number - self._ahead)

    def _shift(self, step: int) -> None:
        self._ahead += step
        self._unseen.append((self._last + 1, step))
