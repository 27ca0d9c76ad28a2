"""Pages of the manual that are made from the code: the commands, the REST operations, the error messages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopline.cli import app
from loopline_master.http.openapi import document
from loopline_master.http.routes import all_operations

ROOT = Path(__file__).parents[1]
SOURCES = ("shared", "client", "worker", "master", "simulator")
DAEMONS = {
    "master": "Its options are the [settings](settings.md#master) of a master.",
    "worker": "Its options are the [settings](settings.md#worker) of a worker.",
    "doctor": "Its options are those of the [worker](settings.md#worker) that it asks about.",
    "owner": "Its use is on the page for owners: [If this is your computer](owner.md).",
    "simulate": "The experiments and their options: [The simulator](simulator.md).",
}
"""Commands that pass their options on to another program."""
COMMON = """\
Every command takes `--json` (answer with JSON on stdout, and nothing else), `--master` (the master's address, over
`LOOPLINE_MASTER` and `[client] master` in `loopline.toml`) and `--token` (over `LOOPLINE_TOKEN`,
`LOOPLINE_TOKEN_FILE` and `loopline.toml`).

Exit codes: 0 done; 1 the job failed, or an error; 2 wrong usage; 3 not found; 4 not authorised; 5 no master answers;
130 interrupted.
"""
REST = """# REST operations

Every master describes its own API: OpenAPI 3.1 at `/openapi.json`, and a page to read and try it at `/docs`. Errors
are problem+json with a `code` that does not change, a sentence, and the next step.
"""
MESSAGES = """# Error messages

Every error of Loopline has a code, a sentence and, as a rule, the next step; … stands for variable parts. Search this
page for the words that you saw, or for the code (`code` in `--json` and in the REST API).
[Troubleshooting](troubleshooting.md) explains common symptoms.
"""

MAKERS = ("LooplineError", "CallError", "DownloadError", "StagingError", "usage")
"""Names of the functions and classes that make errors."""
MAKES_ERRORS = re.compile(rf"\b(?:{'|'.join(MAKERS)})\(")
"""Found in the text of a file that makes errors; only such files are parsed, since parsing is slow."""


def commands() -> str:
    """Return the page of the commands, from their signatures and docstrings."""
    lines = ["# Commands", "", COMMON]
    group = None
    for name, (of_group, _, summary) in app.COMMANDS.items():
        if of_group.name != group:
            group = of_group.name
            lines += [f"## {group}", ""]
        lines += [f"### loopline {name} {{#{name}}}", ""]
        lines += [summary, "", DAEMONS[name], ""] if name in DAEMONS else _command(name)
    return "\n".join(lines)


def _command(name: str) -> list[str]:
    text = app.build(name)[name].generate_docs(heading_level=3)
    _, _, text = text.partition("\n")  # its heading
    text = re.sub(r"## Table of Contents\n.*?(?=\*\*)", "", text, flags=re.DOTALL)
    text = re.sub(r"\*\*Every command\*\*:\n\n(\*.*\n)+", "", text)
    text = re.sub(r"\[(`[^`]+`)\]\(#[^)]*\)", r"\1", text)
    text = text.replace(" *[default: False]*", "").replace("--json, --no-json", "--json")
    return [re.sub(r"^(```console\n)(loopline )?", r"\1loopline ", text, flags=re.MULTILINE).strip(), ""]


def rest() -> str:
    """Return the page of the REST operations, from the OpenAPI document."""
    api = document(all_operations())
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    lines = [REST]
    for tag, operations in by_tag.items():
        lines += [f"## {tag}", ""]
        for method, path, operation in operations:
            lines += [f"### `{method} {path}`", "", *_operation(operation)]
    return "\n".join(lines)


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    yield f"{operation.get('summary', '')}. {operation.get('description', '')}".strip()
    yield ""
    if parameters := operation.get("parameters"):
        yield from ("| parameter | in | type | meaning |", "| --- | --- | --- | --- |")
        for parameter in parameters:
            name = f"`{parameter['name']}`" + (" (required)" if parameter.get("required") else "")
            meaning = parameter.get("description", "").replace("|", "\\|")
            yield f"| {name} | {parameter['in']} | {_kind(parameter['schema'])} | {meaning} |"
        yield ""
    if body := operation.get("requestBody"):
        yield f"Body: {_contents(body['content'])}."
        yield ""
    answers = [f"{status} {_contents(answer.get('content', {}))}".strip() for status, answer in _good(operation)]
    yield f"Answer: {'; '.join(answers)}."
    yield ""


def _good(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((status, answer) for status, answer in operation["responses"].items() if status < "400")


def _contents(content: dict[str, Any]) -> str:
    return ", ".join(f"`{_kind(entry.get('schema', {}))}` as {kind}" for kind, entry in content.items())


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_kind(part) for part in schema[choice])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def messages() -> str:
    """Return the page of error messages, from where the code raises them."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text("utf-8")
            for code, message, hint in _errors(ast.parse(text)) if MAKES_ERRORS.search(text) else ():
                found[code].setdefault(message, hint)
    lines = [MESSAGES]
    for code in sorted(found):
        lines += [f"## {code}", ""]
        for message, hint in sorted(found[code].items()):
            lines += [f"**{_plain(message)}**" + (f"  \nNext step: {_plain(hint)}." if hint else ""), ""]
    return "\n".join(lines)


def _errors(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield code, message and hint of each LooplineError that a module makes, where the code is written there."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(function))
        named = {
            node.targets[0].id: node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield from _error(node, node.func.id, named)


def _error(call: ast.Call, maker: str, named: dict[str, ast.expr]) -> Iterator[tuple[str, str, str]]:
    if maker not in MAKERS:
        return
    words = [_text(argument, named) for argument in call.args]
    given = {keyword.arg: _text(keyword.value, named) for keyword in call.keywords}
    if maker == "usage":
        words.insert(0, "usage")
    words += [""] * (3 - len(words))
    code, message, hint = words[0], given.get("message", words[1]), given.get("hint", words[2])
    if re.fullmatch(r"[a-z_]+", code or "") and len(re.findall(r"\w{2,}", message or "")) > 1:
        yield str(code), str(message), hint or ""


def _text(node: ast.expr, named: dict[str, ast.expr]) -> str | None:
    """Return the text of an expression, with … for parts that are only known at run time."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value, named) or "…" for value in values)
        case ast.FormattedValue():
            return "…"
        case ast.Name(id=name) if name in named:
            return _text(named[name], {})
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return (_text(left, named) or "…") + (_text(right, named) or "…")
        case _:
            return None


def _plain(text: str) -> str:
    """Escape Markdown's special characters in a text."""
    return re.sub(r"([*_<>\[\]|])", r"\\\1", re.sub(r"\s+", " ", text)).rstrip(".").strip()
