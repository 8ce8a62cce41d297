"""The page at `/docs`: every route of a description in OpenAPI's form, without any script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidegraph.report.markup import Html, details, element, table


def api_page(description: Mapping[str, Any]) -> str:
    """Return a page that lists what can be asked, with bodies and answers."""
    info = description["info"]
    routes = [
        _route(method.upper(), path, operation, description)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{info['title']}: the API"),
        Html('<link rel="icon" href="/icon.svg">'),
        Html('<link rel="stylesheet" href="/page.css">'),
    )
    intro = element(
        "p",
        "Each answer names the moment it stands for: ",
        element("code", "as_of_seq"),
        " and ",
        element("code", "as_of_time"),
        ". Each failure is ",
        element("code", '{"error": {"code", "message", "line", "field"}}'),
        ". For programs there is ",
        element("a", "/openapi.json", href="/openapi.json"),
        "; ",
        element("a", "the page of the server", href="/"),
        " shows what happens now.",
    )
    main = element(
        "main",
        element("h1", f"{info['title']} {info['version']}"),
        element("p", info.get("summary", ""), class_="soft"),
        intro,
        *routes,
        class_="api",
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{element("body", main)}\n</html>\n'


def _route(
    method: str, path: str, operation: Mapping[str, Any], description: Mapping[str, Any]
) -> Html:
    parameters = [
        [
            element("code", each["name"]),
            each["in"],
            "needed" if each.get("required") else "optional",
            each.get("description", ""),
        ]
        for each in operation.get("parameters", [])
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = [
        [code, answer.get("description", "")] for code, answer in operation["responses"].items()
    ]
    return element(
        "section",
        element("h2", element("code", f"{method} {path}")),
        [
            element("p", *_with_code(text))
            for text in operation.get("description", "").split("\n\n")
        ],
        table(["parameter", "in", "", ""], parameters, numbers=4) if parameters else None,
        [_body(kind, content["schema"]) for kind, content in bodies.items()],
        _fields(operation["responses"].get("200", {}), description),
        details("Status codes", table(["", ""], answers, numbers=2)),
    )


def _with_code(text: str) -> list[Any]:
    """Return a text whose parts between backticks are code."""
    parts = text.split("`")
    return [element("code", part) if k % 2 else part for k, part in enumerate(parts)]


def _body(kind: str, schema: Mapping[str, Any]) -> Html:
    fields = list(_properties(schema))
    content = table(["field", "type", ""], fields, numbers=3) if fields else None
    return details(f"Body: {kind}", element("p", schema.get("description")), content)


def _fields(answer: Mapping[str, Any], description: Mapping[str, Any]) -> Html | None:
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return None
    found = description["components"]["schemas"][name]
    content = table(["field", "type", ""], list(_properties(found)), numbers=3)
    return details("Answer", element("p", found.get("description")), content)


def _properties(schema: Mapping[str, Any]) -> Iterator[list[Any]]:
    options = schema.get("anyOf", [schema])
    for name, each in options[0].get("properties", {}).items():
        types = [one.get("type", "any") for one in each.get("anyOf", [each])]
        default = each.get("default")
        note = each.get("description", "")
        if default is not None:
            note = f"{note} (default: {json.dumps(default)})".strip()
        yield [element("code", name), " or ".join(types), note]
