"""Calls of functions as tasks: pickled for their way to workers, their values or exceptions unpickled here.

A pickle is valid for one version of Python (major and minor) only, and loading one runs what its writer likes: a
client trusts its master's workers as they trust it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, repeat
from types import CodeType, ModuleType
from typing import Any, ClassVar, TypeVar

from pydantic import PrivateAttr, ValidationError

from loopline.functions.plain_values import NotPlainError
from loopline.functions.remote_traceback import RemoteTraceback, with_source
from loopline.http import UnavailableError
from loopline.rest_client import RestClient
from loopline.transfer import direct
from loopline.transfer.files import hash_of, in_parallel, upload
from loopline.transfer.package_list import PackageList, with_software
from loopline_shared.errors import LooplineError
from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.parameters import RowFile, Table
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Function, TaskId, TaskState
from loopline_shared.plain_words import meant, plain
from loopline_shared.protocol.chunks import RAISED, RETURNED, ends
from loopline_shared.protocol.client_link import TaskEnd
from loopline_shared.protocol.software import PACKAGES
from loopline_shared.rest.bodies import TaskResult
from loopline_shared.row_lines import write_row
from loopline_shared.scalar import MAX_TEXT_CHARACTERS
from loopline_shared.spec import JobSpec

LONGEST_INLINE_BYTES = MAX_TEXT_CHARACTERS // 4 * 3
"""Most bytes of a task's arguments that travel with the task, as a parameter in base64; longer ones are a file."""
_ROWS_INLINE_BYTES = 100_000

_MISSING = (
    "Workers have the modules that are installed there, and those of your own that calls import by name. Name the "
    "packages that are missing, Executor(requirements=['numpy']), and each worker installs them once for you; name a "
    "module of your own that is found at run time, Executor(modules=[module])."
)
"""Note on an exception about a module that a worker lacks."""
_MISSING_LOOPLINE = (
    "Environments made for `requirements` lack the package loopline. For checkpoints, put a copy of its file "
    "checkpoint.py beside your script and write `import checkpoint` there; the copy goes along with your calls."
)
"""Note on an exception about a module of Loopline that a worker lacks."""

_Part = TypeVar("_Part", Requirements, CheckpointSpec)
CallOutcome = tuple[Any, BaseException | None]
"""Return value of a call, or its error."""
Loads = Callable[[bytes], Any]
"""Reads a value: ``pickle.loads``, or ``plain_values.loads``, which takes data alone."""


class CallError(LooplineError):
    """Raised for a call that did not finish by itself.

    Its process crashed, it took too long or too much, or it was cancelled.
    """


@dataclass(frozen=True)
class CallOptions:
    """Options of all calls of an executor. ``size``: of one call, in reference CPU-seconds.

    ``part_of``: session of the calls; None: calls submitted together form a job.
    """

    name: str = ""
    size: float | None = None
    requires: Requirements = field(default_factory=Requirements)
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    max_attempts: int = 1  # after exceptions; the loss of a worker does not count
    max_replicas: int | None = None
    checkpoint: CheckpointSpec | None = None
    own_modules: bool = True  # the user's own modules that calls import go along
    requirements: PackageList | None = None  # packages that workers install for the calls
    allow_builds: bool = False  # of packages without a wheel
    part_of: str | None = None

    def __post_init__(self) -> None:
        """Read ``requires`` and ``checkpoint`` if they are dicts. Raises LooplineError if one is wrong."""
        object.__setattr__(self, "requires", requirements_of(self.requires))
        object.__setattr__(self, "checkpoint", checkpoint_of(self.checkpoint))


