"""Options and output that all commands share."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import pydantic
from cyclopts import Group, Parameter
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

import loopline
from loopline import rest_client
from loopline.cli import values
from loopline.cli.render.printable import visible
from loopline_shared.ids_and_states import TaskId

Item = TypeVar("Item")
Document: TypeAlias = "pydantic.BaseModel | Sequence[pydantic.BaseModel] | Sequence[dict[str, Any]] | dict[str, Any]"

PATIENCE_S = 300.0
"""Seconds for which long commands wait for a master that is being restarted."""

PIPE_COLUMNS = 200
"""Width of a table outside a terminal, which leaves room for every column."""


@Parameter(name="*", group=Group("Every command", sort_key=8))
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every command.

    Parameters
    ----------
    json
        Answer with JSON on stdout, and nothing else.
    master
        The master's address, over LOOPLINE_MASTER and `[client] master` in loopline.toml.
    token
        Your access token, over LOOPLINE_TOKEN, LOOPLINE_TOKEN_FILE and loopline.toml.
    """

    json: bool = False
    master: str | None = None
    token: str | None = None

    def client(self, patience_s: float = 1.0) -> loopline.AsyncClient:
        """Return a client of the master that the options name."""
        return loopline.AsyncClient(self.master, self.token, patience_s=patience_s)

    def show(self, document: Document, picture: Callable[[], RenderableType], *, whole: bool = False) -> None:
        """Print the answer of a command: the document for programs, its picture for people.

        ``whole``: its lines are to be copied, and are not broken, however long.
        """
        if self.json:
            print(json_format.dumps(_plain(document), indent=2), flush=True)  # some commands go on
        else:
            stdout().print(picture(), soft_wrap=whole)


PLAIN = Common()


def read_by(parse: Callable[[str], Any], metavar: str | None = None) -> Parameter:
    """Return a parameter of one word that a function reads; its ValueError counts as wrong usage."""
    return Parameter(
        converter=lambda _, words: parse(words[0].value), n_tokens=1, accepts_keys=False, metavar=metavar
    )


def read_each_by(parse: Callable[[str], Any], metavar: str) -> Parameter:
    """Return a parameter that may be given several times, each time one word, which a function reads."""
    return Parameter(converter=lambda _, words: tuple(parse(word.value) for word in words), metavar=metavar)


SubjectOrWorker = Annotated[TaskId | int | str, read_by(values.subject_or_worker)]
Subject = Annotated[TaskId | int, read_by(values.subject)]
JobNumber = Annotated[int, read_by(values.job)]


async def some(limit: int, items: AsyncIterator[Item]) -> list[Item]:
    """Return the first ``limit`` items; 0: all."""
    taken: list[Item] = []
    async for item in items:
        taken.append(item)
        if len(taken) == limit:
            break
    return taken


def page_size(limit: int) -> int:
    """Return the size of pages to request, so that little more is read than will be shown."""
    return min(limit, rest_client.LARGEST_PAGE) or rest_client.LARGEST_PAGE


class _Safe(Console):
    """A console for texts that others wrote, such as names of jobs."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Output(_Safe):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - it is being handled, and main() knows how


def stdout() -> Console:
    """Return the console of answers."""
    return _Output(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def has_colour(console: Console) -> bool:
    """True if the console can show colours."""
    return console.is_terminal and not console.no_color and console.encoding.startswith("utf")


def stderr() -> Console:
    """Return the console of progress and warnings."""
    return _Safe(highlight=False, markup=False, stderr=True)


def is_interactive() -> bool:
    """True if somebody sits at a terminal who can be asked."""
    return not sys.stdin.closed and sys.stdin.isatty() and sys.stderr.isatty()


def answers_yes(question: str) -> bool:
    """Ask on stderr, since stdout is for answers; return True for yes, which is also the answer of Enter alone."""
    print(f"{question} [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return answer.endswith("\n") and answer.strip().lower() in ("", "y", "yes")


def _plain(document: Any) -> Any:
    if isinstance(document, pydantic.BaseModel):
        return document.model_dump(mode="json")
    if isinstance(document, dict):
        return {name: _plain(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_plain(item) for item in document]
    return document
