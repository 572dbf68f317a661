"""Producers that behave as they should, and an agent whose effects can be counted: the load for crashes.

A producer sends its messages one after another under a key each; whatever goes wrong before the 202, it
sends the same message again under the same key. The agent appends a line that nobody else appends, asks for a
harmless tool, and answers. What was sent, what was answered and what happened are compared in `faults`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from turnkeeper.testing.promises import Sent, broken_promises, effects_broken
from turnkeeper.testing.server_process import Api, ServerProcess
from turnkeeper.testing.until import until

RESEND_SECONDS = 60.0
"""How long a producer goes on sending one message again."""


def write_agents(folder: Path, texts: Sequence[str]) -> tuple[Path, Path]:
    """An agents file whose agent has an effect of its own for each text; returns it and the effects' file."""
    effects = folder / "effects"
    rules = [
        {
            "match": rf"\A{text}\Z",
            "rounds": [
                {
                    "tool_calls": [
                        call("echo", text=f"before {text}"),
                        call("append_file", path=str(effects), text=f"{text}\n"),
                        call("echo", text=f"after {text}"),
                    ]
                },
                {"text": "half way", "tool_calls": [call("echo", text=text), call("now")]},
                {"text": f"ok {text}"},
            ],
        }
        for text in texts
    ]
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": rules}))
    agents = folder / "agents.toml"
    agents.write_text(
        f'[agents.demo]\nrunner = "model"\nprovider = "scripted"\nscript = {json.dumps(str(script))}\n'
        'tools = ["append_file", "echo", "now"]\n'
    )
    return agents, effects


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


class Producer:
    """Sends to one conversation."""

    def __init__(self, api: Api, conversation_id: str, name: str) -> None:
        self.api = api
        self.conversation_id = conversation_id
        self.name = name
        self.sent: list[Sent] = []
        self.codes: Counter[int | str] = Counter()

    async def send(self, text: str, **body: Any) -> str:
        """Send until it is answered with 202; returns the turn."""
        key = f"{self.name}-{len(self.sent)}"
        self.sent.append(Sent(key=key, text=text))

        async def answered() -> str | None:
            try:
                answer = await self.api.submit(self.conversation_id, text, key, **body)
            except httpx2.TransportError as error:
                self.codes[type(error).__name__] += 1
                return None
            self.codes[answer.status_code] += 1
            if answer.status_code == 202:
                return str(answer.json()["turn_id"])
            # Only what says "try again" may be met on the way; anything else is a fault of the server.
            assert answer.json()["retryable"], answer.text
            return None

        turn_id = await until(answered, f"the 202 for {key}", seconds=RESEND_SECONDS)
        assert turn_id is not None
        self.sent[-1] = Sent(key=key, text=text, turn_id=turn_id)
        return turn_id


async def faults(
    api: Api, producer: Producer, *, tool: str = "append_file", counted: dict[str, int], argument: str | None
) -> list[str]:
    """Every broken promise of one conversation, once it is drained; nothing if all were kept."""
    events = await api.events(producer.conversation_id)
    found = [str(broken) for broken in broken_promises(events, sent=producer.sent)]
    found += [str(b) for b in effects_broken(events, counted, tool=tool, argument=argument)]
    found += answers_missing(events, producer.sent)
    return found


def answers_missing(events: list[dict[str, Any]], sent: Sequence[Sent]) -> list[str]:
    """Every turn that settled as answered was answered in its own words, or in those of a steer it took along."""
    texts = {each.turn_id: each.text for each in sent}
    heard: dict[str, list[str]] = {}
    answers: dict[str, list[str]] = {}
    answered = set()
    for event in events:
        turn = event.get("turn_id") or ""
        if event["kind"] == "SteerTaken":
            heard.setdefault(event["body"]["parent"], []).append(texts.get(turn, ""))
        elif event["kind"] == "TurnSettled" and event["body"].get("reason", "answered") == "answered":
            answered.add(turn)
        elif event["kind"] == "MessageAppended":
            message = event["body"]["message"]
            if message["role"] == "assistant" and message.get("standing", "complete") == "complete":
                words = "".join(p["text"] for p in message["parts"] if p["type"] == "text")
                answers.setdefault(turn, []).append(words)
    faults_found = []
    for each in sent:
        if each.turn_id in answered:
            wanted = [each.text, *heard.get(each.turn_id or "", [])]
            last = (answers.get(each.turn_id or "") or [""])[-1]
            if last not in {f"ok {text}" for text in wanted}:
                faults_found.append(f"{each.key} ({each.text}) was answered {last!r}")
    return faults_found


def counted_lines(path: Path) -> dict[str, int]:
    """Line -> how often it stands in the file."""
    return dict(Counter(path.read_text("utf-8").splitlines())) if path.exists() else {}


async def restart(server: ServerProcess) -> None:
    """Start it again after whatever ended it."""
    await server.ended()
    await server.start()
