from loopline.cli.render.chart import draw
from loopline_shared.model import AttemptId, AttemptState, Phases
from loopline_shared.rest.bodies import AttemptView, WaitingPlan


def attempt(
    name: str, worker: str, start: float, end: float | None, *, accepted: bool = True, replica: bool = False
) -> AttemptView:
    state = AttemptState.RUNNING if end is None else AttemptState.SUCCEEDED if accepted else AttemptState.CANCELLED
    return AttemptView(
        id=AttemptId.parse(name), worker=worker, state=state, replica=replica,
        accepted=accepted and end is not None, dispatched_at=start, started_at=start, ended_at=end,
        exit_code=0, reason="", wall_s=0, cpu_s=0, peak_memory_bytes=0,
    )  # fmt: skip


ATTEMPTS = [
    attempt("1.1.1", "alpha", 100, 110),
    attempt("1.2.1", "alpha", 100, 130, accepted=False),
    attempt("1.3.1", "beta", 102, 106),
    attempt("2.1.1", "beta", 106, 122),
    attempt("1.2.2", "alpha", 110, 130, replica=True),
    attempt("2.2.1", "beta", 124, None),
]
NAMES = {1: "mandelbrot", 2: "pi"}


def test_jobs_are_drawn_with_letters() -> None:
    assert draw(ATTEMPTS, NAMES, 140, 48, colour=False).plain.splitlines() == [
        "alpha 1 1AAAAAAAAA+2AAAAAAAAAAAAAAAAAA",
        "alpha 2 2aaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "beta 1    3AAA1BBBBBBBBBBBBBBB  2BBBBBBBBBBBBBBB",
        "        |0s       |10s      |20s      |30s",
        "",
        "AA job 1 mandelbrot   BB job 2 pi   +7AA replica of task 7   aaaa does not count: beaten, failed or lost",
    ]


def test_rows_are_the_reported_slots_of_started_attempts() -> None:
    attempts = [
        attempt("1.1.1", "pc", 100, 111).model_copy(update={"slot": 3}),
        attempt("1.2.1", "pc", 110, 120).model_copy(update={"slot": 3}),
        attempt("1.3.1", "pc", 100, 120).model_copy(update={"slot": 1, "phases": Phases(1, 2, 15)}),
        attempt("1.4.1", "pc", 105, None).model_copy(update={"started_at": None}),
    ]
    assert draw(attempts, NAMES, 120, 25, colour=False).plain.splitlines()[:2] == [
        "pc 1 3" + "A" * 14,
        "pc 3 1AAAAAAAAA2AAAAAAAAA",
    ]


def test_bars_are_coloured() -> None:
    chart = draw(ATTEMPTS, NAMES, 140, 48, colour=True)
    assert chart.plain.splitlines()[1] == "alpha 2 2" + "░" * 29
    styles = {chart.plain[span.start : span.end].strip(): str(span.style) for span in chart.spans}
    assert styles["1"] == "black on magenta"
    assert styles["+2"] == "black on cyan"
    assert styles["2" + "░" * 29] == "cyan dim"


def test_bars_too_short_to_show_stay_within_the_columns() -> None:
    many = [attempt(f"1.{n}.1", "pc", n, n + 1) for n in range(100, 200)] + [attempt("1.300.1", "pc", 200, 200)]
    row = draw(many, {1: "many"}, 200, 25, colour=False).plain.splitlines()[0]
    assert row == "pc 1 " + "A" * 20


def test_empty_chart_says_so() -> None:
    assert draw([], NAMES, 0, 80, colour=False).plain == "nothing has been run yet"


def test_the_axis_has_round_marks_for_any_length() -> None:
    for span_s, marks in ((0.2, "|0s"), (90, "|0s"), (7200, "|0m"), (40 * 86400, "|0d"), (4e9, "|0d")):
        chart = draw([attempt("1.1.1", "pc", 0, span_s)], {1: ""}, 0, 60, colour=False)
        axis = chart.plain.splitlines()[1].strip()
        assert axis.startswith(marks)
        assert len(axis) <= 55


def test_bar_starts_at_the_start_of_its_attempt_not_its_prefetch() -> None:
    first = attempt("1.1.1", "alpha", 100, 110)
    second = attempt("1.2.1", "alpha", 100, 120).model_copy(update={"started_at": 109.95})
    gone = attempt("1.3.1", "alpha", 100, 101, accepted=False).model_copy(update={"started_at": None})
    waits = attempt("1.4.1", "alpha", 100, None).model_copy(update={"started_at": None, "waiting": True})
    chart = draw([first, second, gone, waits], {1: "one"}, 120, 28, colour=False).plain.splitlines()
    assert chart[:2] == ["alpha 1 1AAAAAAAAA2AAAAAAAAA", "        |0s       |10s"]


def test_worker_has_at_most_as_many_rows_as_slots() -> None:
    first = attempt("1.1.1", "alpha", 100, 111).model_copy(update={"wall_s": 8.0})
    second = attempt("1.2.1", "alpha", 109, 120)
    chart = draw([first, second], {1: "one"}, 120, 28, colour=False).plain.splitlines()
    assert chart[:2] == ["alpha 1 1AAAAAAAA2AAAAAAAAAA", "        |0s       |10s"]


def plan(job: int, start: float | None, limit_s: float, *machines: str, moves: int = 0) -> WaitingPlan:
    return WaitingPlan(
        job=job, name="solve", user="ann", task=1, kind="promise", start_at=start, machines=list(machines), slots=1,
        limit_s=limit_s, limit_is_given=True, told_at=100, first_start_at=start, moves=moves,
    )  # fmt: skip


def test_plans_are_hatched_to_the_right_of_now() -> None:
    plans = [plan(3, 150, 10, "alpha", "beta"), plan(4, 160, 10, "beta", "gamma", moves=1), plan(5, None, 10)]
    ran = [attempt("1.1.1", "alpha", 100, 130), attempt("2.1.1", "beta", 120, None)]
    names = NAMES | {3: "solve", 4: "solve"}
    assert draw(ran, names, 140, 78, colour=False, plans=plans).plain.splitlines()[:4] == [
        "alpha 1 1AAAAAAAAAAAAAAAAAAAAAAAAAAAAA" + " " * 20 + "1C////////",
        "beta 1 " + " " * 21 + "1BBBBBBBBBBBBBBBBBBB" + " " * 10 + "1C////////<1D///////",
        "gamma 1" + " " * 61 + "<1D///////",
        "        |0s       |10s      |20s      |30s      ^now      |50s      |60s",
    ]


def test_chart_of_plans_alone_begins_now() -> None:
    chart = draw([], {3: "solve"}, 100, 28, colour=False, plans=[plan(3, 110, 10, "alpha")]).plain.splitlines()
    assert chart[:2] == ["alpha 1 " + " " * 10 + "1A////////", "        ^now      |10s"]


def test_a_plan_without_a_start_is_not_drawn() -> None:
    assert draw([], {5: "solve"}, 0, 80, colour=False, plans=[plan(5, None, 10)]).plain == "nothing has been run yet"
