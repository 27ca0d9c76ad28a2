"""What --input means: files and folders of this computer, and nothing that a link leads out to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopline.transfer import input_trees
from loopline.transfer.input_trees import find
from loopline_shared.errors import LooplineError


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in ("data/x.csv", "data/.hidden/config", "data/sub/y.csv", "model.bin", "a=b.txt", "more/c=d.txt"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["data/"], ["data/.hidden/config", "data/sub/y.csv", "data/x.csv"]),
        (["data"], ["data/.hidden/config", "data/sub/y.csv", "data/x.csv"]),
        (["data/sub"], ["sub/y.csv"]),
        (["data/sub/."], ["sub/y.csv"]),
        (["data=in/here"], ["in/here/.hidden/config", "in/here/sub/y.csv", "in/here/x.csv"]),
        (["model.bin", "data/x.csv=x"], ["model.bin", "x"]),
        (["a=b.txt"], ["a=b.txt"]),
        (["a=b.txt=c"], ["c"]),
        (["more/c=d.txt=more/c=d.txt"], ["more/c=d.txt"]),
        (["model.bin=a=b.bin"], ["a=b.bin"]),
        (["model.bin", "./model.bin"], ["model.bin"]),
        (["../{here}/model.bin"], ["model.bin"]),
    ],
)
def test_names(wanted: list[str], names: list[str], tmp_path: Path) -> None:
    assert sorted(find(word.replace("{here}", tmp_path.name) for word in wanted)) == names


def test_this_folder_is_taken_for_the_scratch_folder(data: Path) -> None:
    os.chdir(data)
    assert sorted(find(["."])) == [".hidden/config", "sub/y.csv", "x.csv"]


def test_paths_in_a_job_file_start_at_its_folder(data: Path) -> None:
    assert find(["x.csv"], base=data)["x.csv"].path == data / "x.csv"


def test_what_can_be_executed_stays_so(data: Path) -> None:
    (data / "x.csv").chmod(0o755)
    found = find(["data"])
    assert (found["data/x.csv"].executable, found["data/sub/y.csv"].executable) == (True, False)
    assert found["data/x.csv"].size_bytes == len("data/x.csv")


def test_links_within_are_followed(data: Path) -> None:
    (data / "link.csv").symlink_to("sub/y.csv")
    assert find(["data"])["data/link.csv"].size_bytes == len("data/sub/y.csv")
    (data.parent / "named").symlink_to("data/x.csv")
    assert find(["named"])["named"].size_bytes == len("data/x.csv")  # what a user names is meant


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/etc/passwd", "leads out of"),
        ("../model.bin", "leads out of"),
        ("sub", "a link to a folder"),
        (".", "a link to a folder"),
        ("nowhere", "leads nowhere"),
    ],
)
def test_links_that_lead_elsewhere_are_refused(data: Path, target: str, reason: str) -> None:
    (data / "link").symlink_to(target)
    with pytest.raises(LooplineError, match=reason) as refused:
        find(["data"])
    assert refused.value.code == "usage"
    assert str(data.name + "/link") in refused.value.message
    assert refused.value.hint


def test_what_cannot_be_an_input(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(data.parent / "pipe")
    (data.parent / "empty").mkdir()
    for wanted, reason in (
        (["none"], "there is no file or folder none"),
        (["e=f.txt"], "there is no file or folder e nor e=f.txt"),
        (["pipe"], "pipe is not a file"),
        (["empty"], "has no files in it"),
        (["model.bin=../x"], "must not leave"),
        (["model.bin=/x"], "begins with /"),
        (["model.bin=x", "data/x.csv=x"], "would both be x"),
        (["=x"], "expected FILE or FILE=NAME"),
    ):
        with pytest.raises(LooplineError, match=reason):
            find(wanted)
    monkeypatch.setattr(input_trees, "MAX_INPUTS", 2)
    with pytest.raises(LooplineError, match="more than 2 input files"):
        find(["data"])
