"""The agents file of a case: its `script_agent` steps as a scripted model, word by word.

Every text that a case posts gets a rule of its own, which first appends the text to a file: the file counts
how often the agent began on that text, and knows nothing of the journal. Then it does what the step says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEFAULT_STEP: dict[str, Any] = {"match": "", "run_s": 1}
"""The fake agent of the cases' README: answers `ok <text>` after 1 s."""

FOR_EVER_S = 9_999
HEAD_CHARS = 60


def steps_of(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every step, those inside `parallel` and `loop` too."""

    def walk(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for step in steps:
            yield step
            yield from walk(step.get("steps", []))

    return walk(case["steps"])


def text_of(step: dict[str, Any]) -> str:
    """The text of a post, padded as the step says."""
    text = str(step.get("text", ""))
    return text + "." * max(0, step.get("pad", 0) - len(text.encode()))


def rounds(step: dict[str, Any], text: str, begun: Path, scale: float) -> list[dict[str, Any]]:
    """What the model says to `text`, round by round."""
    seconds = step["run_s"] * scale
    mark = {
        "name": "append_file",
        "arguments": {"path": str(begun), "text": json.dumps(text, ensure_ascii=True) + "\n"},
    }
    played: list[dict[str, Any]] = [{"tool_calls": [mark]}]
    tools = step.get("tools")
    if step.get("dies_at_s"):
        partial = "a beginning that is cut off"
        rate = len(partial) / (step["dies_at_s"] * scale)
        return [*played, {"text": partial, "chars_per_s": rate, "cut": True}]
    if isinstance(tools, list):
        log = str(begun.with_name("executions"))
        played += [{"tool_calls": [{"name": each["name"], "arguments": {"log": log}}]} for each in tools]
    elif tools:
        # Each a little longer than the one before: a model that repeats itself is stopped.
        played += [call("slow", seconds=round(seconds / tools + n / 1000, 3)) for n in range(tools)]
    elif step.get("hang") and not step.get("ignores_abort"):
        return [*played, {"stall_s": FOR_EVER_S}]
    elif step.get("ignores_abort"):
        played.append(call("stubborn", seconds=30))
    elif step.get("abort_latency_s"):
        played.append(call("late_to_stop", seconds=seconds, latency=step["abort_latency_s"] * scale))
    elif step.get("progress"):
        each = seconds / len(step["progress"])
        played += [
            {"text": p, **call("slow", seconds=round(each + n / 1000, 3))}
            for n, p in enumerate(step["progress"])
        ]
    elif step.get("stream_tokens"):
        words = [f"token{number}" for number in range(1, step["stream_tokens"] + 1)]
        streamed = " ".join([*words, step.get("reply", "")]).strip()
        return [*played, {"text": streamed, "chars_per_s": len(streamed) / seconds}]
    elif seconds:
        played.append(call("slow", seconds=seconds))
    return [*played, {"text": step.get("reply", f"ok {text}")}]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A round that asks for one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def write_agents(case: dict[str, Any], folder: Path, scale: float) -> Path:
    """Write the script and the agents file; return the latter."""
    fakes = [step for step in steps_of(case) if step["do"] == "script_agent"]
    texts = {text_of(step) for step in steps_of(case) if "text" in step or step["do"] == "post"}
    rules = []
    for text in sorted(texts):
        step = next((fake for fake in fakes if fake["match"] in text), DEFAULT_STEP)
        rule = {"match": exactly(text), "rounds": rounds(step, text, begun(folder), scale)}
        rules.append(rule)
    script = folder / "script.json"
    script.write_text(json.dumps({"rules": rules}))
    agents = folder / "agents.toml"
    agents.write_text(
        f"""[agents.demo]
runner = "model"
provider = "scripted"
script = {json.dumps(str(script))}
tools = ["append_file", "slow", "case_tools:stubborn", "case_tools:late_to_stop", "case_tools:ssh_restart"]
"""
    )
    return agents


def exactly(text: str) -> str:
    """A pattern for this text: its beginning and its length (a pattern of 50 kB would be slow to read)."""
    head = text[:HEAD_CHARS]
    return rf"(?s)\A{re.escape(head)}.{{{len(text) - len(head)}}}\Z"


def begun(folder: Path) -> Path:
    """The file that counts how often the agent began on a text."""
    return folder / "begun"


def times_begun(folder: Path) -> dict[str, int]:
    """Text -> how often the agent began on it."""
    counted: dict[str, int] = {}
    path = begun(folder)
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        text = json.loads(line)
        counted[text] = counted.get(text, 0) + 1
    return counted
