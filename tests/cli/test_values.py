import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

import pytest
from cyclopts import App, Argument, CoercionError, Parameter, Token
from hypothesis import given
from hypothesis import strategies as st

from loopline.cli import app, values
from loopline.cli.errors import Exit
from loopline_shared.spec import JobSpec
from tests.cli.conftest import Run

EXPECTATION = r"expected|has a step|is empty|has more than"
WHOLE = st.integers(-(2**40), 2**40)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
UNQUOTED = st.text(st.characters(exclude_characters=",\"'", categories=("L", "N", "P", "S")), min_size=1)


@given(WHOLE, WHOLE, st.none() | WHOLE)
def test_range_is_parsed(first: int, last: int, step: int | None) -> None:
    tail = "" if step is None else f":{step}"
    name, read = values.parameter(f"seed={first}..{last}{tail}")
    assert (name, read) == ("seed", {"range": [first, last] + ([] if step is None else [step])})


@given(st.lists(WHOLE | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_keep_their_value(numbers: list[float]) -> None:
    _, read = values.parameter("x=" + ",".join(map(repr, numbers)))
    assert read == numbers
    assert [type(number) for number in read] == [type(number) for number in numbers]


@given(st.lists(st.text(st.characters(exclude_characters='"')), min_size=1))
def test_quoted_text_is_not_converted(texts: list[str]) -> None:
    _, read = values.parameter("x=" + ",".join(f'"{text}"' for text in texts))
    assert read == texts


@given(UNQUOTED)
def test_scalar_is_a_json_number_or_text(text: str) -> None:
    read = values.scalar(text)
    assert read == (text if isinstance(read, str) else json.loads(text))


@given(NAMES, st.lists(UNQUOTED, min_size=1, max_size=5))
def test_parsed_parameters_are_valid_in_a_job(name: str, texts: list[str]) -> None:
    with suppress(ValueError):
        key, read = values.parameter(f"{name}=" + ",".join(texts))
        if isinstance(read, list):
            JobSpec.model_validate({"command": ["true"], "parameters": {key: read}})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x=a", ["a"]),
        ("x=a, b ,c", ["a", "b", "c"]),
        ("x='a,b',\"2\",3", ["a,b", "2", 3]),
        ("x=007,1e3,-0.5,nan", ["007", "1e3", -0.5, "nan"]),
        ("x=3.9,3.10,0.10,-0,12", [3.9, "3.10", "0.10", "-0", 12]),
        ("x=001..003", ["001", "002", "003"]),
        ("x=08..012:2", ["008", "010", "012"]),
        ("x=0..3", {"range": [0, 3]}),
        ("x=9007199254740993,1e999", ["9007199254740993", "1e999"]),
        ("x=../in,../out", ["../in", "../out"]),
        ("x=a=b", ["a=b"]),
        ("x=10..1:-3", {"range": [10, 1, -3]}),
        ("x=0.1..0.5:0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("x=1..2:0.5", [1.0, 1.5, 2.0]),
        ("x=1e-3..-1e-3:-.001", [0.001, 0.0, -0.001]),
        ('x="1..1O"', ["1..1O"]),
        ("x=1../in,2..", ["1../in", "2.."]),
    ],
)
def test_parameters_are_parsed(text: str, read: object) -> None:
    assert values.parameter(text) == ("x", read)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "x=", "=1", "x=a,", "x=,a", "x='a", "x='a'b"),
        *("x=0.1..0.5", "x=1..1O", "x=1..l0:2", "x=0.5..0.1:0.1", "x=0..1:0.0", "x=0..1:1e-9"),
    ],
)
def test_invalid_parameter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=EXPECTATION):
        values.parameter(text)


def test_shares_are_parsed() -> None:
    assert [values.count_or_share(text) for text in ("5", "10%", "0.5%")] == [5, "10%", "0.5%"]
    for wrong in ("", "0", "-1", "%", "0%", "101%", "five", "5 %", "²"):
        with pytest.raises(ValueError, match="a number of tasks"):
            values.count_or_share(wrong)


def test_slurm_arrays_with_a_limit_are_parsed() -> None:
    assert values.array("1-1000:2%10") == {"range": [1, 1000, 2]}
    assert values.split_array("1-1000:2%10") == ("1-1000:2", 10)
    assert values.split_array("1,3") == ("1,3", None)
    with pytest.raises(ValueError, match="expected FIRST-LAST"):
        values.array("1-10%")


def test_needs_and_units_are_parsed() -> None:
    assert [values.need(text) for text in ("matlab", "matlab=2")] == [("matlab", 1), ("matlab", 2)]
    assert [values.units(text) for text in ("8", "0", "none")] == [8, 0, None]
    for wrong in ("", "=2", "matlab=", "matlab=0", "matlab=x", "matlab=1.5"):
        with pytest.raises(ValueError, match="expected NAME"):
            values.need(wrong)
    for wrong in ("", "-1", "1.5", "all"):
        with pytest.raises(ValueError, match="expected a whole number"):
            values.units(wrong)


