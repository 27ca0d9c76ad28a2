"""Paths from outside: an accepted path stays inside its folder, on every system."""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from loopline_shared import manifest
from loopline_shared.job_files import output_patterns, staged
from loopline_shared.model import InputFile, InputFolder, InputLink, OutputFile
from loopline_shared.paths import Pattern, RelativePath, alike, alternatives, is_wild, tree_of
from loopline_shared.spec import MAX_INPUTS, JobSpec, named_files

PATH = TypeAdapter(RelativePath)
FILE = "sha256:" + "a" * 64


def accepts(path: str) -> bool:
    try:
        PATH.validate_python(path)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "must not leave"),
        ("a/../../x", "must not leave"),
        ("a/./x", "must not leave"),
        ("/etc/passwd", "begins with /"),
        ("a//b", "empty name"),
        ("a/", "empty name"),
        ("C:/x", "drive"),
        ("C:", "drive"),
        ("a/c:x", "drive"),
        ("a\\..\\x", "character"),
        ("a\0b", "character"),
        ("a\nb", "character"),
        (".tmp/x", "temporary"),
        ("a/" * 40 + "x", "deep"),
        ("ü" * 200, "more than 255 bytes"),
        ("x" * 501, "500"),
        ("", "1 character"),
    ],
)
def test_path_that_leads_out_or_cannot_be_written_is_refused(path: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        PATH.validate_python(path)


@pytest.mark.parametrize("path", ["x", "data/x.csv", ".hidden", "a b/ü.csv", "...", "a..b/c", "12:30.csv", "~/x"])
def test_ordinary_names_are_taken(path: str) -> None:
    assert accepts(path)


def test_a_pattern_goes_down_any_folders_twice_at_most() -> None:
    pattern = TypeAdapter(Pattern)
    assert pattern.validate_python("a/**/b*/**") == "a/**/b*/**"
    with pytest.raises(ValidationError, match=r"has \*\* in it more than 2 times"):
        pattern.validate_python("**/a/**/b/**")
    with pytest.raises(ValidationError, match="must not leave"):
        pattern.validate_python("../*")


names = st.text(st.sampled_from("aC:./\\ ~\0*?") | st.characters(), max_size=30)


@given(names)
@example("a/../b")
@example("C:x")
@example("a/C:x")
@example("//server/share")
def test_accepted_path_stays_inside(path: str) -> None:
    if not accepts(path):
        return
    for pure, module, root in ((PurePosixPath, posixpath, "/scratch"), (PureWindowsPath, ntpath, "C:\\scratch")):
        one_by_one = pure(root)
        for name in path.split("/"):
            one_by_one = one_by_one / name
        for joined in (pure(root) / path, one_by_one):
            assert pure(module.normpath(joined)).is_relative_to(root)
            assert len(joined.parts) == len(pure(root).parts) + len(path.split("/"))


def test_a_file_is_no_folder() -> None:
    with pytest.raises(ValueError, match="'a/b' cannot be in 'a', which is a file"):
        tree_of(["a", "a/b"])
    common = tree_of(["data/x", "y"])
    with pytest.raises(ValueError, match="which is a file"):
        tree_of(["y/z"], beside=common)
    with pytest.raises(ValueError, match="others are in it"):
        tree_of(["data"], beside=common)
    tree_of(["y", "data/z", "data/x"], beside=common)  # the same, or others beside it


def test_names_that_other_systems_take_for_one() -> None:
    assert alike(["a/X", "b", "a/x"]) == ("a/X", "a/x")
    assert alike(["a", "b"]) is None


def test_wildcards() -> None:
    assert [path for path in ("a/b.csv", "*.csv", "a/**", "x[12]", "x?") if not is_wild(path)] == ["a/b.csv"]


# Jobs


def test_inputs_are_files_by_content() -> None:
    job = JobSpec(command=["x"], inputs={"a": FILE, "b": {"file": FILE, "executable": True}}, outputs=["*.csv"])
    assert staged(job.inputs) == {"a": InputFile("a" * 64), "b": InputFile("a" * 64, None, True)}
    assert named_files(job) == {"a" * 64}
    assert JobSpec.model_validate(job.to_json()) == job


@pytest.mark.parametrize(
    "inputs",
    [
        {"../a": FILE},
        {"/a": FILE},
        {"a": "sha256:short"},
        {"a": "a" * 64},
        {"a": {"file": FILE, "mode": 0o777}},
        {"a": FILE, "a/b": FILE},
        {f"f{n}": FILE for n in range(MAX_INPUTS + 1)},
    ],
)
def test_inputs_that_are_refused(inputs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        JobSpec(command=["x"], inputs=inputs)


@pytest.mark.parametrize(
    "pattern", ["../*.csv", "/tmp/*", "/", "a\\*", "*/../../x", "{a,../b}", "{a,/b}", "{**/,}**/**", "{,a}"]
)
def test_patterns_stay_inside_too(pattern: str) -> None:
    with pytest.raises(ValidationError):
        JobSpec(command=["x"], outputs=[pattern])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["*.csv"]),
        ("*.{csv,log}", ["*.csv", "*.log"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("{a,{b,c}}d", ["ad", "bd", "cd"]),
        ("{a{b,c}d}", ["{abd}", "{acd}"]),
        ("x{,y}", ["x", "xy"]),
        ("{seed}.csv", ["{seed}.csv"]),
        ("{{a,b}", ["{a", "{b"]),
        ("a}{b,c}{", ["a}b{", "a}c{"]),
        ("{a,a}", ["a"]),
    ],
)
def test_braces_stand_for_alternatives(pattern: str, expected: list[str]) -> None:
    assert alternatives(pattern) == expected


def test_links_stay_within_the_scratch_folder() -> None:
    inputs = {"d/x": FILE, "d/now": {"link": "x"}, "e/up": {"link": "../d/./x"}, "out/plots": {"folder": True}}
    job = JobSpec(command=["x"], inputs=inputs, tasks=[{"inputs": {"out/plots/a": FILE}}])
    assert JobSpec.model_validate(job.to_json()) == job
    assert named_files(job) == {"a" * 64}
    for link in ("..", "../x", "d/../../x", "/etc/passwd", "a\\b", "", "x\n"):
        with pytest.raises(ValidationError):
            JobSpec(command=["x"], inputs={"now": {"link": link}})
    for wrong in ({"link": "x", "file": FILE}, {"folder": False}, {"folder": True, "link": "x"}):
        with pytest.raises(ValidationError):
            JobSpec(command=["x"], inputs={"now": wrong})
    with pytest.raises(ValidationError, match="which is a file"):
        JobSpec(command=["x"], inputs={"now": {"link": "d"}, "now/x": FILE})


def test_alternatives_are_bounded() -> None:
    assert len(alternatives("{1,2,3,4,5,6,7,8,9,10}" * 2)) == 100
    for many in ("{1,2}" * 100, "{a" * 101 + ",}" * 101, "{1,2,3,4,5,6,7,8,9,10,11}" * 2):
        with pytest.raises(ValueError, match="stands for more than 100 patterns"):
            alternatives(many)


def test_outputs_may_be_optional_and_folders_may_end_with_a_slash() -> None:
    spec = JobSpec(command=["x"], outputs=["out/", {"path": "*.log", "optional": True}, {"path": "a"}])
    assert output_patterns(spec.outputs, optional=False) == ("out", "a")
    assert output_patterns(spec.outputs, optional=True) == ("*.log",)


def test_a_tasks_own_inputs_fit_beside_its_jobs() -> None:
    JobSpec(command=["x"], inputs={"d/a": FILE}, tasks=[{"inputs": {"d/b": FILE}}, {"inputs": {"d/a": FILE}}])
    with pytest.raises(ValidationError, match="which is a file"):
        JobSpec(command=["x"], inputs={"d": FILE}, tasks=[{"inputs": {"d/b": FILE}}])


def test_a_malicious_result_or_manifest_is_refused() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(OutputFile).validate_python({"path": "../../x", "sha256": "a" * 64, "size_bytes": 1})
    files = {"data/x": InputFile("a" * 64, 3), "b": InputFile("b" * 64, 0, True)}
    assert manifest.decode(manifest.encode(files)) == files
    others = {"data/now": InputLink("x"), "out": InputFolder(True)}
    assert manifest.decode(manifest.encode(files | others)) == files | others
    with pytest.raises(ValueError, match="must not leave"):
        manifest.decode(manifest.encode(files).replace(b"data/x", b"../x"))
