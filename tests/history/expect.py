"""Judges a feed report by the `expect` of a case, field by field, as the case format defines them.

Written against the report's outer shape only (what `turnkeeper feed` prints), so that it cannot share a
mistake with the rules. A field that nobody judges is an error: `RUNTIME` names those that need a running
turn, and the issue that owns them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from turnkeeper.provider.dialects import validate

Report = dict[str, Any]
Case = dict[str, Any]

RUNTIME: dict[str, int] = {
    "executor_calls": 6,
    "executor_total": 6,
    "executor_must_run": 6,
    "executor_calls_from_text": 7,
    "must_not_rerun": 6,
    "identical_reissue": 6,
    "model_called": 7,
    "outcome_for_incoming": 7,
    "receipt": 7,
    "after": 6,
    "approval_outcome": 7,
    "pending_approvals": 7,
    "pending_approvals_after_restart": 7,
    "leak_detected": 7,
    "superseded_marked": 7,
    "auto_retry_triggered": 7,
    "streamed_to_client_must_not_contain": 7,
    "session_blocked": 6,
    "provider_calls": 6,
    "provider_calls_max": 6,
    "turn_state": 6,
    "turn_state_after": 6,
    "retryable": 6,
    "composer_restore": 6,
    "stall_detected_within_ms": 6,
    "queue_released": 6,
    "abort_works_while_stalled": 6,
    "keepalive_counts_as_progress": 6,
    "auto_resume_attempts_max": 6,
    "notices_in_feed_max": 6,
    "honours_retry_after": 6,
    "backoff_monotonic": 6,
    "client_text_final": 6,
    "client_text_occurrences": 6,
    "row_bytes_max": 6,
    "image_stored_as": 6,
    "load_memory_factor_max": 6,
    "order_key": 4,
}
"""Facts about a turn that runs, a store or a client: no feed can show them."""


def judge(case: Case, report: Report, again: Callable[[Case], Report]) -> list[str]:
    """What the report gets wrong, in sentences; nothing if it is right. `again` makes a report of a case."""
    wrong: list[str] = []
    expect = {
        "wire_valid": True,
        "pairing": "exact",
        "idempotent": True,
        "display": "unchanged",
        **case["expect"],
    }
    for name, wanted in expect.items():
        if name in RUNTIME:
            continue
        check = CHECKS.get(name)
        if check is None:
            wrong.append(f"nobody judges the field {name!r}")
            continue
        said = check(case, report, wanted, again)
        if said:
            wrong.append(f"{name}: {said}")
    return wrong


# --- pieces of a report


def parts(report: Report, kind: str | None = None) -> list[dict[str, Any]]:
    return [p for m in report["feed"] for p in m["parts"] if kind is None or p["type"] == kind]


def words(report: Report) -> str:
    """Everything in the feed as one text, JSON values as JSON."""
    pieces = []
    for part in parts(report):
        for name in ("text", "content", "arguments", "name", "ref"):
            value = part.get(name)
            if value is not None:
                pieces.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return "\n".join(pieces)


def collapsed_roles(report: Report) -> list[str]:
    found: list[str] = []
    for message in report["feed"]:
        if not found or found[-1] != message["role"]:
            found.append(message["role"])
    return found


def incoming_text(case: Case) -> str | None:
    incoming = case["incoming"]
    if not incoming or incoming.get("role") != "user":
        return None
    return "".join(p.get("text") or "" for p in incoming["parts"] if p["type"] == "text")


def wire_messages(case: Case, report: Report) -> list[dict[str, Any]]:
    request = report["request"] or {}
    found = request.get("messages") or request.get("input") or request.get("contents") or []
    return list(found)


def dialect(case: Case) -> str:
    variant = case.get("request", {}).get("dialect")
    provider = case["provider"]
    return str(variant or ("anthropic" if provider == "any" else provider))


def wire_calls(case: Case, report: Report) -> list[dict[str, Any]]:
    """Calls in the request: {id, name, arguments} with arguments as they stand on the wire."""
    found = []
    for message in wire_messages(case, report):
        if message.get("type") == "function_call":
            found.append(
                {"id": message["call_id"], "name": message["name"], "arguments": message["arguments"]}
            )
        for row in message.get("tool_calls") or ():
            function = row["function"]
            found.append({"id": row["id"], "name": function["name"], "arguments": function["arguments"]})
        content = message.get("content")
        found += [
            {"id": block["id"], "name": block["name"], "arguments": block["input"]}
            for block in (content if isinstance(content, list) else ())
            if block.get("type") == "tool_use"
        ]
        for part in message.get("parts") or ():
            if "functionCall" in part:
                row = part["functionCall"]
                found.append({"id": row.get("id", ""), "name": row["name"], "arguments": row.get("args", {})})
    return found


# --- the checks: each gives a sentence when it is not so


def wire_valid(case: Case, report: Report, wanted: Any, again: Any) -> str:
    if report["request"] is None:
        return ""
    needed = {"anthropic": {"model": "m", "max_tokens": 8192}}.get(dialect(case), {"model": "m"})
    violations = validate(dialect(case), {**needed, **report["request"]})
    return "; ".join(f"{v.rule} {v.path} {v.sentence}" for v in violations)


def pairing(case: Case, report: Report, wanted: Any, again: Any) -> str:
    seen: set[str] = set()
    expected: list[str] | None = None
    got: list[str] = []
    for message in [*report["feed"], {"role": "end", "parts": []}]:
        calls = [p["id"] for p in message["parts"] if p["type"] == "tool_call"]
        results = [p["tool_call_id"] for p in message["parts"] if p["type"] == "tool_result"]
        if message["role"] == "tool":
            got += results
            continue
        if results:
            return f"a result in a message of {message['role']}"
        if (expected or []) != got:
            return f"calls {expected} are followed by results {got}"
        if set(calls) & seen or len(set(calls)) != len(calls):
            return f"the ids {calls} are not unique"
        seen |= set(calls)
        expected, got = calls, []
    return ""


def idempotent(case: Case, report: Report, wanted: Any, again: Callable[[Case], Report]) -> str:
    # The result is told by original id, so a second run starts from the same ids.
    second = again({**case, "history": report["feed"], "incoming": None, "script": None})
    strip = [[m["role"], m["parts"]] for m in report["feed"]]
    other = [[m["role"], m["parts"]] for m in second["feed"]]
    if report["request"] is None and other[: len(strip)] == strip:
        return ""
    return "" if strip == other else f"cleaned twice: {other}"


def display(case: Case, report: Report, wanted: Any, again: Any) -> str:
    stored = case["history"]
    shown = report["display"]
    if shown[: len(stored)] != stored:
        return "the history is not shown as it was stored"
    extra = shown[len(stored) :]
    should = [case["incoming"]] if report["incoming"] == "appended" else []
    return "" if extra == should else f"also shown: {extra}"


def feed_roles(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = collapsed_roles(report)
    return "" if found == wanted else f"roles are {found}"


def feed_roles_any(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = collapsed_roles(report)
    return "" if found in wanted else f"roles are {found}"


def roles_alternate(case: Case, report: Report, wanted: Any, again: Any) -> str:
    sides = []
    for message in wire_messages(case, report):
        role = message.get("role") or message.get("type")
        sides.append("assistant" if role in ("assistant", "model", "function_call", "reasoning") else "user")
    if any(a == b for a, b in pairwise(sides)) and case["provider"] != "openai-responses":
        tools = [m.get("role") for m in wire_messages(case, report)]
        if "tool" not in tools:
            return f"sides are {sides}"
    return ""


def first_role(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = [m["role"] for m in report["feed"] if m["role"] != "system"]
    return "" if found and found[0] == wanted else f"the feed begins with {found[:1]}"


def last_role(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = report["feed"][-1]["role"] if report["feed"] else None
    return "" if found == wanted else f"the feed ends with {found}"


def must_appear(case: Case, report: Report, wanted: Any, again: Any) -> str:
    text = words(report)
    return ", ".join(f"{w!r} is missing" for w in wanted if w not in text)


def must_not_appear(case: Case, report: Report, wanted: Any, again: Any) -> str:
    text = words(report) + json.dumps(report["request"], ensure_ascii=False)
    return ", ".join(f"{w!r} is there" for w in wanted if w in text)


def appear_count(case: Case, report: Report, wanted: Any, again: Any) -> str:
    counts = Counter(p["text"] for p in parts(report, "text"))
    return ", ".join(f"{text!r} {counts[text]} times" for text, n in wanted.items() if counts[text] != n)


def feed_order(case: Case, report: Report, wanted: Any, again: Any) -> str:
    text = words(report)
    places = [text.find(w) for w in wanted]
    return "" if -1 not in places and places == sorted(places) else f"places are {places}"


def display_must_show(case: Case, report: Report, wanted: Any, again: Any) -> str:
    text = "\n".join(str(p.get("text")) for m in report["display"] for p in m.get("parts") or ())
    return ", ".join(f"{w!r} is not shown" for w in wanted if w not in text)


def incoming(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = report["incoming"]
    if found != wanted:
        return f"it was {found}"
    text = incoming_text(case)
    if wanted == "appended" and text and text not in words(report):
        return "its text is not in the feed"
    return ""


def results(case: Case, report: Report, wanted: Any, again: Any) -> str:
    by_id: dict[str, dict[str, Any]] = {p["original_id"]: p for p in parts(report, "tool_result")}
    said = []
    for call_id, facts in wanted.items():
        found = by_id.get(call_id)
        if found is None:
            said.append(f"{call_id} has no result")
            continue
        content = found["content"] if isinstance(found["content"], str) else json.dumps(found["content"])
        checks = {
            "is_error": lambda w, f=found: f["is_error"] is w,
            "synthetic": lambda w, f=found: f.get("synthetic", False) is w,
            "contains": lambda w, c=content: all(x in c for x in w),
            "not_contains": lambda w, c=content: not any(x in c for x in w),
            "non_empty": lambda w, c=content: bool(c.strip()) is w,
        }
        said += [
            f"{call_id}.{name} is not {value}" for name, value in facts.items() if not checks[name](value)
        ]
    return ", ".join(said)


def result_count(case: Case, report: Report, wanted: Any, again: Any) -> str:
    if case.get("script"):
        return ""  # the call itself is made by the script
    counts = Counter(p["original_id"] for p in parts(report, "tool_result"))
    return ", ".join(f"{i} has {counts[i]}" for i, n in wanted.items() if counts[i] != n)


def nth_result(case: Case, report: Report, wanted: Any, again: Any) -> str:
    by_wire = {p["tool_call_id"]: p["content"] for p in parts(report, "tool_result")}
    found = [[next(iter(p["arguments"].values())), by_wire[p["id"]]] for p in parts(report, "tool_call")]
    return "" if found == wanted else f"pairs are {found}"


def results_linked(case: Case, report: Report, wanted: Any, again: Any) -> str:
    calls = {p["id"]: p["original_id"] for p in parts(report, "tool_call")}
    answers = {p["tool_call_id"]: p["original_id"] for p in parts(report, "tool_result")}
    if calls != answers:
        return f"{calls} and {answers}"
    wire = [c["id"] for c in wire_calls(case, report)]
    return "" if not any(wire) or wire == list(calls) else f"the request has {wire}"


def tool_call_count(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = len(parts(report, "tool_call"))
    return "" if found == wanted else f"there are {found}"


def tool_calls_in_feed(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = [p["original_id"] for p in parts(report, "tool_call")]
    return "" if found == wanted else f"they are {found}"


def tool_calls_absent_or_answered(case: Case, report: Report, wanted: Any, again: Any) -> str:
    calls = {p["original_id"] for p in parts(report, "tool_call")}
    answers = {p["original_id"] for p in parts(report, "tool_result")}
    return ", ".join(i for i in wanted if i in calls and i not in answers)


def orphan_results(case: Case, report: Report, wanted: Any, again: Any) -> str:
    calls = {p["id"] for p in parts(report, "tool_call")}
    found = [p["tool_call_id"] for p in parts(report, "tool_result") if p["tool_call_id"] not in calls]
    return "" if len(found) == wanted else f"orphans: {found}"


def unique_tool_call_ids(case: Case, report: Report, wanted: Any, again: Any) -> str:
    ids = [p["id"] for p in parts(report, "tool_call")]
    return "" if len(set(ids)) == len(ids) else f"{ids}"


def tool_call_id_pattern(case: Case, report: Report, wanted: Any, again: Any) -> str:
    ids = [p["id"] for p in parts(report, "tool_call")] + [
        c["id"] for c in wire_calls(case, report) if c["id"]
    ]
    return ", ".join(i for i in ids if not re.search(wanted, i))


def tool_call_id_max(case: Case, report: Report, wanted: Any, again: Any) -> str:
    return ", ".join(p["id"] for p in parts(report, "tool_call") if len(p["id"]) > wanted)


def tool_name_pattern(case: Case, report: Report, wanted: Any, again: Any) -> str:
    return ", ".join(repr(c["name"]) for c in wire_calls(case, report) if not re.search(wanted, c["name"]))


def arguments_on_wire(case: Case, report: Report, wanted: Any, again: Any) -> str:
    original = {p["id"]: p["original_id"] for p in parts(report, "tool_call")}
    found = {original[c["id"]]: c["arguments"] for c in wire_calls(case, report)}
    return ", ".join(f"{i}: {found.get(i)!r}" for i, value in wanted.items() if found.get(i) != value)


def arguments_valid_json_object(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for row in wire_calls(case, report):
        value = json.loads(row["arguments"]) if isinstance(row["arguments"], str) else row["arguments"]
        if not isinstance(value, dict):
            return f"{row}"
    return ""


def no_empty_assistant(case: Case, report: Report, wanted: Any, again: Any) -> str:
    empty = [m for m in report["feed"] if m["role"] == "assistant" and not m["parts"]]
    blank = [m for m in report["feed"] if m["role"] == "assistant" and not _visible(m)]
    return f"{empty or blank}" if empty or blank else ""


def _visible(message: dict[str, Any]) -> bool:
    return any(p["type"] != "text" or p["text"].strip() for p in message["parts"])


def no_blank_text_parts(case: Case, report: Report, wanted: Any, again: Any) -> str:
    return f"{[p for p in parts(report, 'text') if not p['text'].strip()] or ''}"


def no_thinking_only_assistant(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for m in report["feed"]:
        if m["role"] == "assistant" and all(p["type"] == "thinking" for p in m["parts"]):
            return f"{m}"
    return ""


def no_trailing_whitespace(case: Case, report: Report, wanted: Any, again: Any) -> str:
    last = report["feed"][-1] if report["feed"] else {"role": "user", "parts": []}
    if last["role"] != "assistant":
        return ""
    text = [p["text"] for p in last["parts"] if p["type"] == "text"]
    return "it ends in whitespace" if text and text[-1] != text[-1].rstrip() else ""


def stale_confirmation(case: Case, report: Report, wanted: Any, again: Any) -> str:
    stored = next(m for m in case["history"] if m["id"] == wanted["message"])
    text = "".join(p["text"] for p in stored["parts"])
    for message in report["feed"]:
        if wanted["message"] in message["sources"]:
            held = " ".join(p.get("text", "") for p in message["parts"])
            if message["role"] != "user" or "EXPIRED" not in held:
                return f"in its place stands {message}"
    if any(
        text in p["text"]
        for m in report["feed"]
        if m["role"] == "user"
        for p in m["parts"]
        if p["type"] == "text"
    ):
        return "the original text is still in the feed"
    return ""


def thinking(case: Case, report: Report, wanted: Any, again: Any) -> str:
    sent = [b for m in wire_messages(case, report) for b in m["content"] if b.get("type") == "thinking"]
    stored = {
        p.get("signature"): p["text"] for m in case["history"] for p in m["parts"] if p["type"] == "thinking"
    }
    if any(not b.get("signature") for b in sent):
        return "an unsigned block is sent"
    if any(stored.get(b["signature"]) != b["thinking"] or not b["thinking"] for b in sent):
        return "a modified block is sent"
    return ""


def responses_items(case: Case, report: Report, wanted: Any, again: Any) -> str:
    items = wire_messages(case, report)
    calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
    outputs = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    ids = [i.get("id") for i in items]
    reasoning = [k for k, i in enumerate(items) if i.get("type") == "reasoning"]
    alone = [
        k
        for k in reasoning
        if k + 1 == len(items)
        or not (
            items[k + 1].get("type") in ("function_call", "reasoning")
            or items[k + 1].get("role") == "assistant"
        )
    ]
    facts: dict[str, Any] = {
        "function_call_without_output": len(set(calls) - set(outputs)),
        "output_without_function_call": len(set(outputs) - set(calls)),
        "reasoning_without_following_item": len(alone),
        "reasoning_has_summary_field": all("summary" in items[k] for k in reasoning) and bool(reasoning),
    }
    said = [f"{n} is {facts[n]}" for n, w in wanted.items() if n != "must_not_send_items" and facts[n] != w]
    return ", ".join(said + [f"{i} is sent" for i in wanted.get("must_not_send_items", ()) if i in ids])


def gemini(case: Case, report: Report, wanted: Any, again: Any) -> str:
    turns = wire_messages(case, report)
    said = []
    if wanted.get("first_role") and turns[0]["role"] != wanted["first_role"]:
        said.append(f"the first turn is {turns[0]['role']}")
    if wanted.get("every_function_call_followed_by_equal_function_responses"):
        for k, turn in enumerate(turns):
            calls = [p for p in turn["parts"] if "functionCall" in p]
            after = turns[k + 1]["parts"] if k + 1 < len(turns) else []
            if calls and len([p for p in after if "functionResponse" in p]) != len(calls):
                said.append(f"turn {k} is not answered")
    signature = wanted.get("thought_signature_on_first_call_of_each_step")
    if signature:
        firsts = [
            next((p for p in t["parts"] if "functionCall" in p), None) for t in turns if t["role"] == "model"
        ]
        said += [
            f"signature {p.get('thoughtSignature')}"
            for p in firsts
            if p and p.get("thoughtSignature") != signature
        ]
    return ", ".join(said)


def openai_chat(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for message in wire_messages(case, report):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            return f"{message}"
    return ""


def cache_control_max(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = json.dumps(report["request"]).count('"cache_control"') + case["request"].get("caller_marks", 0)
    return "" if found <= wanted else f"{found} marks"


def cache_control_never_on(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for message in wire_messages(case, report):
        for block in message["content"]:
            if "cache_control" in block and (
                block["type"] == "thinking" or not block.get("text", "x").strip()
            ):
                return f"{block}"
    return ""


def images(case: Case, report: Report, wanted: Any, again: Any) -> str:
    text = json.dumps(report["request"]) + words(report)
    said = [
        f"{ref} is gone"
        for name in ("sent_or_note", "kept_or_replaced_by_note")
        for ref in wanted.get(name, ())
        if ref not in text
    ]
    shown = json.dumps(report["display"])
    said += [f"{ref} is not shown" for ref in wanted.get("display_keeps", ()) if ref not in shown]
    sizes = {
        p["ref"]: max(p["width"], p["height"]) for m in case["history"] for p in m["parts"] if "width" in p
    }
    sent = [b for m in wire_messages(case, report) for b in m["content"] if b.get("type") == "image"]
    limit = wanted.get("max_side_when_many", 8000)
    said += [f"{ref} is sent" for ref, side in sizes.items() if side > limit and ref in json.dumps(sent)]
    return ", ".join(said)


def well_formed(case: Case, report: Report, wanted: Any, again: Any) -> str:
    try:
        json.dumps([report["feed"], report["request"]], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return str(error)
    return ""


def summaries_in_feed_max(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = [p["text"] for p in parts(report, "text") if p["text"].startswith("[summary]")]
    return "" if len(found) <= wanted else f"{found}"


def last_user_request(case: Case, report: Report, wanted: Any, again: Any) -> str:
    last = [m for m in report["feed"] if m["role"] == "user"][-1]
    found = last["parts"][-1]["text"]
    return "" if found == wanted else f"it is {found!r}"


def assistant_part_order(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for message in wire_messages(case, report):
        kinds = [b["type"] for b in message["content"]] if isinstance(message["content"], list) else []
        if "tool_use" in kinds and kinds[-1] != "tool_use":
            return f"{kinds}"
    return ""


# --- fields of our own cases


def system_rows_max(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = sum(m["role"] == "system" for m in report["feed"])
    return "" if found <= wanted else f"there are {found}"


def call_names(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = [p["name"] for p in parts(report, "tool_call")]
    return "" if found == wanted else f"they are {found}"


def arguments_in_feed(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = {p["original_id"]: p["arguments"] for p in parts(report, "tool_call")}
    return ", ".join(f"{i}: {found.get(i)!r}" for i, value in wanted.items() if found.get(i) != value)


def calls_are_last(case: Case, report: Report, wanted: Any, again: Any) -> str:
    for message in report["feed"]:
        kinds = [p["type"] for p in message["parts"]]
        if "tool_call" in kinds and "text" in kinds[kinds.index("tool_call") :]:
            return f"{kinds}"
    return ""


def feed_role_list(case: Case, report: Report, wanted: Any, again: Any) -> str:
    found = [m["role"] for m in report["feed"]]
    return "" if found == wanted else f"they are {found}"


def request_is_null(case: Case, report: Report, wanted: Any, again: Any) -> str:
    return "" if (report["request"] is None) is wanted else "a request is made"


CHECKS: dict[str, Callable[..., str]] = {
    "wire_valid": wire_valid,
    "pairing": pairing,
    "idempotent": idempotent,
    "display": display,
    "feed_roles": feed_roles,
    "feed_roles_any": feed_roles_any,
    "roles_alternate": roles_alternate,
    "first_role": first_role,
    "last_role": last_role,
    "must_appear": must_appear,
    "must_not_appear": must_not_appear,
    "appear_count": appear_count,
    "feed_order": feed_order,
    "display_must_show": display_must_show,
    "incoming": incoming,
    "results": results,
    "result_count": result_count,
    "nth_result": nth_result,
    "results_linked": results_linked,
    "tool_call_count": tool_call_count,
    "tool_calls_in_feed": tool_calls_in_feed,
    "tool_calls_absent_or_answered": tool_calls_absent_or_answered,
    "orphan_results": orphan_results,
    "unique_tool_call_ids": unique_tool_call_ids,
    "tool_call_id_pattern": tool_call_id_pattern,
    "tool_call_id_max": tool_call_id_max,
    "tool_name_pattern": tool_name_pattern,
    "arguments_on_wire": arguments_on_wire,
    "arguments_valid_json_object": arguments_valid_json_object,
    "no_empty_assistant": no_empty_assistant,
    "no_blank_text_parts": no_blank_text_parts,
    "no_thinking_only_assistant": no_thinking_only_assistant,
    "no_trailing_whitespace_on_final_assistant": no_trailing_whitespace,
    "stale_confirmation": stale_confirmation,
    "thinking": thinking,
    "responses_items": responses_items,
    "gemini": gemini,
    "openai_chat": openai_chat,
    "cache_control_max": cache_control_max,
    "cache_control_never_on": cache_control_never_on,
    "images": images,
    "unicode_well_formed": well_formed,
    "lone_surrogates_on_wire": well_formed,
    "summaries_in_feed_max": summaries_in_feed_max,
    "last_user_request": last_user_request,
    "assistant_part_order": assistant_part_order,
    "system_rows_max": system_rows_max,
    "call_names": call_names,
    "arguments_in_feed": arguments_in_feed,
    "calls_are_last": calls_are_last,
    "feed_role_list": feed_role_list,
    "request_is_null": request_is_null,
}
