"""Both ends of a worker link without I/O: frames in, messages out, and the reverse.

A session lives as long as one connection. It opens with Hello / Welcome; afterwards Reports and Assigns are numbered
1, 2, 3, ...: a repeated number is a duplicate and is dropped; a gap means that frames were lost, which closes the
link (ProtocolError), and the next session's first Report restores the state. A Read and its answer, Wrote, are
repeated by the reader if it still needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopline_shared.errors import ProtocolError
from loopline_shared.model import AttemptId, Facts, Held, Load, Result
from loopline_shared.protocol import codec, result_text
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.messages import PROTOCOL_VERSION, Assign, Hello, Read, Refused, Report, Welcome, Wrote
from loopline_shared.protocol.transfers import PeerReport


class _Inbound:
    """Check of the numbers of incoming frames."""

    def __init__(self) -> None:
        self.last = 0

    def is_new(self, seq: int) -> bool:
        if seq > self.last + 1:
            raise ProtocolError(f"frame {seq} came after frame {self.last}: frames were lost")
        if seq <= self.last:
            return False
        self.last = seq
        return True


class WorkerSession:
    """The worker's end."""

    def __init__(self, worker: str, boot: str, facts: Facts) -> None:
        self.welcome: Welcome | None = None
        self._hello = Hello(PROTOCOL_VERSION, worker, boot, facts)
        self._inbound = _Inbound()
        self._sent = 0

    def hello(self) -> bytes:
        return codec.encode(self._hello)

    def receive(self, frame: bytes) -> Welcome | Refused | Assign | Read | None:
        """Return the message in a frame; None for a duplicate. Raises ProtocolError, which closes the link."""
        message = codec.decode_from_master(frame)
        if isinstance(message, Assign | Read):
            if self.welcome is None:
                raise ProtocolError(f"{message.kind} before welcome")
            return message if isinstance(message, Read) or self._inbound.is_new(message.seq) else None
        if self.welcome is not None:
            return None
        if isinstance(message, Welcome):
            self.welcome = message
        return message

    def report(
        self, holding: Sequence[Held], results: Sequence[Result], load: Load, waiting: Iterable[AttemptId] = ()
    ) -> tuple[int, bytes]:
        """Return the next Report's number and frame."""
        self._sent += 1
        report = Report(
            self._sent, self._inbound.last, tuple(holding), tuple(results), load, waiting=ranges_of(waiting)
        )
        return self._sent, codec.encode(report)

    def report_of(
        self,
        holding: Sequence[Held],
        results: list[bytes],
        load: Load,
        waiting: Iterable[AttemptId],
        peers: PeerReport | None = None,
    ) -> tuple[int, bytes]:
        """The same of results that are written already (result_text.py)."""
        self._sent += 1
        report = Report(
            self._sent, self._inbound.last, tuple(holding), (), load, waiting=ranges_of(waiting), peers=peers
        )
        return self._sent, result_text.with_results(codec.encode(report), results)


class MasterSession:
    """The master's end. The scheduler numbers the Assigns, and waits until the worker has seen them."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self._inbound = _Inbound()

    def receive(self, frame: bytes) -> Hello | Report | Wrote | None:
        """Return the message in a frame; None for a duplicate. Raises ProtocolError, which closes the link."""
        message = codec.decode_from_worker(frame)
        if isinstance(message, Report | Wrote):
            if self.hello is None:
                raise ProtocolError(f"{message.kind} before hello")
            return message if isinstance(message, Wrote) or self._inbound.is_new(message.seq) else None
        if self.hello is not None:
            return None
        self.hello = message
        return message

    def refusal(self) -> Refused | None:
        """Return the reason for refusing this worker, or None: both ends must speak the same version."""
        if self.hello is None or self.hello.version == PROTOCOL_VERSION:
            return None
        return Refused(
            "version",
            f"worker {self.hello.worker} (loopline {self.hello.facts.agent}) speaks link version "
            f"{self.hello.version}, this master speaks {PROTOCOL_VERSION}",
            "install the same loopline release on both",
        )

    def send(self, message: Welcome | Refused | Assign | Read) -> bytes:
        return codec.encode(message)