class CallResult(TaskResult):
    """The result of a task that is a call."""

    _value: Any = PrivateAttr(default=None)
    _error: BaseException | None = PrivateAttr(default=None)

    def get(self) -> Any:
        """Return the value that the function returned, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def error(self) -> BaseException | None:
        """Exception of the call; None if it returned."""
        return self._error


def requirements_of(requires: Requirements | dict[str, Any]) -> Requirements:
    """Return the requirements on workers. Raises LooplineError if there is no such requirement."""
    return _part("requires", Requirements, requires)


def checkpoint_of(given: CheckpointSpec | dict[str, Any] | bool | None) -> CheckpointSpec | None:
    """Return how calls take checkpoints; ``True``: by default settings. None: not at all. Raises LooplineError."""
    if given is None or given is False:
        return None
    return _part("checkpoint", CheckpointSpec, {} if given is True else given)


def _part(name: str, kind: type[_Part], given: _Part | dict[str, Any]) -> _Part:
    """Return a part of a job's spec. Raises LooplineError that names the mistake, and the key that may be meant."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, mistake["loc"]))
        hint = meant(where, kind.model_fields) if mistake["type"] == "extra_forbidden" else ""
        raise LooplineError(name, ": ".join(filter(None, (name, where, plain(mistake)))), hint) from None


def python_here() -> str:
    """Return the version of this Python: major and minor."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def pickled(thing: Any, modules: Iterable[ModuleType] = ()) -> bytes:
    """Return the pickle of a thing. Functions of ``modules`` are pickled by value, for workers that lack them."""
    if modules:
        (pickle_,) = all_pickled([thing], modules)
        return pickle_
    file = io.BytesIO()
    _pickler()(file).dump(thing)
    return file.getvalue()


def all_pickled(things: Iterable[Any], modules: Iterable[ModuleType]) -> Iterator[bytes]:
    """Yield one pickle for each thing; they share nothing, and can be read apart."""

    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(_by_value(module))
        file = io.BytesIO()
        pickler = _pickler()(file)
        for thing in things:
            pickler.dump(thing)
            yield file.getvalue()
            pickler.clear_memo()
            file.seek(0)
            file.truncate()


@cache
def _pickler() -> Any:
    """Return a class of picklers that keep the file names of functions, which cloudpickle leaves out since 3.1.3.

    A worker's traceback names the file, and its lines are read here.
    """
    import cloudpickle

    reduce = cloudpickle.Pickler.dispatch_table[CodeType]

    def with_file(code: CodeType) -> tuple[Any, ...]:
        made, arguments = reduce(code)
        return made, tuple(code.co_filename if one == "<dynamic-code>" else one for one in arguments)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: with_file}, *cloudpickle.Pickler.dispatch_table.maps)

    return Pickler


async def submit_calls(
    client: RestClient, function: bytes, calls: Sequence[bytes], options: CallOptions, session: str
) -> int:
    """Submit one job with a task for each pickle of ``(args, kwargs)``, and return its number."""
    common = await common_spec(client, function, options, session)
    return (await client.submit(spec_of(common, await parameters_of(client, calls), len(calls)))).id


async def common_spec(client: RestClient, function: bytes, options: CallOptions, session: str) -> JobSpec:
    """Upload a function and return the spec that all jobs that call it share; ``size`` is of one call."""
    python = python_here()
    requires = options.requires.model_copy(update={"python": python})
    requires = await with_software(client, requires, options.requirements, allow_builds=options.allow_builds)
    return JobSpec(
        name=options.name,
        function=Function(f"sha256:{await upload(client, function)}", python, session),
        parameters=Table(rows=[{"call": ""}]),
        environment=options.environment,
        size=options.size,
        requires=requires,
        max_attempts=options.max_attempts,
        max_replicas=options.max_replicas,
        timeout_s=options.timeout_s,
        checkpoint=options.checkpoint,
        session=options.part_of,
    )


def spec_of(common: JobSpec, parameters: Table | RowFile, calls: int, chunk: int | None = None) -> JobSpec:
    """Return the spec of a job of so many calls. ``chunk``: calls in one task, if tasks make several."""
    assert common.function
    function = replace(common.function, chunk=chunk, calls=calls) if chunk else common.function
    size = None if common.known_size is None else common.known_size * calls
    return common.model_copy(update={"function": function, "parameters": parameters, "size": size})


async def check_workers(client: RestClient, options: CallOptions) -> int:
    """Return the number of slots of connected workers.

    Raises LooplineError if no worker runs functions of this Python, or none installs the packages that are asked for.
    """
    python, slots, installs = python_here(), 0, False
    offers: dict[str, list[str]] = {}
    async for worker in client.workers():
        offers.setdefault(worker.facts.functions or "", []).append(worker.name)
        for version in worker.facts.software:
            offers.setdefault(version.removeprefix(PACKAGES), [])
            installs |= version.startswith(PACKAGES)
        slots += worker.slots if worker.connected else 0
    if offers and options.requirements is not None and not installs:
        hint = "on a worker: pip install 'loopline[worker]', which brings uv; or leave the requirements out"
        raise LooplineError("no_packages", "no worker installs Python packages for tasks", hint, 409)
    if not offers or python in offers:
        return slots
    found = [
        f"{version or 'none (no cloudpickle there)'} on {_some(names)}" for version, names in offers.items() if names
    ]
    message = f"this is Python {python}, and no worker runs functions of it: they run {'; '.join(found)}"
    hint = f"run this program with one of theirs, or set `python` of a worker to a Python {python} with cloudpickle"
    raise LooplineError("python_mismatch", message, hint, 409)


async def read_call(client: RestClient, result: TaskResult) -> CallResult:
    """Return the result of a task that makes one call, with its value unpickled."""
    call = CallResult(**dict(result))
    try:
        content = await content_of(client, result)
    except LooplineError as error:
        if error.code != "wrong_hash":
            raise
        call._error = error
        return call
    call._value, call._error = outcome_of(result.id, result, content)
    return call


async def content_of(client: RestClient, end: TaskResult | TaskEnd) -> bytes | None:
    """Return the pickled results of a task's calls, or None. Raises LooplineError if they are lost."""
    output = end.value
    if output is None or output.cut:
        return None
    return output.data if output.sha256 is None else await _download(client, output.sha256)


