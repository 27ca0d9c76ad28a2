"""The command ``loopline``.

The exit codes are in ``errors.py``. Errors are printed on stderr, with the next step; with ``--json`` they are JSON
too.
"""

from __future__ import annotations

import gc

gc.disable()  # while modules are imported: they stay

import difflib
import re
import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownOptionError

from loopline.cli import app
from loopline.cli.errors import Exit, report, usage
from loopline.cli.render import help_pages
from loopline_shared.errors import LooplineError
from loopline_shared.terminal import late_modules, streams  # before pydantic

late_modules.declare(  # help and errors of usage need none of them
    "pydantic", "pydantic_core",
    "loopline.cli.follow", "loopline.client", "loopline.http", "loopline.predecessors", "loopline.rest_client",
    "loopline.settings",
    *(f"loopline.cli.render.{each}" for each in ("chart", "human", "knowledge", "network_tree", "tables")),
    *(f"loopline.cli.submission.{each}" for each in (
        "assemble", "failed_of", "inputs", "job_file", "merging", "missing_inputs", "receipt", "shared_folder",
        "software", "sweep",
    )),
    "loopline_shared.job.parameters", "loopline_shared.model", "loopline_shared.rest.bodies",
    "loopline_shared.rest.times",
)  # fmt: skip

gc.enable()
gc.set_threshold(50_000)  # few commands leave as much garbage

_CONVERTED = re.compile(r'unable to convert "(.*)" into float\.')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    streams.complete()
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        code = run(words)
        sys.stdout.flush()  # now, while a broken pipe is still handled below
        return code
    except LooplineError as error:
        return report(error, as_json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        streams.discard_output()
        return Exit.OK
    except OSError as error:
        if not streams.is_of_output(error):
            raise
        streams.discard_output()
        message = f"the answer cannot be written: {error.strerror}"
        return report(LooplineError("unwritable", message, "the command itself may have been carried out"), as_json)


def run(words: list[str]) -> int:
    """Run one command. Raises LooplineError if its words are wrong."""
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen is not None and chosen not in app.COMMANDS:
        close = difflib.get_close_matches(chosen, app.COMMANDS, n=1)
        hint = f"did you mean `loopline {close[0]}`?" if close else "`loopline` lists the commands"
        raise usage(f"unknown command {chosen!r}", hint)
    if chosen == "service":
        from loopline.cli.service import with_role

        words = with_role(words)
    built = app.build(chosen)
    if words == ["--help"] or (words[1:] == ["--help"] and "--help" in built[words[0]].help_flags):
        help_pages.print_page(built, words[:-1])  # parsing words and help flags would take the library twice as long
        return Exit.OK
    if chosen == "submit":
        words = with_command_apart(built, words)
    try:
        return built(words, print_error=False, exit_on_error=False) or Exit.OK
    except CycloptsError as error:
        raise usage(_CONVERTED.sub(r"expected a number, got '\1'", str(error)), _hint(error)) from None


def with_command_apart(built: App, words: list[str]) -> list[str]:
    """Return the words of `submit` with `--` before the command, which owns all words after its first."""
    arguments = built["submit"].assemble_argument_collection()
    takes_value = {name for argument in arguments if argument.token_count()[0] for name in argument.names}
    takes_value -= {name for name in takes_value if name.startswith("--empty-")}
    start, is_value = words.index("submit") + 1, False
    for place, word in enumerate(words[start:], start):
        if is_value:
            is_value = False
        elif word == "--":
            return words
        elif word.startswith("-") and word != "-":
            is_value = word in takes_value
        else:
            return [*words[:place], "--", *words[place:]]
    return words


def _hint(error: CycloptsError) -> str:
    chain = tuple(error.command_chain or ())
    if chain == ("submit",) and isinstance(error, UnknownOptionError):
        return "an option of the command to run goes after `--`"
    return f"`{' '.join(['loopline', *chain])} --help` lists its options"


if __name__ == "__main__":
    sys.exit(main())
