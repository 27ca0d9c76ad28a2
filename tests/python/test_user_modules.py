"""A user's own modules go to workers with the calls that import them; installed packages do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import joblib
import pytest

from loopline.functions import user_modules
from loopline.functions.calls import outcome_of
from loopline.functions.carried_modules import pack, preparation
from loopline.functions.user_modules import UserModules
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId, TaskState
from loopline_shared.protocol import chunks
from loopline_shared.protocol.client_link import TaskEnd

FILES = {
    "users_own.py": "from users_pack import deep\nclass Point: x = 7\ndef f(x): return deep.g(x)\n",
    "users_pack/__init__.py": "",
    "users_pack/deep.py": "def g(x):\n    from . import lazy\n    return lazy.VALUE + x\n",
    "users_pack/lazy.py": "VALUE = 40\n",
    "users_pack/unused.py": "raise AssertionError\n",
    "users_late.py": "def twice(x): return 2 * x\n",
    "json.py": "raise AssertionError('Python has one')\n",
}
WORKER = """
import sys
from loopline_worker.functions.program.call_loop import SubmittedFunction
print(SubmittedFunction(open(sys.argv[1], "rb").read()).for_call()(2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user's script, on the path."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("users_")]:
        del sys.modules[name]


def on_a_worker(pickle: bytes, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Call a pickled function with 2, in an interpreter that has none of the user's modules on its path."""
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    file = tmp_path / "elsewhere" / "function"
    file.write_bytes(pickle)
    command = [sys.executable, "-c", WORKER, str(file)]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)


def test_function_brings_its_module_and_its_imports(folder: Path, tmp_path: Path) -> None:
    import users_own  # type: ignore[import-not-found]

    modules = UserModules()
    function = cloudpickle.dumps(users_own.f)
    needed = modules.needed(function, [])
    assert needed.names == ("users_own", "users_pack", "users_pack.deep", "users_pack.lazy")
    ran = on_a_worker(needed.with_function(function), tmp_path)
    assert ran.stdout == "42\n", ran.stderr
    assert "users_own" in on_a_worker(chunks.function_file(function), tmp_path).stderr  # which is why


def test_a_module_that_a_function_imports_when_called_goes_along_too(folder: Path, tmp_path: Path) -> None:
    def function(x: int) -> int:
        import json

        import users_late  # type: ignore[import-not-found]

        return int(json.loads(str(users_late.twice(x))))

    pickle = cloudpickle.dumps(function)
    needed = UserModules().needed(pickle, [])
    assert "users_late" in needed.names
    assert "json" not in needed.names  # Python's, though the user has one of that name
    assert on_a_worker(needed.with_function(pickle), tmp_path).stdout == "4\n"


def test_modules_of_arguments_go_along_and_those_of_installed_packages_do_not(folder: Path) -> None:
    import users_own

    modules = UserModules()
    function = cloudpickle.dumps(len)
    assert modules.needed(function, [cloudpickle.dumps((joblib.Parallel, LooplineError))]).names == ()
    before = modules.needed(function, [])
    after = modules.needed(function, [cloudpickle.dumps(users_own.Point())])
    assert "users_own" in after.names
    assert modules.carried is after
    assert before.with_function(function) == chunks.function_file(function)
    assert UserModules(go_along=False).needed(function, [cloudpickle.dumps(users_own.Point())]).names == ()


def test_processes_that_a_function_starts_find_its_modules(folder: Path, tmp_path: Path) -> None:
    import users_own

    def function(x: int) -> int:
        import multiprocessing

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return int(pool.apply(users_own.f, (x,)))

    pickle = cloudpickle.dumps(function)
    needed = UserModules().needed(pickle, [])
    assert "users_own" in needed.names
    ran = on_a_worker(needed.with_function(pickle), tmp_path)
    assert ran.stdout == "42\n", ran.stderr


def test_a_changed_module_takes_the_place_of_the_old_one_in_an_interpreter_that_had_it(tmp_path: Path) -> None:
    def function(_: int) -> int:
        import users_value  # type: ignore[import-not-found]

        return int(users_value.VALUE)

    pickle = cloudpickle.dumps(function)
    packed = [pack({"users_value": ("value.py", False, f"VALUE = {value}")}) for value in (1, 2)]
    versions = [chunks.function_file(pickle, [preparation(one)]) for one in packed]

    def both(_: int) -> list[int]:
        from loopline_worker.functions.program.call_loop import SubmittedFunction

        functions = [SubmittedFunction(version) for version in versions]
        return [function.for_call()(0) for function in functions * 2]

    ran = on_a_worker(chunks.function_file(cloudpickle.dumps(both)), tmp_path)
    assert ran.stdout == "[1, 2, 1, 2]\n", ran.stderr


def test_call_that_replaces_the_search_path_leaves_modules_for_the_next(tmp_path: Path) -> None:
    def function(_: int) -> int:
        import sys

        import users_value

        sys.path[:] = [place for place in sys.path if not place.startswith("/proc/")]
        del sys.modules["users_value"]
        return int(users_value.VALUE)

    packed = [pack({"users_value": ("value.py", False, f"VALUE = {value}")}) for value in (1, 2)]
    versions = [chunks.function_file(cloudpickle.dumps(function), [preparation(one)]) for one in packed]

    def both(_: int) -> list[int]:
        from loopline_worker.functions.program.call_loop import SubmittedFunction

        functions = [SubmittedFunction(version) for version in versions]
        return [function.for_call()(0) for function in functions * 2]

    ran = on_a_worker(chunks.function_file(cloudpickle.dumps(both)), tmp_path)
    assert ran.stdout == "[1, 2, 1, 2]\n", ran.stderr


def test_a_module_that_changes_after_it_was_read_is_named_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import users_own

    monkeypatch.setattr(user_modules, "_CHECK_EVERY_S", -1.0)
    modules, function = UserModules(), cloudpickle.dumps(users_own.f)
    modules.needed(function, [])
    modules.needed(function, [])
    assert capsys.readouterr().err == ""
    os.utime(folder / "users_own.py", ns=(1, 1))
    (folder / "users_pack" / "lazy.py").unlink()
    modules.needed(function, [])
    modules.needed(function, [])
    said = capsys.readouterr().err
    assert said.count("users_own.py has changed since this executor read it") == said.count("\n") == 1


def test_modules_that_are_too_large_are_refused_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import users_own

    monkeypatch.setattr(user_modules, "MOST_BYTES", 50)
    with pytest.raises(LooplineError, match="modules that the calls import") as refused:
        UserModules().needed(cloudpickle.dumps(users_own.f), [])
    assert "users_own" in refused.value.hint


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("x", "modules=[module]"),
        ("loopline", "a copy of its file checkpoint.py"),
        ("loopline_shared.job", "checkpoint.py"),
    ],
)
def test_missing_module_error_has_a_hint(module: str, hint: str) -> None:
    missing = ModuleNotFoundError(f"No module named '{module}'", name=module)
    content = cloudpickle.dumps((cloudpickle.dumps(missing), "text"))
    end = TaskEnd(number=1, state=TaskState.FAILED, worker="pc", exit_code=1, reason="", value=None)
    _, error = outcome_of(TaskId(1, 1), end, content)
    assert isinstance(error, ModuleNotFoundError)
    (note,) = error.__notes__
    assert hint in note
    assert ("numpy" in note) == (module == "x")