def outcome_of(
    task: TaskId, end: TaskResult | TaskEnd, content: bytes | None, loads: Loads = pickle.loads
) -> CallOutcome:
    """Return the outcome of a task that made one call."""
    if content is None:
        return None, _unmade(task, end)
    return _read(task, end, RETURNED if end.state is TaskState.SUCCEEDED else RAISED, content, loads)


def outcomes_of(
    task: TaskId, end: TaskResult | TaskEnd, content: bytes | None, count: int, *, loads: Loads = pickle.loads
) -> Iterator[CallOutcome]:
    """Yield the outcomes of a task's calls, in order. A call that the task did not reach has its task's error."""
    made = 0
    for how, _, end_of_call in islice(ends(content or b""), count):
        made += 1
        yield _read(task, end, how, end_of_call, loads)
    if made < count:
        error = _unmade(task, end)
        yield from repeat((None, error), count - made)


def _read(task: TaskId, end: TaskResult | TaskEnd, how: int, content: bytes, loads: Loads) -> CallOutcome:
    try:
        if how == RETURNED:
            return loads(content), None
        return None, _raised(task, end, content, loads) if how == RAISED else _crashed(task, end, content)
    except NotPlainError as error:
        message = f"the return value of task {task} is refused: {error}"
        return None, CallError("not_plain", message, "return numbers, text, lists or arrays; or trust your workers")
    except BaseException as error:  # unpickling can raise anything, SystemExit too
        message = f"the return value of task {task} cannot be unpickled here: {type(error).__name__}: {error}"
        return None, CallError("unreadable", message, "install here the packages that the value needs")


