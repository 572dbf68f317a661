"""The verb `chat`: a conversation in the terminal, live, with its queue, receipts and Stop.

On a terminal the answer comes in above a prompt that can be typed into at any time; what is typed while a turn
runs is queued, and the line below shows its position. Without a terminal, every line of stdin is a message, and
the chat ends when the last of them has its end. Either way a broken connection comes back by itself, and a
message that got no answer is sent again with the same key until it has one.
"""

from __future__ import annotations

import queue
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from turnkeeper.cli.asks import Ask
from turnkeeper.cli.client import Client, Frame
from turnkeeper.cli.lines import message_lines, short
from turnkeeper.cli.safe import printable
from turnkeeper.cli.talk import Talk
from turnkeeper.cli.target import Data, Token, Url, find
from turnkeeper.cli.turns import at

DEFAULT_AGENT = "demo"

SHOWN_MESSAGES = 20
"""Messages of an older conversation that are printed at the start."""

HELP = """/stop            stop what runs and pause the queue (also Ctrl-C)
/resume /pause   let the queue go on, or wait
/queue           show what waits
/cancel N        take back number N of the queue
/now N           let number N steer the running turn
/steer TEXT      say something to the running turn
/interrupt TEXT  stop what runs and say this instead
/asks            show what waits for you
/yes N, /no N    approve or deny question N (/no to a sign-in: do not sign in)
/choose N WORD   answer question N in one of the ways that it offers
/connect N       the address to open in a browser to sign in
/retry           try the failed turn again
/quit            leave (also Ctrl-D); what runs goes on
//TEXT           say something that begins with a slash"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: turnkeeper chat --agent demo")(chat)


def chat(
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONV]", help="A conversation to go on with; else a new one.", show_default=False
        ),
    ] = None,
    agent: Annotated[str, typer.Option(help="The agent of a new conversation.")] = DEFAULT_AGENT,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Chat with an agent in the terminal."""
    client = find(url, token, data)
    if conversation is None:
        conversation = str(client.post("/v1/conversations", {"agent": agent})["conversation_id"])
    room = Room(client, conversation)
    if sys.stdin.isatty() and sys.stdout.isatty() and not as_json:
        from turnkeeper.cli.prompt import converse

        converse(room)
    else:
        read_lines(room, as_json=as_json)


