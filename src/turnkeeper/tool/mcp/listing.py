"""What a server says of its tools, judged: names, schemas, effects, sizes; and its results as text.

A tool that no model could be told of (no object schema, a giant one, an unusable name) is left out. Its
arguments are checked here before they are sent, without patterns, remote references or endless ones: a
schema is the server's word, and may be made to hurt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from turnkeeper.conversation.turns import Effect
from turnkeeper.tool.contract import Arguments, ArgumentsInvalid
from turnkeeper.tool.mcp.config import McpServer

TOOLS_MAX: Final = 256
"""Most tools of one server."""
DESCRIPTION_CHARS_MAX: Final = 4_000
SCHEMA_BYTES_MAX: Final = 60_000
SCHEMA_PARTS_MAX: Final = 2_000
"""Most objects and lists in one schema: each costs the check of the schema about 0.4 ms."""
LIST_PARTS_MAX: Final = 20_000
"""Most of them in all the schemas of one list. The tools after that are left out."""
REFERENCES_MAX: Final = 2_000
"""Most references that are followed in one check of arguments."""
NAME_CHARS_MAX: Final = 64


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as a server names it. Kept between runs: it holds nothing of a connection."""

    name: str
    """The server's own name."""
    shown: str
    """What the model calls it."""
    description: str
    schema: dict[str, Any]
    effect: Effect


def shown_name(server: str, tool: str) -> str:
    """`NAME__tool`, in the characters and the length that every provider takes.

    The server always stands before it: a tool can so never pass for another server's, or for one of ours.
    """
    plain = f"{server}__{re.sub('[^A-Za-z0-9_-]', '_', tool)}"
    if plain == f"{server}__{tool}" and len(plain) <= NAME_CHARS_MAX:
        return plain
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: NAME_CHARS_MAX - 9]}_{mark}"


def judge(server: McpServer, said: Iterable[Any]) -> tuple[Listed, ...]:
    """The usable ones of the tools that a server named (mcp's Tool)."""
    found: dict[str, Listed] = {}
    left = LIST_PARTS_MAX
    for tool in said:
        if server.tools and tool.name not in server.tools:
            continue
        schema = tool.input_schema
        if not tool.name or not isinstance(schema, dict):
            continue
        shown = shown_name(server.name, tool.name)
        if shown in found:
            continue
        parts = _parts(schema, min(SCHEMA_PARTS_MAX, left))
        if parts is None:
            continue
        left -= parts
        if not _usable(schema):
            continue
        found[shown] = Listed(
            name=tool.name,
            shown=shown,
            description=(tool.description or tool.title or tool.name)[:DESCRIPTION_CHARS_MAX],
            schema=schema,
            effect=_effect(server, tool),
        )
        if len(found) >= TOOLS_MAX:
            break
    return tuple(found.values())


def _parts(schema: Any, most: int) -> int | None:
    """How many objects and lists a schema consists of; None if more than `most`."""
    count, waiting = 0, [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict | list):
            continue
        count += 1
        if count > most:
            return None
        waiting += part.values() if isinstance(part, dict) else part
    return count


def _usable(schema: dict[str, Any]) -> bool:
    if schema.get("type") != "object":
        return False
    try:
        if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
            return False
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(_plain(schema))
        except SchemaError:
            return False
    except (RecursionError, TypeError, ValueError):
        return False
    return True


def _effect(server: McpServer, tool: Any) -> Effect:
    """The effect by config, else by the server's annotations; without any the tool may act (DESIGN 5)."""
    named = server.effects.get(tool.name)
    if named is not None:
        return named
    said = tool.annotations
    if said is None:
        return Effect.ACTS
    if said.destructive_hint and not (said.read_only_hint and server.believe):
        return Effect.DESTRUCTIVE
    if said.read_only_hint and server.believe:
        return Effect.READ_ONLY
    if said.idempotent_hint and server.believe:
        return Effect.IDEMPOTENT
    return Effect.ACTS


def _plain(value: Any) -> Any:
    """A schema without what costs more than its size: patterns go, and what cannot be judged without them."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    left_out = {"pattern"} if isinstance(value.get("pattern"), str) else set()
    if isinstance(value.get("patternProperties"), dict):
        left_out |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
    return {key: _plain(one) for key, one in value.items() if key not in left_out}


class _TooManyReferences(Exception):
    """A schema that refers to itself again and again."""


def checker(tool: Listed) -> Callable[[Arguments], None]:
    """The check of a tool's arguments against its schema. It raises ArgumentsInvalid."""
    validators: list[Any] = []
    followed = [0]

    def make() -> Any:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
        from referencing import Registry

        follow = Draft202012Validator.VALIDATORS["$ref"]

        def limited(validator: Any, ref: Any, instance: Any, schema: Any) -> Any:
            followed[0] += 1
            if followed[0] > REFERENCES_MAX:
                raise _TooManyReferences
            return follow(validator, ref, instance, schema)

        kind: Any = extend(  # type: ignore[no-untyped-call]
            Draft202012Validator, {"$ref": limited, "$dynamicRef": limited}
        )
        return kind(_plain(tool.schema), registry=Registry())

    def check(given: Arguments) -> None:
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        if not validators:
            validators.append(make())
        followed[0] = 0
        try:
            wrong = best_match(validators[0].iter_errors(given))
        except (Unresolvable, _TooManyReferences, RecursionError):
            return  # the schema cannot be judged: the server judges for itself
        if wrong is not None:
            where = wrong.json_path.removeprefix("$").lstrip(".")
            what = wrong.message[:500]
            raise ArgumentsInvalid(tool=tool.shown, why=f"{where}: {what}" if where else what)

    return check


def read_result(result: Any) -> str | list[Any]:
    """What a result (mcp's CallToolResult) gives: its texts, and its pictures as `split_files` knows them.

    What else there is is named.
    """
    pieces: list[Any] = []
    for block in result.content:
        kind = getattr(block, "type", "")
        if kind == "text":
            pieces.append(block.text)
        elif kind == "image":
            pieces.append({"type": "image", "data": block.data, "mimeType": block.mime_type})
        elif kind == "audio":
            pieces.append(f"[audio {block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]")
        elif kind == "resource_link":
            pieces.append(f"[link {block.name}: {block.uri}]")
        elif kind == "resource":
            text = getattr(block.resource, "text", None)
            pieces.append(text if text is not None else f"[resource {block.resource.uri}, not shown]")
    if any(type(piece) is dict for piece in pieces):
        return pieces
    text = "\n".join(pieces)
    if not text.strip() and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return text