async def _download(client: RestClient, sha256: str) -> bytes:
    """Return the content of a file, which is about to be unpickled. Raises LooplineError if its hash differs."""
    patience = client.http.patience()
    while True:
        try:
            async with direct.opened(client, sha256) as answer:
                content = await answer.read()
        except UnavailableError as fault:
            await patience.after(fault)
            continue
        if await asyncio.to_thread(hash_of, content) != sha256:
            message = f"what {client.master} sends as {sha256} is something else"
            raise LooplineError("wrong_hash", message, "its disk, or the way to it, may be broken", status=502)
        return content


def _unmade(task: TaskId, end: TaskResult | TaskEnd) -> CallError:
    too_long = "its return value is larger than the master allows (limits.max_file_bytes)"
    reason = too_long if end.value and end.value.cut else end.reason or f"exit code {end.exit_code}"
    return _failed(task, end, reason)


def _crashed(task: TaskId, end: TaskResult | TaskEnd, text: bytes) -> CallError:
    return _failed(task, end, text.decode(errors="replace"))


def _failed(task: TaskId, end: TaskResult | TaskEnd, reason: str) -> CallError:
    message = f"task {task} failed{f' on {end.worker}' if end.worker else ''}: {reason}"
    return CallError("call_failed", message, f"`loopline logs {task} --stderr` shows its output")


def _raised(task: TaskId, end: TaskResult | TaskEnd, content: bytes, loads: Loads) -> BaseException:
    if (failure := _failure(content, loads)) is None:  # the call did not come to write what it raised
        return _unmade(task, end)
    of_error, text = failure
    error: BaseException
    try:
        error = loads(of_error or b"")
        assert isinstance(error, BaseException)
    except BaseException:
        where = f" on {end.worker}" if end.worker else ""
        error = CallError("raised", f"task {task} raised{where}: {end.reason}", "its traceback is the cause")
    error.__cause__ = RemoteTraceback(with_source(text))
    if isinstance(error, ModuleNotFoundError):
        is_ours = (error.name or "").partition(".")[0] in ("loopline", "loopline_shared")
        error.add_note(_MISSING_LOOPLINE if is_ours else _MISSING)
    return error


def _failure(content: bytes, loads: Loads) -> tuple[bytes | None, str] | None:
    """Return the exception's pickle and the traceback that a failed call wrote; None if it wrote something else.

    What it writes is cut off where a disk is full, and it may be a value where the call failed after its end.
    """
    try:
        match loads(content):
            case (bytes() | None as of_error, str(text)):
                return of_error, text
    except BaseException:  # unpickling can raise anything
        return None
    return None


async def parameters_of(client: RestClient, tasks: Sequence[bytes]) -> Table | RowFile:
    """Return the rows that carry the calls of each task.

    Short calls go along with their job, many calls in one file, long ones in files of their own.
    """
    if (short := parameters_inline(tasks)) is not None:
        return short
    arguments = [""] * len(tasks)

    async def fill_in(place: int) -> None:
        arguments[place] = await _argument(client, tasks[place])

    await in_parallel(range(len(tasks)), fill_in)
    if sum(map(len, arguments)) <= _ROWS_INLINE_BYTES:
        return Table(rows=[{"call": argument} for argument in arguments])
    lines = b"".join(write_row({"call": argument}) for argument in arguments)
    return RowFile(file=f"sha256:{await upload(client, lines)}", count=len(tasks))


def parameters_inline(tasks: Sequence[bytes]) -> Table | None:
    """Return the rows of short calls, which go along with their job; None if these are not."""
    if sum(map(len, tasks)) > _ROWS_INLINE_BYTES or max(map(len, tasks)) > LONGEST_INLINE_BYTES:
        return None
    arguments = [base64.b64encode(task).decode() for task in tasks]
    if sum(map(len, arguments)) > _ROWS_INLINE_BYTES:
        return None
    return Table(rows=[{"call": argument} for argument in arguments])


async def _argument(client: RestClient, task: bytes) -> str:
    if len(task) <= LONGEST_INLINE_BYTES:
        return base64.b64encode(task).decode()
    return f"sha256:{await upload(client, task)}"


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
