"""Every command against a fake master: its requests, its output and its exit code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from loopline.cli.app import COMMANDS
from loopline.cli.errors import EXIT_CODES, Exit
from loopline.client import AsyncClient
from loopline_shared.model import AttemptId, JobState, Load, Order, Resource, TaskId, TaskState, WithheldGpu
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.protocol.gpus import Gpu
from loopline_shared.rest.access import (
    AuditEntry,
    EncryptionView,
    JoinTokenCreated,
    JoinTokenView,
    TokenCreated,
    TokenView,
    WebhookSecret,
)
from loopline_shared.rest.bodies import (
    Counts,
    DemandLine,
    DemandView,
    EnergyUse,
    Explanation,
    FailureKind,
    FailureReport,
    FieldError,
    Flaw,
    FoundLine,
    GpuUse,
    HistoryLine,
    HistoryReport,
    LastHour,
    LimitsView,
    LimitView,
    PassingReport,
    PruneReport,
    Reason,
    SharesView,
    Submission,
    UserShare,
)
from tests.cli.conftest import Run
from tests.cli.fake_master import Answer, FakeMaster, hang_up, ok, page, refuse
from tests.cli.test_network import VIEW as NETWORK
from tests.cli.views import job, program, result, task, worker

PASSED_ON = {
    "master",
    "worker",
    "doctor",
    "owner",
    "simulate",
    "backup",
    "fsck",
    "restore",
}  # to other programs, --help included
SPEAKS_FOR_ITSELF = PASSED_ON | {"replay", "token", "demo", "local", "run", "join", "leave", "service", "completion"}
SPEAKS_FOR_ITSELF |= {"login", "logout"}  # tests/live/test_encryption.py
SPEAKS_FOR_ITSELF |= {"elastic"}  # tests/cli/test_elastic.py
TOKEN = TokenView(id="t1", name="ann", role="user", created_at=1.0)
DEED = AuditEntry(id=1, at=1.0, who="ann", role="user", token="t1", address="::1", did="cancel_job", on="7")
JOIN_TOKEN = JoinTokenView(id="a1", uses=1, used=0, created_at=1.0, expires_at=2.0)
ENCRYPTION = EncryptionView(is_on=True, pin="ab" * 32, names=("lab-pc",), expires_at=9.0)
_LINE = HistoryLine(
    subject="ann",
    name="",
    jobs=2,
    tasks=5,
    attempts=6,
    wall_s=60.0,
    useful_cpu_s=50.0,
    replicated_cpu_s=5.0,
    wasted_cpu_s=5.0,
    lost_cpu_s=0.0,
)
_USE = EnergyUse(useful_kwh=1.25, wasted_kwh=0.05, by_source={EnergySource.PACKAGE: 1.1, EnergySource.GPU: 0.2})
HISTORY = HistoryReport(since=0.0, until=2.0, lines=[_LINE])
LIMITS = LimitsView(
    limits=[
        LimitView(name="matlab", user=None, per_user=False, units=8, used={"ann": 2, "bob": 1}),
        LimitView(name="matlab", user="ann", per_user=False, units=4, used={"ann": 2, "bob": 1}),
        LimitView(name="matlab", user=None, per_user=True, units=2, used={"ann": 2, "bob": 1}),
    ]
)
_SHARE = UserShare(user="ann", share=1.0, due=0.5, used_s=60.0, used=0.25, slots=2, jobs=1)
SHARES = SharesView(is_kept=True, half_life_s=86400.0, users=[_SHARE])
AUDIT = PassingReport(order=Order.HOLD, completions=3, passings=0, excused={"paused": 1}, latest=[])
PRUNED = PruneReport(
    deleted=False,
    job_count=0,
    jobs=[],
    files=1,
    bytes=5,
    uploads=0,
    upload_bytes=0,
    older_than_s=None,
    grace_s=86400.0,
)
REASON = Reason(code="slots", count=4, detail="no slot is free")


KIND = FailureKind(exit_code=3, reason="no licence", tasks=1200, jobs=[7, 6], example=TaskId(7, 2))
FAILURES = FailureReport(kinds=[KIND], job_count=2, truncated=False)


def answers(fake: FakeMaster) -> None:
    """Set the answers to all requests of the commands below."""
    fake.on("GET /jobs", page(job(7), job(6)))
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/tasks", page(task(1), task(2, TaskState.FAILED, exit_code=3)))
    fake.on("GET /jobs/7/attempts", page())
    fake.on("GET /jobs/7/results", ok(result(1, "about 3.14\n").model_dump_json().encode() + b"\n"))
    fake.on("GET /failures", ok(FAILURES))
    fake.on("GET /jobs/7/tasks/1/stdout", ok(b"about 3.14\n"))
    fake.on("GET /jobs/7/tasks/1/stderr", ok(b"oh\n"))
    fake.on(
        "GET /jobs/7/explain", ok(Explanation(subject="7", state="queued", sentence="It waits.", reasons=[REASON]))
    )
    fake.on("POST /jobs", ok(Submission(id=7, task_count=2, warnings=["no worker is a mac"]), 201))
    for what in ("cancel", "pause", "resume", "retry"):
        for number in (7, 8):
            fake.on(f"POST /jobs/{number}/{what}", ok(job(number)))
    fake.on(
        "GET /workers",
        page(worker(last_hour=LastHour(used=3600.0, offered=14400.0, share=0.25, slot_s=1.0, tasks=7))),
    )
    fake.on("GET /programs", page(program()))
    for what in ("drain", "undrain", "forget", "wake"):
        for name in ("pc-1", "pc-2"):
            fake.on(f"POST /workers/{name}/{what}", ok(worker(name)))
    fake.on("GET /tokens", page(TOKEN))
    fake.on("GET /tls", ok(ENCRYPTION))
    fake.on("POST /tokens", ok(TokenCreated(**TOKEN.model_dump(), secret="ll_t1_x"), 201))
    fake.on("POST /tokens/t1/revoke", ok(TOKEN))
    fake.on("GET /audit-log", page(DEED))
    fake.on("GET /webhook-secret", ok(WebhookSecret(secret="whsec_x")))
    fake.on("GET /join-tokens", page(JOIN_TOKEN))
    made = JoinTokenCreated(**JOIN_TOKEN.model_dump(), secret="lj_a1_x", address="http://lab-pc:7461")
    fake.on("POST /join-tokens", ok(made, 201))
    fake.on("GET /passing", ok(AUDIT))
    fake.on("GET /network", ok(NETWORK))
    fake.on("POST /prune", ok(PRUNED))
    fake.on("GET /history", ok(HISTORY))
    fake.on("GET /shares", ok(SHARES))
    fake.on("GET /demand", ok(DemandView(slots=3, demands=[DemandLine(labels=["gpu"], tasks=3)])))
    fake.on("PUT /shares/ann", ok(SHARES))
    fake.on("GET /limits", ok(LIMITS))
    fake.on("PUT /limits/matlab", ok(LIMITS))
    fake.on("DELETE /limits/matlab", ok(LIMITS))
    fake.on("PATCH /jobs/1", ok(job(1, max_running=3)))


LINES = [
    ("submit --json -- pi", "id"),
    ("submit --json --wait -- pi", "state"),
    ("jobs --json", None),
    ("failures --json", "kinds"),
    ("job 7 --json", "spec"),
    ("job 7 --json --wait", "spec"),
    ("tasks 7 --json", None),
    ("logs 7.1 --json", "text"),
    ("explain 7 --json", "sentence"),
    ("gantt 7 --json", None),
    ("cancel 7 --json", "state"),
    ("cancel 7 8 --json", None),
    ("pause 7 --json", "state"),
    ("resume 7 --json", "state"),
    ("retry 7 --json", "state"),
    ("workers --json", None),
    ("workers --long --json", None),
    ("history --by program --json", None),
    ("drain pc-1 --reason moved --json", "draining"),
    ("drain pc-1 pc-2 --now --json", None),
    ("undrain pc-1 --json", "draining"),
    ("forget pc-1 --json", "forgotten"),
    ("wake pc-1 --json", "sleep"),
    ("wake pc-1 pc-2 --wait --json", None),
    ("token create ann --json", "secret"),
    ("token list --json", None),
    ("token webhook-secret --json", "secret"),
    ("audit --user ann --since 7d --json", None),
    ("token join --json", "line"),
    ("token joins --json", None),
    ("token revoke t1 --json", "id"),
    ("tls show --json", "pin"),
    ("passing --json", "passings"),
    ("network --json", "nodes"),
    ("prune --json", "files"),
    ("history --json", "lines"),
    ("energy --json", "lines"),
    ("shares --json", "users"),
    ("shares ann 2 --json", "users"),
    ("limits --json", "limits"),
    ("limit --json", "limits"),
    ("limit matlab=8 --json", "limits"),
    ("limit matlab=2 --per-user --json", "limits"),
    ("limit matlab=none --user ann --json", "limits"),
    ("limit --job 1 3 --json", "max_running"),
    ("demand --json", "demands"),
    ("top --json", "workers"),
    ("results 7 --json", "stdout"),
]


@pytest.mark.parametrize(("line", "key"), LINES)
def test_json_is_one_document_and_nothing_else(fake: FakeMaster, run: Run, line: str, key: str | None) -> None:
    answers(fake)
    ran = run(*line.split())
    assert ran.code == 0, ran.err
    assert isinstance(ran.document, list) if key is None else key in ran.document


@pytest.mark.parametrize("line", [line for line, _ in LINES])
def test_output_in_a_pipe_has_no_json_and_no_colours(fake: FakeMaster, run: Run, line: str) -> None:
    answers(fake)
    ran = run(*line.replace(" --json", "").split())
    assert ran.code == 0, ran.err
    assert ran.out.strip()
    assert "\x1b" not in ran.out + ran.err
    with pytest.raises(json.JSONDecodeError):
        json.loads(ran.out)


def test_shell_completion_offers_commands_and_options(run: Run) -> None:
    answer = run("completion", "bash", "--json").document
    assert set(answer) == {"script"}
    for script in (answer["script"], run("completion", "zsh").out, run("completion", "fish").out):
        assert all(word in script for word in ("explain", "only-failed-of", "undrain"))
    placed = run("completion", "bash", "--install", "--json").document["file"]
    assert "only-failed-of" in Path(placed).read_text("utf-8")


def test_every_command_that_uses_a_master_is_tested_above() -> None:
    tried = {line.split()[0] for line, _ in LINES} | {"fetch"}
    assert tried | SPEAKS_FOR_ITSELF == COMMANDS.keys()


REFUSALS = [
    (refuse(401, "unauthorised", "who are you?", "give a token"), Exit.NOT_AUTHORISED),
    (refuse(403, "forbidden", "not yours"), Exit.NOT_AUTHORISED),
    (refuse(404, "not_found", "there is no job 7"), Exit.NOT_FOUND),
    (refuse(409, "conflict", "it is over"), Exit.FAILED),
    (refuse(422, "invalid", "wrong", errors=[FieldError(at="x", message="is odd")]), Exit.USAGE),
    (refuse(500, "bug", "oh"), Exit.FAILED),
]


@pytest.mark.parametrize(("answer", "code"), REFUSALS)
def test_refusal_of_the_master_is_shown_with_its_exit_code(
    fake: FakeMaster, run: Run, answer: Answer, code: Exit
) -> None:
    fake.on("GET /jobs/7", answer)
    plain, machine = run("job", "7"), run("job", "7", "--json")
    assert (plain.code, machine.code) == (code, code)
    assert plain.out == machine.out == ""
    assert plain.err.startswith("error: ")
    assert json.loads(machine.err)["error"]["message"] in plain.err


def test_hint_of_an_error_is_shown(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /jobs", refuse(409, "conflict", "it is over", "retry it"))
    assert run("jobs").err == "error: it is over\nhint: retry it\n"


def test_unreachable_master_is_an_error(run: Run, closed_port: int) -> None:
    ran = run("jobs", "--master", f"http://127.0.0.1:{closed_port}")
    assert ran.code == Exit.UNREACHABLE
    assert "start one with `loopline master`" in ran.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sumbit -- pi", "did you mean `loopline submit`?"),
        ("submit", "there is no command to run"),
        ("submit --nmae x -- pi", "--name"),
        ("submit --seed 3 pi", "goes after `--`"),
        ("submit --size soon -- pi", "a duration such as 90s"),
        ("submit --param seed=0.1..0.5 -- pi", "has a step"),
        ("submit --param x=1 --param x=2 -- pi", "given twice"),
        ("submit --max-attempts 0 -- pi", "max_attempts: has to be at least 1"),
        ("submit --array 5-1 -- pi", "is empty"),
        ("job", "requires an argument"),
        ("limit --user ann", "a limit is missing"),
        ("job seven", "a job such as 12"),
        ("job 7.1", "a job such as 7"),
        ("job 0", "numbered from 1"),
        ("logs seven", "a task such as 12.3"),
        ("token creat ann", "create"),
        ("token create ann --role king", "admin"),
    ],
)
def test_wrong_usage_is_explained(fake: FakeMaster, run: Run, line: str, said: str) -> None:
    ran = run(*line.split())
    assert ran.code == Exit.USAGE
    assert said in re.sub(r"\s+", " ", ran.err)
    assert not ran.out
    assert not fake.seen


@pytest.mark.parametrize("what", ["cancel", "pause", "resume"])
def test_remaining_jobs_are_changed_after_a_refusal(fake: FakeMaster, run: Run, what: str) -> None:
    for number in (7, 9):
        fake.on(f"POST /jobs/{number}/{what}", ok(job(number)))
    fake.on(f"POST /jobs/8/{what}", refuse(404, "not_found", "there is no job 8"))
    ran = run(what, "7", "8", "9", "7")
    assert ran.code == Exit.NOT_FOUND
    assert [line.split()[1] for line in ran.out.splitlines()] == ["7", "9"]
    assert "there is no job 8" in ran.err
    assert len(fake.asked(f"POST /jobs/7/{what}")) == 1


def test_logs_of_a_job_are_those_of_its_only_task(fake: FakeMaster, run: Run) -> None:
    answers(fake)
    fake.on("GET /jobs/7", ok(job(7).model_copy(update={"task_count": 1})))
    assert run("logs", "7").out == "about 3.14\n"
    fake.on("GET /jobs/7", ok(job(7).model_copy(update={"task_count": 2})))
    ran = run("logs", "7")
    assert (ran.code, "name one of them, such as 7.1" in ran.err) == (Exit.USAGE, True)


def test_times_are_printed_with_their_zone(fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(fake)
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert "1970-01-01 05:30:01 +0530" in run("audit").out
        run("audit", "--since", "2027-01-31T09:00:00+01:00")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert fake.asked("GET /audit-log")[-1].query["since"].startswith("1801382400")


def test_failures_are_listed_by_reason(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /failures", ok(FAILURES))
    out = run("failures", "--user", "ann", "--since", "2027-01-31T08:00:00Z").out
    assert [word in out for word in ("1,200", "7, 6", "7.2", "no licence", "of 2 jobs")] == [True] * 5
    assert fake.asked("GET /failures")[0].query == {"since": "1801382400.0", "user": "ann"}
    fake.on("GET /failures", ok(FAILURES.model_copy(update={"kinds": []})))
    assert run("failures").out == "no task has failed\n"


def test_text_is_found_in_the_output_of_all_tasks(fake: FakeMaster, run: Run) -> None:
    hits = [FoundLine(task=TaskId(7, n), stream="stderr", line=n, text=f"oh\x1b[2J {n}") for n in (1, 2)]
    fake.on("GET /jobs/7/lines", page(*hits))
    assert run("logs", "7", "--find", "oh").out == "7.1 stderr:1: oh^[[2J 1\n7.2 stderr:2: oh^[[2J 2\n"
    assert run("logs", "7.2", "--find", "oh").out == "7.2 stderr:2: oh^[[2J 2\n"
    lines = run("logs", "7", "--find", "oh", "--json").out.splitlines()
    assert [json.loads(line)["task"] for line in lines] == ["7.1", "7.2"]
    assert fake.asked("GET /jobs/7/lines")[0].query["text"] == "oh"


def test_waiting_ends_with_the_job(fake: FakeMaster, run: Run) -> None:
    answers(fake)
    running, failed = job(7, JobState.RUNNING), job(7, JobState.FAILED)
    fake.on("GET /jobs/7", ok(running), ok(running), ok(failed))
    ran = run("submit", "--wait", "--", "pi")
    assert ran.code == Exit.FAILED
    assert ran.out.startswith("job 7 pi failed after 9.0s (waited 1.0s): ")
    assert "no worker is a mac" in ran.err


def test_waiting_ends_if_the_job_can_never_start(fake: FakeMaster, run: Run) -> None:
    answers(fake)
    fake.on("GET /jobs/7", ok(job(7, JobState.WAITING)))
    waits = Reason(code="waits", count=2, detail="waits for job 5 to succeed (running, 2 of its 2 tasks left)", job=5)
    lost = Reason(
        code="waits_in_vain",
        count=1,
        detail="can never start: job 5 has failed; retry that one, or cancel this one",
        job=5,
    )
    explained = [
        Explanation(subject="7", state="waiting", sentence=one.detail, reasons=[one]) for one in (waits, lost)
    ]
    commands = ("job 7 --wait", "submit --wait --after 5 -- pi", "results 7", "logs 7.1 --follow")
    for words in map(str.split, commands):
        fake.on("GET /jobs/7/explain", *map(ok, explained))
        ran = run(*words)
        assert ran.code == Exit.FAILED
        assert "error: job 7 can never start: job 5 has failed; " in ran.err
        assert "hint: `loopline retry 5`, or `loopline cancel 7`" in ran.err


def test_waiting_outlasts_an_absent_master(fake: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline.cli.common.Common.client", lambda self: AsyncClient(fake.url, patience_s=0))
    running = ok(job(7, JobState.RUNNING, tasks=Counts(queued=1, running=1)))
    fake.on("GET /jobs/7", running, hang_up(), hang_up(), running, ok(job(7)))
    assert run("job", "7", "--wait").code == Exit.OK


def test_job_and_top_show_transfers_with_rates(fake: FakeMaster, run: Run) -> None:
    answers(fake)
    flow = NETWORK.flows[0]
    fake.on("GET /jobs/7", ok(job(7).model_copy(update={"files_coming": (flow,)})))
    way = f"{flow.source} → {flow.receiver}: "
    assert way in run("job", "7").out
    assert way in run("top", "--once").out
    fake.on("GET /network", refuse(404, "not_found", "there is no such address"))
    assert way not in run("top", "--once").out, "a master of release 0.1"


def test_workers_keep_the_old_word_for_their_health_beside_the_new_one(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /workers", page(worker(health=-1.5)))
    (view,) = run("workers", "--json").document
    assert view["health"] == -1.5
    header = run("workers").out.splitlines()[0]
    assert "last seen" in header
    assert "yield time" in header
    assert "health" in run("workers", "--long").out.splitlines()[0]


def test_gpus_are_listed_with_the_task_that_has_each(fake: FakeMaster, run: Run) -> None:
    gpus = [Gpu(f"GPU-{n}", "NVIDIA RTX A4000", 16 * 10**9, "550.54", "8.6", n) for n in range(3)]
    away = WithheldGpu("GPU-1", "its owner uses it")
    known = worker()
    shown = known.model_copy(
        update={
            "facts": replace(known.facts, resources=(Resource("gpu", 3, tuple(gpus)),)),
            "load": Load(4, withheld_gpus=(away,)),
            "resources_used": {"gpu": 1},
            "gpus_used": {"GPU-0": [GpuUse(attempt=AttemptId(7, 1, 1), user="ann")]},
        }
    )
    fake.on("GET /workers", page(shown))
    lines = run("workers", "--gpus").out.splitlines()
    for line, state in zip(lines[-3:], ("task 7.1.1 of ann", "its owner uses it", "free"), strict=True):
        assert state in line
        assert "16.0 GB" in line
    assert "gpu=1/3" in run("workers").out
    (view,) = run("workers", "--gpus", "--json").document
    assert view["gpus_used"] == {"GPU-0": [{"attempt": "7.1.1", "user": "ann"}]}
    fake.on("GET /workers", page(known))
    assert "no worker offers a GPU" in run("workers", "--gpus").out


def test_programs_of_a_user_are_listed(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /programs", page(program()))
    assert run("history", "--by", "program", "--user", "ann").code == Exit.OK
    assert fake.asked("GET /programs")[0].query["user"] == "ann"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--parallel", "--forecasts"], "--parallel and --forecasts ask for different things"),
        (["--swf", "a.swf", "--parallel"], "--swf or --fta and --parallel ask for different things"),
        (["--user", "ann"], "--user and --name choose among programs"),
        (["--forecasts", "--by", "program", "--name", "a"], "--user and --name choose among programs"),
    ],
)
def test_history_refuses_options_that_it_would_ignore(run: Run, options: list[str], message: str) -> None:
    done = run("history", *options)
    assert done.code == Exit.USAGE
    assert message in done.err


def test_energy_is_listed_with_its_sources_and_co2(fake: FakeMaster, run: Run) -> None:
    lines = [_LINE.model_copy(update={"energy": _USE}), _LINE.model_copy(update={"subject": "bob"})]
    report = HISTORY.model_copy(update={"lines": lines, "co2_grams_per_kwh": 400.0, "energy": _USE})
    fake.on("GET /history", ok(report))
    shown = run("energy").out
    for words in ("1.25 kWh", "50 Wh", "processor package only, GPU", "total: 1.25 kWh useful", "520 g of CO2"):
        assert words in shown
    assert "without a figure: 1 user" in shown
    assert fake.asked("GET /history")[0].query["sort"] == "energy"
    assert "1.3 kWh" in run("history").out
    fake.on("GET /history", ok(HISTORY))
    assert "no worker measured or declared energy" in run("energy").out
    assert "energy" not in run("history").out


def test_job_shows_its_energy_if_it_is_known(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /jobs/7", ok(job(7, energy=_USE)))
    assert "1.25 kWh useful, 50 Wh wasted (processor package only, GPU)" in " ".join(run("job", "7").out.split())
    fake.on("GET /jobs/7", ok(job(7)))
    assert "energy" not in run("job", "7").out


def test_ctrl_c_leaves_the_job_running_with_a_hint(fake: FakeMaster, run: Run) -> None:
    async def interrupt(_: web.Request) -> web.Response:
        os.kill(os.getpid(), signal.SIGINT)
        return web.json_response(job(7, JobState.RUNNING).model_dump(mode="json"))

    fake.on("GET /jobs/7", ok(job(7, JobState.RUNNING)), interrupt)
    fake.on("GET /workers", page(worker()))
    ran = run("job", "7", "--wait")
    assert ran.code == Exit.INTERRUPTED
    assert "job 7 continues; follow it again with: loopline job 7 --wait" in ran.err
    assert [seen.what for seen in fake.seen if seen.what.startswith("POST")] == []


def test_results_say_where_they_are_truncated(fake: FakeMaster, run: Run) -> None:
    lines = (result(1, "a\n"), result(2, "b", cut=True))
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/results", ok(b"\n".join(line.model_dump_json().encode() for line in lines) + b"\n"))
    ran = run("results", "7")
    assert ran.out == "a\nb\n"
    assert ran.err == "task 7.2 wrote more: `loopline logs 7.2` shows what was kept\n"
    assert len(run("results", "7", "--json").out.splitlines()) == 2


def test_results_name_the_task_of_each_line_on_request(fake: FakeMaster, run: Run) -> None:
    lines = (result(2, "x=1"), result(1, "x=2\nmore\n"), result(3, ""))
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/results", ok(b"\n".join(line.model_dump_json().encode() for line in lines) + b"\n"))
    assert run("results", "7").out == "x=1\nx=2\nmore\n"
    assert run("results", "7", "--tag").out == "7.2\tx=1\n7.1\tx=2\n7.1\tmore\n"


def test_results_are_a_table_of_parameters_metrics_and_output(fake: FakeMaster, run: Run) -> None:
    one = result(2, "x, 1\n").model_copy(update={"parameters": {"lr": 0.1}, "metrics": {"loss": 2.5}})
    two = result(1, "").model_copy(update={"parameters": {"lr": 0.2}, "metrics": None})
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/results", ok(b"\n".join(line.model_dump_json().encode() for line in (one, two)) + b"\n"))
    rows = 'task,state,lr,loss,output\n7.1,succeeded,0.2,,\n7.2,succeeded,0.1,2.5,"x, 1"\n'
    assert run("results", "7", "--csv").out == rows


def test_closed_pipe_ends_a_command_quietly(fake: FakeMaster) -> None:
    fake.on("GET /jobs/7/tasks/1/stdout", ok(b"much\n" * 100_000))
    command = [sys.executable, "-m", "loopline", "logs", "7.1", "--master", fake.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_root()) as logs:
        assert logs.stdout
        assert logs.stderr
        assert logs.stdout.readline() == b"much\n"
        logs.stdout.close()
        assert logs.stderr.read() == b""
    assert logs.returncode == 0


def test_lists_are_limited_and_filtered(fake: FakeMaster, run: Run) -> None:
    answers(fake)
    run("tasks", "7", "--state", "failed", "--limit", "0")
    assert [job["id"] for job in run("jobs", "--limit", "1", "--json").document] == [7]
    assert [seen.query for seen in fake.seen] == [
        {"limit": "1000", "state": "failed", "parameters": "true"},
        {"limit": "1"},
    ]


def test_passing_found_by_the_audit_sets_the_exit_code(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /passing", ok(AUDIT.model_copy(update={"passings": 1})))
    assert run("passing").code == Exit.FAILED


def test_unfounded_exemption_is_shown_with_its_flaw(fake: FakeMaster, run: Run) -> None:
    flaw = Flaw(job=7, reason="overdrawn", flaw="attempt 7.1.1 counts for more time than it ran")
    fake.on("GET /passing", ok(AUDIT.model_copy(update={"passings": 1, "unfounded": [flaw]})))
    ran = run("passing")
    assert ran.code == Exit.FAILED
    assert f"job 7 held no other job (overdrawn), without evidence: {flaw.flaw}" in ran.out


def test_audit_is_shown_in_one_line(fake: FakeMaster, run: Run) -> None:
    fake.on("GET /passing", ok(AUDIT))
    assert run("passing").out == "3 completions checked, 0 order violations, 1 exempt (paused)\n"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - PASSED_ON - {"replay", "token", "tls", "service"}))
def test_every_command_has_help(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    assert name == "demo" or "--master" in ran.out


def test_help_names_the_exit_codes(run: Run) -> None:
    assert re.sub(r"\s+", " ", EXIT_CODES) in re.sub(r"\s+", " ", run("--help").out)


def test_command_is_imported_without_loading_authorities() -> None:
    program = """
import os
from loopline.cli.__main__ import main
assert main(["jobs", "--master", "http://127.0.0.1:1"]) == 5
from aiohttp import connector
assert not connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"], "read"
assert os.environ.get("SSL_CERT_FILE") is None
"""
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_root(), env=environment)
    assert done.returncode == 0, done.stderr


def _root() -> Path:
    return Path(__file__).parents[2]
