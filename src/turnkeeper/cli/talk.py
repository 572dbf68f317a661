"""What a chat in a terminal shows: a pure reading of snapshots, events and live text into lines and a status.

`Talk` knows no terminal and no network. It is fed what the server says and answers with lines that are ready to
be printed; beside them it keeps what changes in place: the unfinished last line of the answer, the queue with
its positions, the receipt of the running turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from turnkeeper.cli.asks import Ask, read_asks
from turnkeeper.cli.client import Frame
from turnkeeper.cli.lines import TICKS, event_line, message_lines, short, words
from turnkeeper.cli.safe import printable

END_WORDS: Final = {"TurnSettled": "settled", "TurnFailed": "failed", "TurnCancelled": "cancelled"}

QUIET: Final = frozenset(
    {"Submitted", "TurnStarted", "TurnSettled", "ReceiptMoved", "TurnMoved", "TurnEdited", "SteerTaken"}
)
"""Kinds that the status and the queue show; they are no lines of their own."""


@dataclass
class Waiting:
    """A turn in the queue, as far as it is shown."""

    place: int
    text: str


@dataclass
class Answering:
    """The text of a round that is being written, and how much of it stands on the screen."""

    turn_id: str
    attempt: int
    round: int
    text: str = ""
    printed_chars: int = 0


@dataclass
class Talk:
    """One conversation on one screen."""

    columns: int = 80
    live: bool = True
    """Whether unfinished text is shown while it comes; otherwise only whole messages."""
    running: str | None = None
    receipt: str = "queued"
    paused: str | None = None
    queue: dict[str, Waiting] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    """turn_id -> how it ended, for those that ended while we looked."""
    asks: list[Ask] = field(default_factory=list)
    """Questions of this conversation that wait for a person."""
    _answering: Answering | None = None
    _asked: int = 0
    """The number of the newest question: an answer to a number never meets another question."""

    # -- what is shown in place

    @property
    def unfinished(self) -> str:
        """The last line of the answer, as far as it has come; printable."""
        now = self._answering
        return "" if now is None else printable(now.text[now.printed_chars :])

    def waiting(self) -> list[tuple[int, str, str]]:
        """The queue: (position, turn_id, words)."""
        ordered = sorted(self.queue.items(), key=lambda item: item[1].place)
        return [(number, turn_id, each.text) for number, (turn_id, each) in enumerate(ordered, 1)]

    def status(self) -> str:
        """One line: what runs, what waits."""
        parts = []
        if self.running is not None:
            parts.append(f"{TICKS.get(self.receipt, '')} {printable(self.receipt)}, working (Ctrl-C stops)")
        if self.asks:
            parts.append(f"{len(self.asks)} wait for you: /asks")
        if self.paused is not None:
            parts.append(f"queue paused ({printable(self.paused)}): /resume")
        parts += [f"{number}. {short(text)[:40]}" for number, _, text in self.waiting()[:3]]
        more = len(self.queue) - 3
        if more > 0:
            parts.append(f"and {more} more: /queue")
        return " · ".join(parts) or "idle · /help"

    # -- what comes in

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Begin from a snapshot, or begin again after a resync."""
        self.paused = snapshot["lane"]["paused"]
        self.queue = {
            turn["turn_id"]: Waiting(place=number, text=turn.get("text") or "")
            for number, turn in enumerate(snapshot["queue"], 1 - len(snapshot["queue"]))
        }
        self.asks = []
        for turn in snapshot.get("parked", ()):
            self._ask(turn["turn_id"], turn.get("needs") or {})
        self._answering = None
        self.running = None
        running = snapshot["running"]
        if running is not None:
            turn = running["turn"]
            self.running = turn["turn_id"]
            self.receipt = turn["receipt"]["state"]
            self._answering = Answering(
                self.running, turn["attempts"], int(running.get("round") or 0), running.get("text") or ""
            )

    def take(self, frame: Frame) -> list[str]:
        """The lines that a frame of the stream adds. Resync frames are for whoever loads snapshots."""
        if frame.name == "delta":
            return self._delta(frame.data)
        if frame.seq is None:
            return []
        event: dict[str, Any] = frame.data
        kind = str(event["kind"])
        self._note(kind, event)
        if kind == "MessageAppended":
            return self._message(event["body"]["message"])
        if kind in QUIET:
            return []
        if kind == "TurnParked":
            asked = self._ask(event["turn_id"], event["body"]["needs"])
            return [*self._break(), *[ask.line() for ask in asked]]
        line = event_line(event)
        return [] if line is None else [*self._break(), f"({line})"]

    def _ask(self, turn_id: str, needs: Mapping[str, Any]) -> list[Ask]:
        """Keep the questions of a parked turn."""
        self.asks = [ask for ask in self.asks if ask.turn_id != turn_id]
        asked = read_asks(turn_id, needs, self._asked + 1)
        self.asks += asked
        self._asked += len(asked)
        return asked

    def _note(self, kind: str, event: Mapping[str, Any]) -> None:
        """Keep queue, running turn, receipt and pause as the event says."""
        body, turn_id = event["body"], event["turn_id"]
        if kind in {"TurnContinued", "TurnStarted", *END_WORDS}:
            self.asks = [ask for ask in self.asks if ask.turn_id != turn_id]
        if kind == "Submitted" and not body.get("parent"):
            text = words(body["request"]["parts"])
            self.queue[turn_id] = Waiting(place=body.get("place") or event["seq"], text=text)
        elif kind == "TurnStarted":
            self.queue.pop(turn_id, None)
            self.running, self.receipt = turn_id, "queued"
        elif kind == "TurnMoved" and turn_id in self.queue:
            self.queue[turn_id].place = body["place"]
        elif kind == "TurnEdited" and turn_id in self.queue:
            self.queue[turn_id].text = words(body["parts"])
        elif kind in {"TurnRequeued", "SteerReturned", "TurnContinued"}:
            if self.running == turn_id:
                self.running = None
            known = self.queue.get(turn_id)
            self.queue[turn_id] = Waiting(place=body["place"], text="" if known is None else known.text)
        elif kind in END_WORDS or kind == "TurnParked":
            self.queue.pop(turn_id, None)
            self.ends[turn_id] = END_WORDS.get(kind, "parked")
            if self.running == turn_id:
                self.running = None
        elif kind == "ReceiptMoved" and turn_id == self.running:
            self.receipt = body["state"]
        elif kind == "LanePaused":
            self.paused = body["reason"]
        elif kind == "LaneResumed":
            self.paused = None

    def _delta(self, data: Mapping[str, Any]) -> list[str]:
        if data["kind"] != "text" or not self.live:
            return []
        now = self._answering
        same = now is not None and (now.turn_id, now.attempt, now.round) == (
            data["turn_id"],
            data["attempt"],
            data["round"],
        )
        if now is None or not same:
            lines = self._break()
            now = self._answering = Answering(data["turn_id"], data["attempt"], data["round"])
        else:
            lines = []
        offset = int(data.get("offset", len(now.text)))
        # What a snapshot had already may come again; what was missed is put right by the message itself.
        if offset <= len(now.text) < offset + len(data["text"]):
            now.text = now.text[:offset] + data["text"]
        return lines + self._whole_lines(now)

    def _whole_lines(self, now: Answering) -> list[str]:
        """Lines that will not change any more: ended by a line end, or as wide as the screen."""
        lines: list[str] = []
        while True:
            rest = now.text[now.printed_chars :]
            end = rest.find("\n")
            if end >= 0:
                take, skip = end, 1
            elif len(rest) > self.columns:
                space = rest.rfind(" ", 0, self.columns)
                take, skip = (space, 1) if space > 0 else (self.columns, 0)
            else:
                return lines
            lines.append(self._headed(now, rest[:take]))
            now.printed_chars += take + skip

    def _headed(self, now: Answering, line: str) -> str:
        head = "agent: " if now.printed_chars == 0 else ""
        return head + printable(line)

    def _message(self, message: Mapping[str, Any]) -> list[str]:
        now = self._answering
        whole = message_lines(message)
        if message["role"] != "assistant" or now is None or now.printed_chars == 0:
            if message["role"] == "assistant":
                self._answering = None
            return [] if whole is None else [whole]
        self._answering = None
        text = "".join(part["text"] for part in message.get("parts", ()) if part["type"] == "text")
        if (
            message.get("turn_id") == now.turn_id
            and text[: now.printed_chars] == now.text[: now.printed_chars]
        ):
            others = words(
                [part for part in message.get("parts", ()) if part["type"] not in {"text", "thinking"}]
            )
            rest = printable(text[now.printed_chars :])
            standing = message.get("standing", "complete")
            mark = "" if standing == "complete" else f"({printable(standing)})"
            return [line for line in (rest, others, mark) if line]
        # What stands on the screen is not how the answer begins: say it again, whole.
        return ["…", *([] if whole is None else [whole])]

    def _break(self) -> list[str]:
        """End a half-written line before something else is printed; its text comes again with its message."""
        now = self._answering
        if now is None or now.printed_chars in {0, len(now.text)}:
            return []
        line = printable(now.text[now.printed_chars :])
        now.printed_chars = len(now.text)
        return [line]
