"""Calls of functions as tasks: pickled on the way out, their values or exceptions unpickled on the way home.

A pickle holds for one version of Python (major and minor) only, and loading one runs what its writer likes: a
client trusts its master's workers as they trust it.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from loopline.files import hash_of, upload
from loopline.http import AwayError
from shared.api import TaskResult
from shared.errors import LooplineError
from shared.model import Function, TaskState
from shared.rows import write_row
from shared.spec import JobSpec, Requirements, RowFile, Table

if TYPE_CHECKING:
    from loopline.client import AsyncClient

LONGEST_INLINE_BYTES = 7000
"""Arguments up to this travel with their task; longer ones are a file."""
_ROWS_INLINE_BYTES = 30_000


class RemoteTraceback(Exception):  # noqa: N818 - it is where an exception comes from
    """The cause of an exception that was raised elsewhere: where it happened there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class CallError(LooplineError):
    """A call came to no end of its own: its process crashed, it took too long or too much, or it was cancelled."""


@dataclass(frozen=True)
class CallOptions:
    """What all calls of an executor have in common. ``size``: of one call, in reference CPU-seconds."""

    name: str = ""
    size: float | None = None
    requires: Requirements = field(default_factory=Requirements)
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    max_attempts: int = 1  # of an exception, which is the function's own doing; the loss of a worker burns none
    max_replicas: int | None = None


class CallResult(TaskResult):
    """The result of a task that is a call."""

    _value: Any = PrivateAttr(default=None)
    _error: BaseException | None = PrivateAttr(default=None)

    def get(self) -> Any:
        """What the function returned; what it raised is raised."""
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def error(self) -> BaseException | None:
        return self._error


def python_here() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def pickled(thing: Any, modules: Iterable[ModuleType] = ()) -> bytes:
    """``modules``: whose functions are to be carried along, because workers do not have them."""
    import cloudpickle

    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(_by_value(module))
        return bytes(cloudpickle.dumps(thing))


async def submit_calls(
    client: AsyncClient, function: bytes, calls: Sequence[bytes], options: CallOptions, session: str
) -> int:
    """One job, a task for each pickle of ``(args, kwargs)``; its number."""
    python = python_here()
    file = f"sha256:{await upload(client, function)}"
    spec = JobSpec(
        name=options.name,
        function=Function(file=file, python=python, session=session),
        parameters=await _parameters(client, calls),
        environment=options.environment,
        size=None if options.size is None else options.size * len(calls),
        requires=options.requires.model_copy(update={"python": python}),
        max_attempts=options.max_attempts,
        max_replicas=options.max_replicas,
        timeout_s=options.timeout_s,
    )
    return (await client.submit(spec)).id


async def check_workers(client: AsyncClient) -> None:
    """LooplineError where there are workers, and none of them can run functions of this Python."""
    python = python_here()
    offers: dict[str, list[str]] = {}
    async for worker in client.workers():
        offers.setdefault(worker.facts.functions or "", []).append(worker.name)
    if not offers or python in offers:
        return
    found = [f"{version or 'none (no cloudpickle there)'} on {_some(names)}" for version, names in offers.items()]
    message = f"this is Python {python}, and no worker runs functions of it: they run {'; '.join(found)}"
    hint = f"run this program with one of theirs, or set `python` of a worker to a Python {python} with cloudpickle"
    raise LooplineError("python_mismatch", message, hint, 409)


async def read_call(client: AsyncClient, result: TaskResult) -> CallResult:
    call = CallResult(**dict(result))
    output = result.value
    content = None
    if output is not None and not output.cut:
        try:
            content = output.data if output.sha256 is None else await _download(client, output.sha256)
        except LooplineError as error:
            if error.code != "wrong_hash":
                raise
            call._error = error
            return call
    try:
        if result.state is TaskState.SUCCEEDED and content is not None:
            call._value = pickle.loads(content)  # noqa: S301
        else:
            call._error = _raised(result, content)
    except Exception as error:  # whatever unpickling comes upon
        message = f"what task {result.id} returned cannot be unpickled here: {type(error).__name__}: {error}"
        call._error = CallError("unreadable", message, "is everything installed here that it is made of?")
    return call


async def _download(client: AsyncClient, sha256: str) -> bytes:
    """LooplineError where what comes is something else: it is about to be run."""
    patience = client._http.patience()
    while True:
        try:
            async with client._http.open("GET", f"/files/{sha256}") as answer:
                content = await answer.read()
        except AwayError as fault:
            await patience.after(fault)
            continue
        if await asyncio.to_thread(hash_of, content) != sha256:
            message = f"what {client.master} sends as {sha256} is something else"
            raise LooplineError("wrong_hash", message, "its disk, or the way to it, may be broken", status=502)
        return content


def _raised(result: TaskResult, content: bytes | None) -> BaseException:
    where = f" on {result.worker}" if result.worker else ""
    if content is None:
        too_long = "what it returned is more than the master takes (limits.max_file_bytes)"
        reason = too_long if result.value and result.value.cut else result.reason or f"exit code {result.exit_code}"
        hint = f"`loopline logs {result.id} --stderr` has what it printed"
        return CallError("call_failed", f"task {result.id} failed{where}: {reason}", hint)
    of_error, text = pickle.loads(content)  # noqa: S301
    error: BaseException
    try:
        error = pickle.loads(of_error)  # noqa: S301
        assert isinstance(error, BaseException)
    except Exception:
        error = CallError("raised", f"task {result.id} raised{where}: {result.reason}", "its traceback is the cause")
    error.__cause__ = RemoteTraceback(text)
    return error


async def _parameters(client: AsyncClient, calls: Sequence[bytes]) -> Table | RowFile:
    arguments = [await _argument(client, call) for call in calls]
    if sum(map(len, arguments)) <= _ROWS_INLINE_BYTES:
        return Table(rows=[{"call": argument} for argument in arguments])
    lines = b"".join(write_row({"call": argument}) for argument in arguments)
    return RowFile(file=f"sha256:{await upload(client, lines)}", count=len(calls))


async def _argument(client: AsyncClient, call: bytes) -> str:
    if len(call) <= LONGEST_INLINE_BYTES:
        return base64.b64encode(call).decode()
    return f"sha256:{await upload(client, call)}"


@contextmanager
def _by_value(module: ModuleType) -> Iterator[None]:
    import cloudpickle

    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
