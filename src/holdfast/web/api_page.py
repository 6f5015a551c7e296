"""The OpenAPI description, as JSON and as a page of our own."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from holdfast.web.renderer import page
from holdfast.web.security import Anyone

router = APIRouter(include_in_schema=False)


def operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    """Every operation as its page shows it, with fields by name, kind and meaning."""
    return [
        {
            "method": method.upper(),
            "path": path,
            "summary": operation["description"],
            "parameters": [
                (one["name"], kind_of(one["schema"]), one.get("description", ""))
                for one in operation.get("parameters", [])
            ],
            "body": fields_of(schema_in(operation.get("requestBody", {})), description),
            "answer": fields_of(
                schema_in(next(reply for code, reply in operation["responses"].items() if code.startswith("2"))),
                description,
            ),
            "codes": sorted(operation["responses"]),
        }
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def schema_in(message: dict[str, Any]) -> dict[str, Any]:
    """What a request or a reply holds; nothing where it has no body."""
    schema: dict[str, Any] = message.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def fields_of(schema: dict[str, Any], description: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The fields of an object; of a list those of what it holds, and of a choice those of its first object."""
    for choice in (schema, schema.get("items", {}), *schema.get("anyOf", [])):
        name = choice.get("$ref", "").rpartition("/")[2]
        if name:
            model = description["components"]["schemas"][name]
            needed = model.get("required", [])
            return [
                (key, kind_of(one) + ("" if key in needed else ", optional"), one.get("description", ""))
                for key, one in model.get("properties", {}).items()
            ]
    return []


def kind_of(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(kind_of(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


@router.get("/api/openapi.json")
def openapi(request: Request, visitor: Anyone) -> Response:
    return JSONResponse(request.app.openapi())


@router.get("/api")
def api_page(request: Request, visitor: Anyone) -> Response:
    description = request.app.openapi()
    return page(
        request, "api.html", visitor, operations=operations(description), words=description["info"]["description"]
    )
