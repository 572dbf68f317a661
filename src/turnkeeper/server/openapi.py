"""The OpenAPI 3.1 description, made from the table of operations and the types it names.

`docs/reference/openapi.json` is this description, checked in; a test compares the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from turnkeeper import __version__
from turnkeeper.errors import (
    BadInput,
    BodyTooLarge,
    Forbidden,
    NotFound,
    TurnkeeperError,
    Unauthorized,
    Unavailable,
)
from turnkeeper.server.operation import Operation

REF = "#/components/schemas/{name}"

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong (RFC 9457). `code` is stable, `detail` is for people.",
    "required": ["type", "title", "status", "detail", "code", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "retryable": {"type": "boolean"},
        "state": {"type": "string", "description": "The state that stands in the way (409)."},
        "retry_after_seconds": {"type": "number"},
    },
}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """The description as builtin values."""
    table = tuple(operations)
    kinds = list(
        {kind: None for op in table for kind in (op.body, op.answer) if _is_named(kind)},
    )
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    of_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for op in table:
        path = re.sub(r":\w+\}", "}", op.path)
        paths.setdefault(path, {})[op.method.lower()] = _operation(op, of_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnkeeper",
            "version": __version__,
            "description": "A durable conversation runtime for LLM agents.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted({**components, "Problem": PROBLEM_SCHEMA}.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "turnkeeper_PORT"},
            },
        },
    }


def description(operations: Iterable[Operation]) -> bytes:
    """The description as the bytes that are checked in."""
    return json.dumps(describe(operations), indent=1, ensure_ascii=False).encode() + b"\n"


def _is_named(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(op: Operation, of_kind: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": op.name, "summary": op.summary, "tags": [op.tag]}
    params = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)", op.path)
    ]
    params += [
        {
            "name": param.name,
            "in": param.place,
            "required": param.required,
            "description": param.description,
            "schema": {"type": param.type},
        }
        for param in op.params
    ]
    if params:
        described["parameters"] = params
    if op.body is not None:
        described["requestBody"] = {
            "required": not op.body_optional,
            "content": {op.body_media_type: {"schema": _schema(op.body, of_kind)}},
        }
    answer: dict[str, Any] = {"description": op.summary}
    if op.status != 204:
        answer["content"] = {op.media_type: {"schema": _schema(op.answer, of_kind)}}
    described["responses"] = {str(op.status): answer, **_errors(op)}
    if op.right is None:
        described["security"] = []
    else:
        described["x-right"] = str(op.right)
    return described


def _schema(kind: Any, of_kind: dict[Any, Any]) -> dict[str, Any]:
    if kind in of_kind:
        found: dict[str, Any] = of_kind[kind]
        return found
    return {"type": "object"} if kind is dict else {"type": "string"}


def _errors(op: Operation) -> dict[str, Any]:
    kinds: list[type[TurnkeeperError]] = [*op.errors]
    if op.right is not None:
        kinds += [Unauthorized, Forbidden, Unavailable]
    if op.body is not None:
        kinds += [BadInput, BodyTooLarge]
    if "{" in op.path:
        kinds.append(NotFound)
    by_status: dict[int, list[str]] = {}
    for kind in kinds:
        codes = by_status.setdefault(kind.status, [])
        if kind.code not in codes:
            codes.append(kind.code)
    return {
        str(status): {
            "description": " | ".join(sorted(codes)),
            "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
        }
        for status, codes in sorted(by_status.items())
    }
