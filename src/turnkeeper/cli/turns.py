"""Verbs for what goes on in conversations: list, send, tail, queue, why, cancel, retry, pause, resume."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from turnkeeper.cli.client import Client
from turnkeeper.cli.lines import TICKS, event_line, short, words
from turnkeeper.cli.safe import printable
from turnkeeper.cli.target import AsJson, Data, Token, Url, find

NEW = "new"

END_KINDS = {"TurnSettled": "settled", "TurnFailed": "failed", "TurnCancelled": "cancelled"}

Conversation = Annotated[
    str, typer.Argument(metavar="CONV", help="The conversation's id.", show_default=False)
]
Turn = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.", show_default=False)]


def put(value: Any) -> None:
    """Print a value as one line of JSON in ASCII, which no terminal obeys."""
    print(json.dumps(value))


def at(kind: str, found: str, *rest: str) -> str:
    """A path of the interface: `at("turns", "t_1", "why")`."""
    return "/".join((f"/v1/{kind}", quote(found, safe=""), *rest))


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("list", epilog="Example: turnkeeper list --archived")(find_conversations)
    app.command(epilog='Example: turnkeeper send new "Hello" --wait')(send)
    app.command(epilog="Example: turnkeeper tail c_01jd7m9q3w5v8x2c4b6n1m0k9h --after 120")(tail)
    app.command(epilog="Example: turnkeeper queue c_01jd7m9q3w5v8x2c4b6n1m0k9h")(queue)
    app.command(epilog="Example: turnkeeper why t_01jd7m9q3w5v8x2c4b6n1m0k9h")(why)
    app.command(epilog="Example: turnkeeper usage t_01jd7m9q3w5v8x2c4b6n1m0k9h")(usage)
    app.command(epilog="Example: turnkeeper cancel t_01jd7m9q3w5v8x2c4b6n1m0k9h --queue continue")(cancel)
    app.command(epilog="Example: turnkeeper retry t_01jd7m9q3w5v8x2c4b6n1m0k9h")(retry)
    app.command(epilog="Example: turnkeeper pause c_01jd7m9q3w5v8x2c4b6n1m0k9h")(pause)
    app.command(epilog="Example: turnkeeper resume c_01jd7m9q3w5v8x2c4b6n1m0k9h")(resume)


def find_conversations(
    archived: Annotated[bool, typer.Option(help="List the archive instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most rows.")] = 20,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List your conversations, newest activity first."""
    page = find(url, token, data).get(
        "/v1/conversations", limit=limit, archived="true" if archived else "false"
    )
    if as_json:
        put(page)
        return
    for row in page["conversations"]:
        print(
            f"{printable(row['conversation_id'])}  {row['state']:8}  {printable(row['agent']):12}  {short(row['title'])}"
        )


