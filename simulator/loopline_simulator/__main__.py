"""``python -m loopline_simulator EXPERIMENT ...``, which is also ``loopline simulate``.

Exit codes: 0 done; 1 an error; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from loopline_shared.errors import LooplineError
from loopline_simulator.experiments import EXPERIMENTS

_INSTALL = "install them: pip install 'loopline[sim]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except CycloptsError as error:
        problem = LooplineError("usage", str(error), "`loopline simulate EXPERIMENT --help` shows its options")
    except LooplineError as error:
        problem = error
    except BrokenExecutor:
        problem = LooplineError("killed", "a process of the sweep was killed", "fewer --processes need less memory")
    except ImportError as error:
        missing = error.__cause__ or error  # if a command cannot be loaded, the cause is the true error
        if not isinstance(missing, ModuleNotFoundError):
            raise
        problem = LooplineError("not_installed", f"the simulator needs {missing.name}, which is missing", _INSTALL)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return _report(problem, as_json="--json" in words)


def _run(words: list[str]) -> int:
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen is not None and chosen not in EXPERIMENTS:
        close = difflib.get_close_matches(chosen, EXPERIMENTS, n=1)
        hint = f"did you mean `loopline simulate {close[0]}`?" if close else "`loopline simulate` lists them"
        raise LooplineError("usage", f"there is no experiment {chosen!r}", hint)
    return _app(chosen)(words, print_error=False, exit_on_error=False) or 0


def _app(chosen: str | None) -> App:
    """Return the command-line application; only the ``chosen`` experiment is loaded, for its help."""
    app = App(
        name="loopline simulate",
        help="Experiments in virtual time, with the master's own scheduler and policies.",
        version_flags=(),
        default_parameter=Parameter(negative=()),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, (path, summary) in EXPERIMENTS.items():
        app.command(path, name=name, help=None if name == chosen else summary)
    return app


def _report(error: LooplineError, *, as_json: bool) -> int:
    if as_json:
        print(
            json.dumps({"error": {"code": error.code, "message": error.message, "hint": error.hint}}), file=sys.stderr
        )
    else:
        console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
        console.print(f"error: {error.message}")
        if error.hint:
            console.print(f"hint: {error.hint}")
    return 2 if error.code == "usage" else 1


if __name__ == "__main__":
    sys.exit(main())
