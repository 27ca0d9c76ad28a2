"""The OpenAPI document is valid and complete, its examples validate, and the docs page needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from loopline_master.http.field_notes import NAMED
from loopline_master.http.openapi import document
from loopline_master.http.routes import all_operations
from loopline_shared.spec import JobSpec
from tests.api.bench import Bench


@cache
def described() -> dict[str, Any]:
    """Build the document once, when the first test needs it: it takes a second."""
    return document(all_operations())


def operations() -> Iterator[dict[str, Any]]:
    for path in described()["paths"].values():
        yield from path.values()


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Return all schemas, including nested ones."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from schemas(part)


def test_document_is_valid() -> None:
    OpenAPIV31SpecValidator(described()).validate()


def test_page_is_built_from_this_document() -> None:
    checked_in = json.loads((Path(__file__).parents[2] / "web" / "openapi.json").read_text("utf-8"))
    assert checked_in == json.loads(json.dumps(described())), "run `make web` and commit its changes"


def test_names_are_unique_and_every_part_is_described() -> None:
    all_of_them = list(operations())
    assert len({operation["operationId"] for operation in all_of_them}) == len(all_of_them)
    for operation in all_of_them:
        assert operation["summary"], operation["operationId"]
        assert all(parameter.get("description") for parameter in operation.get("parameters", ())), operation


def test_every_property_is_described_and_no_description_is_unused() -> None:
    schemas_by_name = described()["components"]["schemas"]
    lacking = [
        f"{name}.{field}: say it in a comment behind the field, or in http/field_notes.py"
        for name, schema in schemas_by_name.items()
        for field, property_ in schema.get("properties", {}).items()
        if not property_["description"]
    ]
    assert not lacking
    fields = {field for schema in schemas_by_name.values() for field in schema.get("properties", {})}
    assert set(NAMED) <= fields


def test_refusals_are_documented_as_problems() -> None:
    for operation in operations():
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"]
        signs_in = operation["operationId"] == "sign_in"
        assert ("401" in operation["responses"]) == (bool(operation["security"]) or signs_in)


def test_every_example_validates() -> None:
    count = 0
    for schema in schemas(described()):
        examples = [schema["example"]] if "example" in schema else schema.get("examples", [])
        for example in examples:
            whole = {**schema, "components": described()["components"]}
            Draft202012Validator(whole).validate(example)
            count += 1
    assert count >= 2
    JobSpec.model_validate(described()["components"]["schemas"]["JobSpec"]["example"])


async def test_document_is_served_without_a_token(master: Bench) -> None:
    assert await master.get("//openapi.json", None) == described()


async def test_docs_page_loads_no_external_resources(master: Bench) -> None:
    page = await master.ask("GET", "//docs", None)
    text = page.content.decode()
    assert not re.search(r"(https?:)?//[a-z]", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|style=", text)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|\*|http", policy)
    for part in re.findall(r'(?:src|href)="([^"]+)"', text):
        answer = await master.ask("GET", f"/{part}", None)
        assert answer.status == 200, part
        assert answer.content
    script = (await master.ask("GET", "//docs/init.js", None)).content.decode()
    assert '"/openapi.json"' in script
    assert "http" not in script


async def test_only_files_of_the_docs_page_are_served(master: Bench) -> None:
    for name in ("index.html", "..%2f..%2f..%2fpyproject.toml", "swagger-ui-bundle.js.map"):
        assert (await master.ask("GET", f"//docs/{name}", None)).status in (404, 422)