def send(
    conversation: Annotated[
        str, typer.Argument(metavar="CONV", help="The conversation's id, or `new`.", show_default=False)
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; `-` reads it from stdin.", show_default=False)
    ],
    mode: Annotated[str, typer.Option(help="queue | steer | interrupt")] = "queue",
    agent: Annotated[str, typer.Option(help="The agent of a new conversation.")] = "demo",
    key: Annotated[
        str | None, typer.Option(help="The idempotency key, if you repeat a call.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the answer.")] = False,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Send a message. When this returns, it is stored for good."""
    client = find(url, token, data)
    said = sys.stdin.read() if text == "-" else text
    if conversation == NEW:
        conversation = client.post("/v1/conversations", {"agent": agent})["conversation_id"]
    before = client.get(at("conversations", conversation)) if wait else None
    accepted = client.submit(conversation, key or uuid.uuid4().hex, {"text": said, "mode": mode})
    told: dict[str, Any] = {"conversation_id": conversation, **accepted}
    if before is None:
        if as_json:
            put(told)
        else:
            place = "" if accepted["position"] is None else f", position {accepted['position']}"
            print(f"{accepted['outcome']}{place}: turn {accepted['turn_id']} of {conversation}")
        return
    turn, answer = wait_for_end(client, conversation, accepted["turn_id"], before["as_of_seq"])
    if as_json:
        put({**told, "state": turn["state"], "reason": turn["reason"], "answer": answer})
    elif turn["state"] == "settled":
        print(printable(answer))
    else:
        print(f"{turn['state']}: {printable(turn['reason'] or '')}", file=sys.stderr)


def wait_for_end(
    client: Client, conversation_id: str, turn_id: str, after: int
) -> tuple[Mapping[str, Any], str]:
    """Follow a conversation until the turn has ended (or is parked): the turn, and the words of its answer."""
    answer = ""
    for frame in client.another().follow(conversation_id, after=after):
        if frame.seq is None:
            if frame.name == "resync":
                turn: dict[str, Any] = client.get(at("turns", turn_id))
                if turn["state"] not in {"queued", "running"}:
                    return turn, answer
            continue
        event = frame.data
        if event["turn_id"] != turn_id:
            continue
        if event["kind"] == "MessageAppended":
            message = event["body"]["message"]
            if message["role"] == "assistant" and message.get("replay", True):
                answer = (
                    words([part for part in message.get("parts", ()) if part["type"] == "text"]) or answer
                )
        if event["kind"] in END_KINDS or event["kind"] == "TurnParked":
            return client.get(at("turns", turn_id)), answer
    raise AssertionError


def tail(
    conversation: Conversation,
    after: Annotated[int, typer.Option(min=0, help="Begin after this seq.")] = 0,
    follow: Annotated[bool, typer.Option(help="Go on with what happens from now on.")] = True,
    everything: Annotated[bool, typer.Option("--all", help="Show bookkeeping events too.")] = False,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print a conversation's events as they happen; comes back by itself when the connection breaks."""
    client = find(url, token, data)
    until = client.get(at("conversations", conversation))["as_of_seq"]
    if not follow and after >= until:
        return
    for frame in client.follow(
        conversation,
        after=after,
        lost=lambda: print("(connection lost; coming back)", file=sys.stderr),
        found=lambda: print("(connected)", file=sys.stderr),
    ):
        if frame.seq is None:
            if frame.name == "resync":
                print(
                    f"(events up to {frame.data['as_of_seq']} left out: {printable(frame.data['reason'])})",
                    file=sys.stderr,
                )
                if not follow and frame.data["as_of_seq"] >= until:
                    return
            continue
        if as_json:
            put(frame.data)
        else:
            line = event_line(frame.data, everything=everything)
            if line is not None:
                print(f"{frame.seq:>6}  {line}")
        sys.stdout.flush()
        if not follow and frame.seq >= until:
            return


def queue(
    conversation: Conversation,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs and what waits in a conversation."""
    snapshot = find(url, token, data).get(at("conversations", conversation))
    if as_json:
        put(
            {
                "running": snapshot["running"],
                "queue": snapshot["queue"],
                "parked": snapshot["parked"],
                "lane": snapshot["lane"],
            }
        )
        return
    running = snapshot["running"]
    if running is not None:
        print(f"  now  {queue_row(running['turn'])}")
    for turn in snapshot["queue"]:
        print(f"{turn['position']:>5}  {queue_row(turn)}")
    for turn in snapshot["parked"]:
        print(f" asks  {queue_row(turn)}")
    if snapshot["lane"]["paused"]:
        print(
            f"paused ({printable(snapshot['lane']['paused'])}): turnkeeper resume {printable(conversation)}"
        )
    elif running is None and not snapshot["queue"] and not snapshot["parked"]:
        print("nothing runs and nothing waits")


def queue_row(turn: Mapping[str, Any]) -> str:
    """A turn in one line: receipt, id, words."""
    tick = TICKS.get(turn["receipt"]["state"], " ")
    return f"{tick:2} {printable(turn['turn_id'])}  {short(turn.get('text') or '')}"


def why(turn: Turn, url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False) -> None:
    """Say why a turn waits: who holds the lane, since when, and what releases it."""
    told = find(url, token, data).get(at("turns", turn, "why"))
    if as_json:
        put(told)
        return
    print(printable(told["sentence"]))
    for name in ("holder", "since", "releases", "deadline"):
        if told.get(name):
            print(f"  {name}: {printable(str(told[name]))}")


def usage(
    turn: Turn, url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False
) -> None:
    """Show what a turn used and cost: each model call, each attempt, and what a resume saved."""
    told = find(url, token, data).get(at("turns", turn, "usage"))
    if as_json:
        put(told)
        return
    for line in usage_lines(told):
        print(line)


def usage_lines(told: Mapping[str, Any]) -> list[str]:
    """The bill of a turn, a line each."""
    currency = told["currency"] or ""

    def said(used: Mapping[str, Any]) -> str:
        cached = f" ({used['cached_tokens']} cached)" if used["cached_tokens"] else ""
        money = "no price" if used["cost"] is None else f"{used['cost']:.6f} {currency}".rstrip()
        return f"{used['input_tokens']} in{cached}, {used['output_tokens']} out, {money}"

    lines = []
    for call in told["calls"]:
        what = "summary" if call["kind"] == "summary" else f"round {call['round']}"
        end = call["end"] + (f" ({call['failure']})" if call["failure"] else "")
        model = printable("/".join(word for word in (call["provider"], call["model"]) if word))
        lines.append(f"  {what:9} attempt {call['attempt']}  {end:22} {model:24} {said(call['used'])}")
    if len(told["attempts"]) > 1:
        lines += [f"  attempt {one['attempt']}: {said(one['used'])}" for one in told["attempts"]]
    lines.append(f"in all: {said(told['total'])}")
    if told["superseded"]["calls"]:
        lines.append(f"of it came to nothing: {said(told['superseded'])}")
    for kept in told["saved"]:
        lines.append(
            f"saved ({kept['why']}): {kept['rounds']} rounds and {kept['results']} tool calls not done again, "
            f"{said(kept['used'])}"
        )
    if told["total"]["unpriced"]:
        lines.append(f"{told['total']['unpriced']} calls have no price: the agents file names none for them")
    return lines


def cancel(
    turn: Turn,
    queue: Annotated[str, typer.Option(help="What becomes of the queue: pause | continue")] = "pause",
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Take a waiting turn back, or stop a running one. Stopping pauses the queue unless you say continue."""
    told = find(url, token, data).post(at("turns", turn, "cancel"), {"queue": queue})
    if as_json:
        put(told)
    else:
        # A running turn gets a moment to stop in order; its end comes as an event.
        print(
            "stopping"
            if told["state"] == "running"
            else f"{told['state']}: {printable(told['reason'] or '')}"
        )


def retry(
    turn: Turn, url: Url = None, token: Token = None, data: Data = None, as_json: AsJson = False
) -> None:
    """Try a failed turn again: the same turn, its next attempt."""
    told = find(url, token, data).post(at("turns", turn, "retry"))
    if as_json:
        put(told)
    else:
        place = "" if told["position"] is None else f", position {told['position']}"
        print(f"{told['outcome']}{place}: turn {printable(told['turn_id'])}")


def pause(
    conversation: Conversation,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Let nothing more start in a conversation until it is resumed."""
    _lane(find(url, token, data), conversation, "pause", as_json=as_json)


def resume(
    conversation: Conversation,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused conversation go on."""
    _lane(find(url, token, data), conversation, "resume", as_json=as_json)


def _lane(client: Client, conversation: str, verb: str, *, as_json: bool) -> None:
    snapshot = client.post(at("conversations", conversation, verb))
    if as_json:
        put(snapshot["lane"])
        return
    lane = snapshot["lane"]
    state = f"paused ({printable(lane['paused'])})" if lane["paused"] else "goes on"
    print(f"{state}; {lane['queue_depth']} waiting")
