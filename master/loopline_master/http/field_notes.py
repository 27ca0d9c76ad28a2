"""Descriptions of fields for the OpenAPI document, from the comments behind the fields in the source.

Fields without a comment, whose names say enough in the source, are described in the table below.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import getmembers, getsource, isclass
from textwrap import dedent
from typing import Any

Json = dict[str, Any]
_MODULES = (
    "loopline_shared.rest.bodies",
    "loopline_shared.rest.access",
    "loopline_shared.rest.columns",
    "loopline_shared.model",
    "loopline_shared.protocol.power",
    "loopline_shared.spec",
    "loopline_shared.job.parameters",
    "loopline_shared.job.requirements",
    "loopline_shared.job.checkpoint_spec",
    "loopline_shared.job_files",
    "loopline_master.http.routes.session",
)


def describe_fields(schemas: Json) -> None:
    """Add a description to each property of the schemas that has none, in place."""
    classes = {name: one for module in _MODULES for name, one in getmembers(import_module(module), isclass)}
    for name, schema in schemas.items():
        notes = _notes_of(classes.get(name.partition("_")[0]))
        for field, described in schema.get("properties", {}).items():
            described.setdefault("description", notes.get(field) or NAMED.get(field, ""))


def _notes_of(model: type | None) -> dict[str, str]:
    notes: dict[str, str] = {}
    for one in reversed(model.__mro__ if model else ()):
        if one.__module__.startswith("loopline") and "[" not in one.__name__:  # a parametrised one has no source
            notes |= _comments(one)
    return notes


@cache
def _comments(model: type) -> dict[str, str]:
    """Return the comment behind each field of a class."""
    source = dedent(getsource(model))
    said = dict(_comments_by_line(source))
    fields = (node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign))  # type: ignore[attr-defined]
    return {
        field.target.id: _sentence(said[field.end_lineno])
        for field in fields
        if isinstance(field.target, ast.Name) and field.end_lineno in said
    }


def _comments_by_line(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type")):
            yield token.start[0], token.string.removeprefix("#").partition("# ")[0].strip()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].replace("None", "null")


NAMED: dict[str, str] = {
    "id": "The id",
    "name": "The name",
    "started_at": "When it began; null: it has not",
    "items": "What this page of the list has",
    "state": "The state",
    "next": "The cursor of the following page; null: this is the last",
    "reason": "The reason, for people",
    "worker": "The worker's name",
    "job": "The job's number",
    "tasks": "The tasks",
    "finished_at": "When it was over; null: it is not",
    "command": "The program and its arguments",
    "exit_code": "The exit code of the process; null: it has not exited, or was killed",
    "user": "The user who submitted it",
    "task_count": "How many tasks the job has",
    "created_at": "When it was made",
    "revoked_at": "When it was revoked; null: it was not",
    "number": "The number of the task within its job",
    "role": "The role, which decides what its holder may do",
    "cpu_s": "Seconds of processor time",
    "peak_memory_bytes": "The peak memory of its processes together",
    "task": "The number of the task within its job",
    "p90_at": "Before this in nine of ten cases",
    "p90_held": "Share of the cases in which the time with 90 % probability was kept; null: there is none",
    "sha256": "SHA-256 of the content, in hex",
    "size_bytes": "Size in bytes",
    "jobs": "The jobs",
    "since": "The begin",
    "until": "The end",
    "max_attempts": "The maximum number of attempts at a task",
    "parameters": "Values by the names of parameters",
    "count": "How many there are",
    "failures": "How many attempts at the task have failed",
    "wall_s": "Seconds that it ran",
    "attempt": "The attempt",
    "p50_s": "Within this in one of two cases, in seconds",
    "labels": "Labels that an operator gave to the worker",
    "at": "The time",
    "plans": "The planned starts",
    "workers": "The workers",
    "status": "The status",
    "attempts": "The attempts",
    "paused": "Nothing more of it is started until it is resumed",
    "stalled": "It holds no other job: no worker can run its remaining tasks, or it made no progress for too long",
    "overdrawn": "It has used many times its size, so it holds no other job",
    "size_source": "Where the size comes from",
    "shown": "Twice the work that a job without a size has shown: it waits for earlier jobs of at most this size",
    "order": "The order guarantee under which it was submitted",
    "submitted_at": "When it was submitted",
    "held_at": "Since when the order guarantee holds it; null: it does not",
    "released_at": "When the order guarantee let it go; null: it has not",
    "ledger": "CPU seconds that it used, by outcome",
    "eta": "When it is expected to end; null: that is not known",
    "uses": "How many computers may join with it",
    "used": "How many have joined with it",
    "expires_at": "When it becomes invalid",
    "latest": "The latest ones",
    "warnings": "What the user should know, a sentence each",
    "detail": "What happened, for people",
    "code": "The kind, for programs",
    "truncated": "There are more than these",
    "replica": "Another attempt of the task was alive when it was dispatched",
    "dispatched_at": "When it was assigned to its worker",
    "ended_at": "When it was over; null: it is not",
    "stdout_bytes": "Bytes that it wrote to stdout",
    "stderr_bytes": "Bytes that it wrote to stderr",
    "dispatched": "When each was assigned to its worker",
    "start": "When each began; null: it has not",
    "queued": "Tasks that wait to be assigned",
    "succeeded": "Tasks that have a result",
    "failed": "Tasks that have failed for good",
    "cancelled": "Tasks that were cancelled",
    "p50_at": "Before this in one of two cases",
    "based_on": "The basis of the estimate",
    "p90_s": "Within this in nine of ten cases, in seconds",
    "sentence": "The explanation, for people",
    "reasons": "The explanation, for programs",
    "cpus": "How many processors the computer has",
    "machine": "An id of the computer, which distinguishes clones of one disk",
    "memory_bytes": "How much memory the computer has",
    "speed_source": "Where the speed comes from",
    "message": "What is wrong",
    "receiver": "The worker that receives the file",
    "have_bytes": "Bytes of it that have arrived",
    "moments": "The accuracy by the moment at which an ETA was given",
    "python": "The version of Python that the call needs",
    "chunk": "How many calls one task makes",
    "calls": "How many calls there are",
    "missed": "Changes were missed: read everything",
    "subject": "The user, worker or job whose use it is; or the thing that is explained",
    "lines": "The use of each",
    "executable": "It may be executed as a program",
    "spec": "The job as it was submitted",
    "function": "The call of a Python function, where the job is one",
    "environment": "Environment variables of the tasks",
    "requires": "What a worker must have to run it",
    "max_replicas": "How many attempts of one task may run at once; null: the master decides",
    "max_fails": "How many tasks may fail before the rest is cancelled: a number or a share",
    "timeout_s": "Seconds after which an attempt is ended",
    "notify": "Where to send a notification when it has ended",
    "memory_available_bytes": "Memory that is not in use",
    "disk_free_bytes": "Free bytes where the worker keeps its data",
    "memory_pressure": "Share of the time in which processes waited for memory",
    "io_pressure": "Share of the time in which processes waited for the disk",
    "on_battery": "The computer runs on its battery",
    "yielded": "How quickly the worker made way for its owner",
    "is_running": "It is under way",
    "moment": "Percentage of the tasks that were over when the ETA was given",
    "is_switch": "It is a switch; otherwise a host",
    "flowing_up": "Bytes a second that flow towards the parent now",
    "flowing_down": "Bytes a second that flow from the parent now",
    "nodes": "Switches and hosts",
    "flows": "Files on their way",
    "measurement": "The current measurement, or the last one",
    "webhook": "An address to which the news is posted",
    "on": "After which ends it is sent",
    "cut": "Part of it was not kept",
    "data": "The bytes, in Base64",
    "passed": "The job that was passed",
    "promises": "How many planned starts were promised",
    "kept": "How many of them were kept",
    "type": "A URI of the kind of problem; about:blank if the status says enough",
    "title": "The status in words",
    "hint": "The next step",
    "errors": "Each mistake in the request",
    "first_run_at": "When its first run was",
    "system_s": "Seconds of processor time spent in the kernel",
    "deleted": "They were deleted; otherwise they would be",
    "files": "How many files",
    "bytes": "How many bytes they have",
    "upload_bytes": "How many bytes of interrupted uploads",
    "older_than_s": "Jobs that ended more than this many seconds ago were included; null: none",
    "range": "The first number, the last, and the step",
    "os": "The operating system",
    "slots": "How many slots",
    "every_s": "Seconds between two points",
    "token": "The token",
    "rows": "A row of values for each task",
    "stdout": "The beginning of its stdout",
    "value": "The return value of a Python function",
    "size": "Amount of computation, in reference CPU-seconds",
    "bars": "The attempts, a bar each",
    "held": "Times in which the order guarantee held a last task",
    "traceEvents": "The events",
    "displayTimeUnit": "The unit that a viewer shows",
    "cat": "The kind of event",
    "pid": "The worker, as a process",
    "tid": "The slot, as a thread",
    "args": "More about the event",
    "digest": "Digest of the result",
    "version": "The version of the master",
    "connected": "Its link is open",
    "draining": "It gets no new tasks until draining is ended",
    "facts": "The worker's hardware and software, as reported by itself",
    "load": "Its latest report of load; null: there is none",
    "slots_used": "Slots with a running attempt",
    "running": "Attempts that run there",
    "joined_at": "When it was first seen",
    "reported_at": "When it reported last; null: it has not",
    "lease_until": "It counts as lost from then on, unless it reports",
    "p99_s": "Within this in 99 of 100 cases, in seconds",
}
"""Descriptions by the name of a field, wherever it occurs."""