def test_arrays_are_parsed() -> None:
    assert values.array("1-1000") == {"range": [1, 1000]}
    assert values.array("1-1000:2") == {"range": [1, 1000, 2]}
    assert values.array("1,3,7-9,8,20-24:2") == [1, 3, 7, 8, 9, 20, 22, 24]
    assert values.array("01,03-04") == ["01", "03", "04"]
    with pytest.raises(ValueError, match="the range 5-1 is empty"):
        values.array("5-1,3")
    with pytest.raises(ValueError, match="at most 1,000,000 numbers"):
        values.array("1-99999999,3")
    for wrong in ("1", "1..5", "a-b", "1-", "-1-5", "1,", "1,,2", "1;2"):
        with pytest.raises(ValueError, match="FIRST-LAST"):
            values.array(wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5 h", 5400), ("2d", 172800), ("250ms", 0.25)],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


def test_since_is_a_duration_ago_or_a_time_with_its_zone() -> None:
    assert values.since("2027-01-31T09:00:00+01:00") == values.since("2027-01-31T08:00:00Z") == 1801382400.0
    before = time.time()
    assert before - 60 <= values.since("1m") <= time.time() - 60
    for wrong, said in (("2027-01-31T08:00:00", "with its zone"), ("yesterday", "a duration such as")):
        with pytest.raises(ValueError, match=said):
            values.since(wrong)


@pytest.mark.parametrize("text", ["", "m", "10x", "1h30", "-5s", "10 m ago", "1e3", "inf"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        values.duration(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2GB", 2_000_000_000),
        ("2g", 2_000_000_000),
        ("512MiB", 2**29),
        ("1.5m", 1_500_000),
        ("5000000", 5_000_000),
        ("1 tib", 2**40),
    ],
)
def test_memory_is_parsed(text: str, amount: int) -> None:
    assert values.memory(text) == amount


@given(st.text())
def test_parsers_refuse_with_a_value_error_and_nothing_else(text: str) -> None:
    for parse in (values.parameter, values.array, values.duration, values.memory, values.pair, values.count_or_share):
        with suppress(ValueError):
            parse(text)


def test_notification_targets_are_parsed() -> None:
    assert values.notification("https://chat.example.org/hook") == {"webhook": "https://chat.example.org/hook"}
    assert values.notification("command:mail") == {"command": "mail"}
    for wrong in ("", "mail", "command:", "ftp://example.org"):
        with pytest.raises(ValueError, match="expected a URL"):
            values.notification(wrong)


def test_error_for_a_word_instead_of_a_number_is_plain(run: Run, nobodys_computer: None) -> None:
    ran = run("submit", "--slots", "x", "--dry-run", "--", "true")
    assert ran.code == Exit.USAGE
    assert "Invalid value for --slots: expected a whole number, got 'x'" in ran.err


def options_of(command: App, default: Parameter | None) -> Iterator[Argument]:
    """Yield the options of a command and its subcommands."""
    for name in command.resolved_commands():
        if not name.startswith("-"):
            yield from options_of(command[name], default)
    if command.default_command is not None:
        yield from command.assemble_argument_collection(default_parameter=default)


def test_whole_number_options_refuse_fractions() -> None:
    seen = set()
    for command in app.COMMANDS:
        built = app.build(command)
        convert = built.default_parameter.converter if built.default_parameter else None
        for argument in options_of(built[command], built.default_parameter):
            is_own = argument.parameter.converter not in (None, convert)  # such as a duration, or a job's number
            if is_own or not argument.parse or int not in (argument.hint, *get_args(argument.hint)):
                continue
            argument.append(Token(keyword=argument.name, value="1.9"))
            with pytest.raises(CoercionError, match="expected a whole number"):
                argument.convert(convert)
            seen.add(argument.name)
    assert {"--nodes", "--limit", "--slots", "--rank", "--task", "--uses", "--max-replicas"} <= seen


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "1.9"), "--nodes: expected a whole number, got '1.9'"),
        (("--max-replicas", "1.9"), "--max-replicas: expected a whole number or unlimited, got '1.9'"),
        (("--after", "48.1"), "--after: expected a job such as 48, got the task '48.1'"),
        (("--only-failed-of", "48.1"), "--only-failed-of: expected a job such as 48, got the task '48.1'"),
    ],
)
def test_submit_refuses_fractions(run: Run, words: tuple[str, ...], told: str) -> None:
    ran = run("submit", *words, "--dry-run", "--", "true")
    assert ran.code == Exit.USAGE
    assert told in ran.err
