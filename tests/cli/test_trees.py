"""--input: files and folders of this computer, excluding targets of links that leave them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopline.transfer import input_trees
from loopline.transfer.excluded import Exclusions
from loopline.transfer.input_trees import find
from loopline_shared.errors import LooplineError
from loopline_shared.spec import JobSpec


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
def test_inputs_get_their_names(wanted: list[str], names: list[str], tmp_path: Path) -> None:
    assert sorted(find(word.replace("{here}", tmp_path.name) for word in wanted)) == names


def test_current_folder_maps_to_the_scratch_folder(data: Path) -> None:
    os.chdir(data)
    assert sorted(find(["."])) == [".hidden/config", "sub/y.csv", "x.csv"]


def test_paths_in_a_job_file_start_at_its_folder(data: Path) -> None:
    assert find(["x.csv"], base=data)["x.csv"].path == data / "x.csv"


def test_executable_bit_is_kept(data: Path) -> None:
    (data / "x.csv").chmod(0o755)
    found = find(["data"])
    assert (found["data/x.csv"].executable, found["data/sub/y.csv"].executable) == (True, False)
    assert found["data/x.csv"].size_bytes == len("data/x.csv")


def test_links_within_a_folder_stay_links(data: Path) -> None:
    (data / "link.csv").symlink_to("sub/y.csv")
    (data / "sub" / "up").symlink_to(data / "x.csv")
    (data / "sub" / "back").symlink_to("../../data/sub")
    (data / "to_sub").symlink_to("sub")
    found = find(["data"])
    links = {path: file.as_input() for path, file in found.items() if file.link}
    assert links == {
        "data/link.csv": {"link": "sub/y.csv"},
        "data/sub/back": {"link": "."},
        "data/sub/up": {"link": "../x.csv"},
        "data/to_sub": {"link": "sub"},
    }
    assert JobSpec(command=["x"], inputs={**links, "data/sub/y.csv": f"sha256:{'a' * 64}"}).inputs


def test_link_named_by_the_user_is_followed(data: Path) -> None:
    (data.parent / "named").symlink_to("data/x.csv")
    assert find(["named"])["named"].size_bytes == len("data/x.csv")  # a link named by the user is followed


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/etc/passwd", "leads out of"),
        ("../model.bin", "leads out of"),
        ("nowhere", "leads nowhere"),
        ("link", "leads nowhere"),
    ],
)
def test_links_that_leave_the_folder_are_refused(data: Path, target: str, reason: str) -> None:
    (data / "link").symlink_to(target)
    with pytest.raises(LooplineError, match=reason) as refused:
        find(["data"])
    assert refused.value.code == "usage"
    assert str(data.name + "/link") in refused.value.message
    assert refused.value.hint


def test_links_that_leave_the_folder_are_followed_on_request(data: Path) -> None:
    (data / "model").symlink_to("../model.bin")
    (data / "more").symlink_to("../more")
    with pytest.raises(LooplineError) as refused:
        find(["data"])
    assert "data/model, data/more are links that lead out of" in refused.value.message
    assert "--follow-links" in refused.value.hint
    found = find(["data"], follow_links=True)
    assert found["data/model"].size_bytes == len("model.bin")
    assert found["data/more/c=d.txt"].size_bytes == len("more/c=d.txt")
    (data / "sub" / "around").symlink_to("../..")
    with pytest.raises(LooplineError, match="data/sub/around is a link to a folder that it is in"):
        find(["data"], follow_links=True)


def test_link_to_an_excluded_file_is_left_out_with_it(data: Path) -> None:
    (data / "link.csv").symlink_to("sub/y.csv")
    exclusions = Exclusions(["sub/"])
    assert sorted(find(["data"], exclusions=exclusions)) == ["data/.hidden/config", "data/x.csv"]
    assert exclusions.left_out == ["data/sub/", "data/link.csv"]


def test_empty_folders_are_inputs(data: Path) -> None:
    (data / "out" / "plots").mkdir(parents=True)
    found = find(["data", "data/out/plots=here"])
    assert {path: file.as_input() for path, file in found.items() if file.is_folder} == {
        "data/out/plots": {"folder": True},
        "here": {"folder": True},
    }


def test_invalid_input_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(data.parent / "pipe")
    (data.parent / "empty").mkdir()
    for wanted, reason in (
        (["none"], "there is no file or folder none"),
        (["e=f.txt"], "there is no file or folder e nor e=f.txt"),
        (["pipe"], "pipe is not a file"),
        (["model.bin=../x"], "must not leave"),
        (["model.bin=/x"], "begins with /"),
        (["model.bin=x", "data/x.csv=x"], "would both be x"),
        (["=x"], "expected FILE or FILE=NAME"),
    ):
        with pytest.raises(LooplineError, match=reason):
            find(wanted)
    with pytest.raises(LooplineError, match="has no files in it"):
        find(["."], base=data.parent / "empty")
    monkeypatch.setattr(input_trees, "MAX_INPUTS", 2)
    with pytest.raises(LooplineError, match="more than 2 input files"):
        find(["data"])