@dataclass
class Room:
    """One conversation and what was said in it from here."""

    client: Client
    conversation_id: str
    talk: Talk = field(default_factory=Talk)
    cursor: int = 0
    epoch: str | None = None
    last_failed: str | None = None

    @property
    def path(self) -> str:
        """The conversation's path."""
        return at("conversations", self.conversation_id)

    def begin(self) -> list[str]:
        """Load the snapshot and the newest messages; the lines to print first."""
        snapshot = self.client.get(self.path)
        self.cursor, self.epoch = snapshot["as_of_seq"], snapshot["epoch"]
        self.talk.load(snapshot)
        page = self.client.get(f"{self.path}/messages", limit=SHOWN_MESSAGES)
        lines = [f"conversation {printable(self.conversation_id)} with {printable(snapshot['agent'])}"]
        if page["next"] is not None:
            lines.append("…")
        lines += [line for line in map(message_lines, page["messages"]) if line is not None]
        lines += [ask.line() for ask in self.talk.asks]
        return lines

    def take(self, frame: Frame) -> list[str]:
        """The lines a frame adds; a resync loads the snapshot."""
        if frame.name == "resync":
            return ["(some of what happened is left out here)", *self.begin()[1:]]
        if frame.seq is not None:
            if frame.seq <= self.cursor:
                return []
            self.cursor = frame.seq
            if frame.data["kind"] == "TurnFailed":
                self.last_failed = frame.data["turn_id"]
        return self.talk.take(frame)

    # -- what a person can do

    def do(self, typed: str, key: str) -> list[str]:
        """Carry out a line that was typed; raises Refused and Unreachable. A repeat comes with the same key."""
        command, _, rest = typed.partition(" ")
        if not typed.startswith("/"):
            return self.say(typed, key)
        if typed.startswith("//"):
            return self.say(typed[1:], key)
        known: dict[str, Callable[[str], list[str]]] = {
            "/help": lambda rest: HELP.splitlines(),
            "/stop": lambda rest: self.stop(),
            "/resume": lambda rest: self.lane("resume"),
            "/pause": lambda rest: self.lane("pause"),
            "/queue": lambda rest: self.list_queue(),
            "/cancel": lambda rest: self.of_queue(rest, "cancel", {}),
            "/now": lambda rest: self.of_queue(rest, "send-now", {"mode": "steer"}),
            "/steer": lambda rest: self.say(rest, key, "steer"),
            "/interrupt": lambda rest: self.say(rest, key, "interrupt"),
            "/asks": lambda rest: self.list_asks(),
            "/yes": lambda rest: self.decide(rest, yes=True),
            "/no": lambda rest: self.decide(rest, yes=False),
            "/choose": lambda rest: self.choose(*rest.partition(" ")[::2]),
            "/connect": self.connect,
            "/retry": lambda rest: self.retry(),
        }
        if command in known:
            return known[command](rest.strip())
        if command[1:].isalpha():
            return [
                f"there is no command {printable(command)}; /help lists them, //{printable(command[1:])} says it"
            ]
        # A path, most likely: it is meant for the agent.
        return self.say(typed, key)

    def say(self, text: str, key: str, mode: str = "queue") -> list[str]:
        """Send a message; the server's answer says what became of it."""
        if not text.strip():
            return []
        accepted = self.client.submit(self.conversation_id, key, {"text": text, "mode": mode})
        if accepted["outcome"] == "queued":
            return [f"(queued, position {accepted['position']})"]
        return []

    def stop(self) -> list[str]:
        """Stop the running turn; the queue waits until it is resumed."""
        if self.talk.running is None:
            return ["(nothing runs)"]
        self.client.post(at("turns", self.talk.running, "cancel"), {"queue": "pause"})
        return []

    def lane(self, verb: str) -> list[str]:
        """Pause or resume."""
        self.client.post(f"{self.path}/{verb}")
        return []

    def list_queue(self) -> list[str]:
        """The queue, one line each."""
        return [f"{number}. {short(text)}" for number, _, text in self.talk.waiting()] or ["(nothing waits)"]

    def of_queue(self, number: str, verb: str, body: dict[str, Any]) -> list[str]:
        """Do something to number N of the queue."""
        by_number = {str(position): turn_id for position, turn_id, _ in self.talk.waiting()}
        if number not in by_number:
            return [f"(there is no number {printable(number) or '?'} in the queue)"]
        self.client.post(at("turns", by_number[number], verb), body)
        return []

    # -- what waits for a person

    def list_asks(self) -> list[str]:
        """The open questions."""
        return [ask.line() for ask in self.talk.asks] or ["(nothing waits for you here)"]

    def _asked(self, number: str) -> Ask | None:
        """The question of that number; without one, the only question there is."""
        if not number and len(self.talk.asks) == 1:
            return self.talk.asks[0]
        return next((ask for ask in self.talk.asks if str(ask.number) == number), None)

    def decide(self, number: str, *, yes: bool) -> list[str]:
        """Approve or deny; for a sign-in, say that there will be none. The server says if it is too late."""
        ask = self._asked(number)
        if ask is None:
            return [f"(there is no question {printable(number) or 'to answer'}: /asks lists them)"]
        if ask.kind == "approval":
            self.client.post(at("approvals", ask.approval_id), {"decision": "approve" if yes else "deny"})
            return []
        if ask.kind == "auth":
            if yes:
                return self.connect(str(ask.number))
            self.client.post(at("connections", ask.server, "refuse"))
            return []
        return [f"(question {ask.number} is answered with {ask.line().rpartition(' · ')[2]})"]

    def choose(self, number: str, choice: str) -> list[str]:
        """Answer a question that offers choices."""
        ask = self._asked(number)
        if ask is None or ask.kind != "choice":
            return ["(there is no such question: /asks lists them)"]
        self.client.post(at("turns", ask.turn_id, "decide"), {"choice": choice.strip()})
        return []

    def connect(self, number: str) -> list[str]:
        """The address of a sign-in; by the number of its question, or the name of the server."""
        ask = self._asked(number)
        server = number if ask is None else ask.server
        if not server:
            return ["(there is no sign-in to do: /asks lists what waits)"]
        told = self.client.post(at("connections", server))
        return [f"open in a browser: {printable(told['url'])}"]

    def retry(self) -> list[str]:
        """Try the newest failed turn again."""
        if self.last_failed is None:
            return ["(nothing failed here)"]
        self.client.post(at("turns", self.last_failed, "retry"))
        return []


def follow(room: Room, client: Client, give: Callable[[Frame | Exception | str], None]) -> None:
    """Feed `give` with frames, words about the connection, and at last the error that ended it (in a thread)."""
    try:
        for frame in client.follow(
            room.conversation_id,
            after=room.cursor,
            epoch=room.epoch,
            lost=lambda: give("(connection lost; coming back)"),
            found=lambda: give("(connected)"),
        ):
            give(frame)
    except Exception as error:  # noqa: BLE001 - whatever ended it is raised again by who reads
        give(error)


def read_lines(room: Room, *, as_json: bool) -> None:
    """Every line of stdin is a message; print what comes; end when each of them has its end."""
    from turnkeeper.cli.turns import put

    room.talk.live = False
    begun = room.begin()
    if not as_json:
        print("\n".join(begun))
    came: queue.Queue[Frame | Exception | str] = queue.Queue()
    threading.Thread(target=follow, args=(room, room.client.another(), came.put), daemon=True).start()
    sent: set[str] = set()
    for line in sys.stdin:
        text = line.rstrip("\n")
        if text.strip():
            accepted = room.client.submit(room.conversation_id, uuid.uuid4().hex, {"text": text})
            sent.add(accepted["turn_id"])
    while sent - room.talk.ends.keys():
        item = came.get()
        if isinstance(item, Exception):
            raise item
        if isinstance(item, str):
            print(item, file=sys.stderr)
            continue
        if as_json:
            if item.seq is not None:
                put(item.data)
            room.take(item)
        else:
            for shown in room.take(item):
                print(shown)
        sys.stdout.flush()
