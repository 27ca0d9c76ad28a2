"""A call runs the function as submitted: no call sees later changes by other calls or by the program."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopline
from loopline.functions.calls import pickled
from loopline_shared.protocol import chunks
from loopline_worker.functions.program import call_loop
from tests.campaign import tried
from tests.python.small_grid import SmallGrid

Call = Callable[[int], Any]


class Tally:
    """An object whose method changes it, and that can be called itself."""

    def __init__(self, start: int) -> None:
        self.total, self.seen = start, [start]

    def add(self, number: int) -> tuple[int, int]:
        self.total += number
        self.seen.append(number)
        return self.total, len(self.seen)

    __call__ = add


cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])  # as the functions of a program are


def closure(start: int) -> Call:
    total = start

    def add(number: int) -> int:
        nonlocal total
        total += number
        return total

    return add


def default(start: int) -> Call:
    def add(number: int, seen: list[int] = [start]) -> int:  # noqa: B006
        seen.append(number)
        return sum(seen)

    return add


def keyword_default(start: int) -> Call:
    def add(number: int, *, seen: dict[int, int] = {0: start}) -> int:  # noqa: B006
        seen[0] += number
        return seen[0]

    return add


def of_globals(source: str, **names: Any) -> Call:
    """Return the function ``f`` of a program of its own."""
    program: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__, **names}
    exec(source, program)
    made: Call = program["f"]
    return made


def sets_a_global(start: int) -> Call:
    return of_globals("def f(n):\n    global total\n    total += n\n    return total", total=start)


def a_helper_sets_a_global(start: int) -> Call:
    source = "def add(n):\n    global total\n    total += n\ndef f(n):\n    add(n)\n    return total"
    return of_globals(source, total=start)


def makes_a_global(start: int) -> Call:
    return of_globals(f"def f(n):\n    globals()['total'] = globals().get('total', {start}) + n\n    return total")


def changes_a_global(start: int) -> Call:
    return of_globals("def f(n):\n    seen.append(n)\n    return sum(seen)", seen=[start])


def attribute(start: int) -> Call:
    return of_globals("def f(n):\n    f.total = getattr(f, 'total', 0) + n\n    return f.total + start", start=start)


def own_attribute(start: int) -> Call:
    made = of_globals("def f(n):\n    f.total += n\n    return f.total")
    made.total = start  # type: ignore[attr-defined]
    return made


def new_default(start: int) -> Call:
    source = "def f(n, total=START):\n    f.__defaults__ = (total + n,)\n    return total + n"
    return of_globals(source.replace("START", str(start)))


def arguments(start: int) -> Call:
    return partial(lambda seen, number: (seen.append(number), sum(seen))[1], [start])


def plain(start: int) -> Call:
    return of_globals("def half(n):\n    return n / two\ndef f(n):\n    return half(n) + start", two=2, start=start)


def recursive(start: int) -> Call:
    return of_globals("def f(n):\n    return start if n <= 0 else n + f(n - 1)", start=start)


KINDS: list[Callable[[int], Call]] = [
    lambda start: Tally(start).add, Tally, closure, default, keyword_default, sets_a_global, a_helper_sets_a_global,
    makes_a_global, changes_a_global, attribute, own_attribute, new_default, arguments, plain, recursive,
    lambda start: partial(Tally(start).add), lambda start: closure_over(Tally(start)),
]  # fmt: skip


def closure_over(call: Call) -> Call:
    return lambda number: call(number)


CALLABLES = st.tuples(st.sampled_from(KINDS), st.integers(-3, 3))


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A pool of one process, so that a call could see leftovers of the last one."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        yield pool


def load_and_call(function: bytes, number: int) -> Any:
    """Call a pickled function in a process of the pool, which cannot pickle most functions by itself."""
    return pickle.loads(function)(number)


def asked_of(pool: ProcessPoolExecutor, call: Call, number: int) -> Any:
    return pool.submit(load_and_call, cloudpickle.dumps(call), number).result(60)


@settings(max_examples=tried(60), deadline=None)
@given(st.lists(CALLABLES, min_size=1, max_size=3), st.data())
def test_values_are_those_of_a_process_pool(
    pool: ProcessPoolExecutor, several: list[tuple[Callable[[int], Call], int]], data: st.DataObject
) -> None:
    """Calls of several functions mix in one interpreter, and in this program between them."""
    calls = [kind(start) for kind, start in several]
    files: dict[bytes, call_loop.SubmittedFunction] = {}
    for _ in range(8):
        call, number = data.draw(st.sampled_from(calls)), data.draw(st.integers(-3, 3))
        if data.draw(st.booleans()):
            call(number)  # it is submitted as it is after this
        submitted = pickled(call)
        here = files.setdefault(submitted, call_loop.SubmittedFunction(chunks.function_file(submitted)))
        assert here.for_call()(number) == asked_of(pool, call, number)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 3])
def test_each_call_of_a_map_has_the_function_that_was_submitted(
    grid: SmallGrid, kind: Callable[[int], Call], chunk: int
) -> None:
    numbers = [1, 2, 0, 2, 1, 1]
    with loopline.Executor(grid.url, "t") as executor:
        values = list(executor.map(kind(5), numbers, chunksize=chunk))
    assert values == [kind(5)(number) for number in numbers]


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_has_the_function_as_it_was_when_it_was_submitted(
    grid: SmallGrid, kind: Callable[[int], Call]
) -> None:
    """Many calls of one object in a row, which the program changes between them."""
    call, twin = kind(5), kind(5)
    with loopline.Executor(grid.url, "t") as executor:
        futures, expected = [], []
        for number in range(20):
            futures.append(executor.submit(call, number))
            expected.append(twin(number))
            call(number)
        assert [future.result(60) for future in futures] == expected


def test_only_functions_without_state_are_kept() -> None:
    """A function that is kept costs nothing to load; the others must not be kept."""
    kept = {kind.__name__: is_kept(kind(1)) for kind in KINDS if kind.__name__ != "<lambda>"}
    assert {name for name, it_is in kept.items() if it_is} == {"plain", "recursive"}
    assert is_kept(abs)
    assert is_kept(types.SimpleNamespace)
    assert not is_kept([].append)
    assert not is_kept(partial(abs))


def is_kept(call: Callable[..., Any]) -> bool:
    function = call_loop.SubmittedFunction(chunks.function_file(cloudpickle.dumps(call)))
    first = function.for_call()
    if isinstance(first, types.FunctionType) and first.__name__ in {"f", "add"}:
        first(1)
    return function.for_call() is first
