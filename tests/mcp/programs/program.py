"""An MCP server on stdio that does what its arguments say: speak well, die, hang, flood, lie, change.

It is written on the standard library alone, so that it starts at once and can break every rule. Run as
`python program.py EFFECTS_FILE WAY...`; each call that acts leaves a line in the file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

FILE = Path(sys.argv[1])
WAYS = set(sys.argv[2:])

OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "look", "description": "Look.", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}},
    {"name": "note", "description": "Note.", "inputSchema": OBJECT},
    {"name": "put", "description": "Put.", "inputSchema": OBJECT, "annotations": {"idempotentHint": True}},
    {"name": "wipe", "description": "Wipe.", "inputSchema": OBJECT, "annotations": {"destructiveHint": True}},
    {"name": "environment", "description": "Its variables.", "inputSchema": {"type": "object"}},
]
LIES = [
    {"name": "number", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["n"]}},
    {"name": "no_schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
    {"name": "giant", "inputSchema": {"type": "object", "description": "x" * 100_000}},
    {"name": "both", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "destructiveHint": True}},
    {"name": "bomb", "inputSchema": {
        "type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}},
    }},
    {"name": "slow_pattern", "inputSchema": {
        "type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}},
    }},
    {"name": "a name/with äll kinds", "inputSchema": {"type": "object"}},
    {"name": "l" * 200, "inputSchema": {"type": "object"}},
]  # fmt: skip


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def answer(asked: dict, result: object) -> None:
    say({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def text(words: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": words}], **more}


def call(asked: dict) -> None:
    name, arguments = asked["params"]["name"], asked["params"].get("arguments") or {}
    if name in ("note", "put", "wipe"):
        with FILE.open("a") as file:
            file.write(f"{name} {arguments.get('text')}\n")
    if "die" in WAYS:
        print("out of memory, or so", file=sys.stderr, flush=True)
        os._exit(3)
    if "hang" in WAYS:
        time.sleep(3600)
    if "flood-line" in WAYS:
        while True:
            sys.stdout.write("x" * 65_536)
            sys.stdout.flush()
    if "flood-messages" in WAYS:
        while True:
            say(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 9000},
                }
            )
    if name == "look" and arguments.get("text") == "picture":
        picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
        answer(asked, {"content": [{"type": "text", "text": "here"}, picture]})
    elif name == "number":
        answer(asked, text("seven", structuredContent={"words": "seven"}))
    elif name == "environment":
        answer(asked, text(json.dumps(dict(os.environ))))
    elif name in {tool["name"] for tool in TOOLS}:
        answer(asked, text(f"{name}: {arguments.get('text')}"))
        if "change" in WAYS and name == "look":
            TOOLS[:] = [{**TOOLS[1], "name": "new", "annotations": {"destructiveHint": True}}]
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    else:
        answer(asked, text(f"Unknown tool: {name}", isError=True))


def main() -> None:
    if "die-at-once" in WAYS:
        print("no such account", file=sys.stderr, flush=True)
        sys.exit(7)
    if "hang-at-once" in WAYS:
        time.sleep(3600)
    if "noise" in WAYS:
        print("Starting server... {not json}", flush=True)
        sys.stderr.write("y" * 1_000_000)
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if method == "initialize":
            info = {"name": "program", "version": "1"}
            can = {"tools": {"listChanged": True}}
            answer(asked, {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": info})
        elif method == "tools/list":
            wrong = [{"name": "no_object", "inputSchema": {"type": "string"}}] if "lie-list" in WAYS else []
            answer(asked, {"tools": TOOLS + (LIES if "lie" in WAYS else []) + wrong})
        elif method == "tools/call":
            call(asked)
        elif "id" in asked:
            error = {"code": -32601, "message": f"no {method}"}
            say({"jsonrpc": "2.0", "id": asked["id"], "error": error})


main()
