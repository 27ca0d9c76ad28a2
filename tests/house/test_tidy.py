"""Sizes, names and circles: the rules that keep each file to one duty and each name to one thing."""

from __future__ import annotations

import ast
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator

from tests.house.circles import circles, imports, web_imports
from tests.house.sources import (
    PACKAGES,
    Function,
    Source,
    is_migration,
    longer_than,
    refuse,
    repeated,
    sources,
    tracked,
)

LONG_FILE, MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_FILES, MOST_POSITIONAL = 400, 600, 50, 16, 5
MORE_FILES = {"client/loopline/cli": 25}  # one file a command
FOR_EVERY_TASK = {
    "Attempt": "master/loopline_master/core/kernel/lifecycle.py",
    "Run": "master/loopline_master/core/kernel/runs.py",
    "Result": "worker/loopline_worker/attempts/attempt.py",
}
"""Records made for every task, and where: there alone, names for the arguments would cost more than they tell."""
PROCESSES = {
    "master": ("loopline_master", "loopline_shared"),
    "worker": ("loopline_worker", "loopline_shared"),
    "client": ("loopline", "loopline_shared"),
}


def test_files_have_at_most_600_lines_and_a_warning_from_400() -> None:
    counted = [(str(source.path), source.text.count("\n")) for source in sources() if not is_migration(source)]
    refuse(longer_than(counted, MOST_LINES), "Lines in a file: cut it where a second duty begins.")
    if long := longer_than(counted, LONG_FILE):
        warnings.warn(f"cut these at their duties one day: {'; '.join(long)}", stacklevel=1)


def test_a_function_has_at_most_50_lines() -> None:
    counted = [
        (source.at(function, function.name), _length(function))
        for source in sources()
        if not is_migration(source)
        for function in source.functions()
    ]
    refuse(longer_than(counted, MOST_LINES_OF_A_FUNCTION), "Lines in a function: one thought each.")


def _length(function: Function) -> int:
    """Return the lines of a function's body; neither its parameters nor its docstring count."""
    assert function.end_lineno
    has_docstring = ast.get_docstring(function, clean=False) is not None
    first = function.body[1] if has_docstring and len(function.body) > 1 else function.body[0]
    return function.end_lineno - first.lineno + 1


def test_a_folder_has_at_most_16_files() -> None:
    counted: dict[str, int] = defaultdict(int)
    for path in tracked():
        folder, _, name = path.rpartition("/")
        is_page = folder.startswith("web/src") and name.endswith((".ts", ".tsx", ".css"))
        is_python = name.endswith(".py") and name != "__init__.py" and not folder.startswith("tests")
        if is_page or (is_python and "versions" not in folder):
            counted[folder] += 1
    counted = {folder: count for folder, count in counted.items() if count > MORE_FILES.get(folder, 0)}
    refuse(
        longer_than(list(counted.items()), MOST_FILES),
        "Files in a folder: make a room of those that belong together.",
    )


def test_no_file_name_occurs_twice_in_one_daemon() -> None:
    faults: list[str] = []
    for package in ("loopline_master", "loopline_worker"):
        places = defaultdict(list)
        for source in sources(package):
            if not source.path.name.startswith("__"):
                places[source.path.name].append(str(source.path.parent))
        faults += repeated(places)
    refuse(faults, "Rename so that a file's name alone says which it is.")


def test_no_class_name_occurs_twice_in_one_process() -> None:
    faults: set[str] = set()
    for packages in PROCESSES.values():
        places = defaultdict(list)
        for source in sources(*packages):
            for node in source.classes():
                places[node.name].append(f"{source.path}:{node.lineno}")
        faults |= set(repeated(places))
    refuse(faults, "Rename: one word for one thing.")


def test_a_class_is_given_at_most_five_arguments_by_position() -> None:
    most: dict[str, float] = {}
    for node in (node for source in sources() for node in source.classes()):
        most[node.name] = min(_nameable(node), most.get(node.name, math.inf))
    faults = [
        source.at(call, f"{ast.unparse(call.func)} takes {len(call.args)} arguments by position")
        for source in sources()
        for name, call in _makings(source, set(most))
        if min(len(call.args), most[name]) > MOST_POSITIONAL and str(source.path) != FOR_EVERY_TASK.get(name)
    ]
    refuse(faults, "Name the arguments: field=value.")


def test_the_records_made_for_every_task_are_made_where_the_rule_says() -> None:
    made = {name: _made_in(path, name) for name, path in FOR_EVERY_TASK.items()}
    assert all(most > MOST_POSITIONAL for most in made.values()), f"{made}: none is made there by position"


def _made_in(path: str, name: str) -> int:
    """Return the maximum number of positional arguments in this file's calls of the class."""
    calls = (call for source in sources() if str(source.path) == path for _, call in _makings(source, {name}))
    return max((len(call.args) for call in calls), default=0)


def _nameable(node: ast.ClassDef) -> float:
    """Return how many arguments could be named: those of ``*names`` cannot."""
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__" and function.args.vararg:
            return len(function.args.args) - 1
    return math.inf


def _makings(source: Source, ours: set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of our classes, by name: of those defined in this file or imported from our packages."""
    here = {node.name for node in source.classes()} | set(_imported_from_us(source))
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if last in ours and ast.unparse(node.func).partition(".")[0] in here:
                yield last, node


def _imported_from_us(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            yield from (alias.asname or alias.name for alias in node.names)


def test_no_circle_of_files() -> None:
    refuse(circles(imports(sources(), late=False)), "Move what both need below both.")


def test_no_circle_of_files_through_imports_in_functions_or_for_types() -> None:
    """Listed apart: such a circle does not break the import, but neither file is understood without the other."""
    plain = set(circles(imports(sources(), late=False)))
    refuse(set(circles(imports(sources(), late=True))) - plain, "Move what both need below both.")


def test_no_circle_of_files_in_the_page() -> None:
    refuse(circles(web_imports()), "Move what both need below both.")
