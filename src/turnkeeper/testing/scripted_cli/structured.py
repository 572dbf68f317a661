"""The scripted CLI without a terminal: the same turns and transcripts, spoken as JSON lines in its dialect's protocol.

pi's `--mode rpc`, codex's `app-server` and claude's stream-json, as far as a client needs them: open a session, give a
text under an id, steer, interrupt, answer a permission. What each says follows captures of the real ones
(tests/vectors/retained-clis/struct). `speaks` tells by the arguments whether a protocol is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnkeeper.testing.scripted_cli.program import Menu, ScriptedCli

Say = Callable[[dict[str, Any]], None]
Make = Callable[[list[str]], ScriptedCli]


def speaks(dialect: str, argv: list[str]) -> bool:
    """Whether these arguments ask for the dialect's protocol instead of a screen."""
    wanted = {"pi": "rpc", "codex": "app-server", "claude-code": "stream-json"}[dialect]
    return wanted in argv


class Structured:
    """One run of the protocol. `make` builds the CLI behind it from arguments; `say` writes a row."""

    def __init__(self, argv: list[str], make: Make, say: Say) -> None:
        self.argv = argv
        self.make = make
        self.say = say
        self.cli: ScriptedCli | None = None
        self.asked: Menu | None = None
        self.numbers = 0
        self.was_busy = False
        self.queue: list[str] = []

    # -- what a protocol does in its own words

    def row(self, row: dict[str, Any]) -> None:
        """A row of the client."""
        raise NotImplementedError

    def busy(self, busy: bool) -> None:
        """It has begun, or is idle again."""

    def asks(self, ask_id: str, menu: Menu) -> None:
        """A permission is asked for."""

    def queued(self, texts: list[str]) -> None:
        """The queue is another one now."""

    # -- what they share

    def after(self) -> None:
        """Say what changed since the last call."""
        cli = self.cli
        if cli is None:
            return
        queue = [text for _, text in cli.queue]
        if queue != self.queue:
            self.queue = queue
            self.queued(queue)
        busy = cli.turn is not None or cli.compacting
        if busy != self.was_busy:
            self.was_busy = busy
            self.busy(busy)
        menu = next((menu for menu in cli.menus if menu.kind == "ask"), None)
        if menu is not None and menu is not self.asked:
            self.numbers += 1
            self.asks(f"ask{self.numbers}", menu)
        self.asked = menu

    def take(self, text: str, given: str) -> None:
        """A text is with the CLI."""
        assert self.cli is not None
        self.cli.take(text, given)

    def decide(self, allow: bool) -> None:
        """A permission was answered."""
        assert self.cli is not None
        if self.asked is not None:
            self.cli.choose(self.asked, 0 if allow else 1)

    def begin(self, argv: list[str]) -> ScriptedCli:
        """Start the CLI behind it."""
        self.cli = self.make(argv)
        self.cli.taken = self.consumed
        self.cli.ready = True
        return self.cli

    def consumed(self, text: str, given: str) -> None:
        """A text is on its way to the model."""


class PiRpc(Structured):
    """Commands and responses by id; events without one."""

    def __init__(self, argv: list[str], make: Make, say: Say) -> None:
        super().__init__(argv, make, say)
        self.begin(argv)

    def _answer(self, row: dict[str, Any], data: dict[str, Any] | None = None, error: str = "") -> None:
        answer = {"type": "response", "command": row.get("type"), "success": not error}
        if "id" in row:
            answer = {"id": row["id"], **answer}
        self.say({**answer, **({"error": error} if error else {}), **({"data": data} if data else {})})

    def row(self, row: dict[str, Any]) -> None:
        cli = self.cli
        assert cli is not None
        match row.get("type"):
            case "get_state":
                state = {"isStreaming": cli.turn is not None, "sessionId": cli.transcript.session_id}
                self._answer(row, {**state, "sessionFile": str(cli.transcript.path)})
            case "prompt" if cli.turn is not None and "streamingBehavior" not in row:
                self._answer(row, error="Agent is already processing.")
            case "prompt":
                disposition = "started" if cli.turn is None else "queued"
                self.take(row["message"], row.get("id", ""))
                self._answer(row, {"disposition": disposition})
            case "clear_queue":
                self._answer(row, {"steering": cli.clear_queue(), "followUp": []})
            case "abort":
                cli.interrupt()
                self.after()
                self._answer(row)
            case "compact":
                self.say({"type": "compaction_start", "reason": "manual"})
                cli.compact()
                self._answer(row)
            case _:
                self._answer(row, error="Unknown command")

    def busy(self, busy: bool) -> None:
        self.say({"type": "agent_start"} if busy else {"type": "agent_settled", "aborted": False})

    def queued(self, texts: list[str]) -> None:
        self.say({"type": "queue_update", "steering": texts, "followUp": []})

    def consumed(self, text: str, given: str) -> None:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        self.say({"type": "message_end", "message": message})


class CodexServer(Structured):
    """JSON-RPC; the CLI behind it begins with the thread."""

    def row(self, row: dict[str, Any]) -> None:
        params = row.get("params") or {}
        match row.get("method"):
            case "initialize":
                self._result(row, {"userAgent": "scripted"})
            case "thread/start" | "thread/resume":
                self._thread(row, params)
            case "turn/start" | "turn/steer":
                self._turn(row, params)
            case "turn/interrupt":
                assert self.cli is not None
                # What waited for the running turn is dropped in silence, as the real one does.
                self.cli.clear_queue()
                self.cli.interrupt()
                self._result(row, {})
            case "thread/compact/start":
                assert self.cli is not None
                self._result(row, {})
                self.cli.compact()
            case None if "result" in row and "id" in row:
                self.decide(row["result"].get("decision") == "accept")
            case _:
                pass

    def _result(self, row: dict[str, Any], result: dict[str, Any]) -> None:
        self.say({"id": row["id"], "result": result})

    def _error(self, row: dict[str, Any], words: str) -> None:
        self.say({"error": {"code": -32600, "message": words}, "id": row["id"]})

    def _thread(self, row: dict[str, Any], params: dict[str, Any]) -> None:
        wanted = params.get("threadId")
        cli = self.begin(["resume", wanted] if wanted else [])
        if cli.exit_code is not None:
            self.cli = None
            self._error(row, f"no rollout found for thread id {wanted}")
            return
        transcript = cli.transcript
        thread = {"id": transcript.session_id, "path": str(transcript.path), "status": {"type": "idle"}}
        self._result(row, {"thread": thread})

    def _turn(self, row: dict[str, Any], params: dict[str, Any]) -> None:
        cli = self.cli
        assert cli is not None
        steers = row["method"] == "turn/steer"
        if steers and cli.turn is None:
            self._error(row, "no active turn to steer")
            return
        text = "\n".join(piece["text"] for piece in params["input"])
        self.take(text, params.get("clientUserMessageId") or "")
        turn_id = f"turn-{cli.began}"
        self._result(row, {"turnId": turn_id} if steers else {"turn": {"id": turn_id}})
        self.after()

    def _note(self, method: str, **params: Any) -> None:
        assert self.cli is not None
        self.say({"method": method, "params": {"threadId": self.cli.transcript.session_id, **params}})

    def busy(self, busy: bool) -> None:
        assert self.cli is not None
        turn = {"id": f"turn-{self.cli.began}", "error": None}
        if busy:
            self._note("turn/started", turn=turn)
        self._note("thread/status/changed", status={"type": "active" if busy else "idle"})
        if not busy:
            self._note("turn/completed", turn=turn)

    def asks(self, ask_id: str, menu: Menu) -> None:
        assert self.cli is not None
        command = menu.spec.body[-1].strip()
        params = {"threadId": self.cli.transcript.session_id, "itemId": ask_id, "command": command}
        self.say({"id": ask_id, "method": "item/commandExecution/requestApproval", "params": params})

    def consumed(self, text: str, given: str) -> None:
        assert self.cli is not None
        content = [{"type": "text", "text": text}]
        item = {"type": "userMessage", "clientId": given or None, "content": content}
        self._note("item/started", item=item)


class ClaudeStream(Structured):
    """Messages under the client's ids, and what becomes of each."""

    def __init__(self, argv: list[str], make: Make, say: Say) -> None:
        super().__init__(argv, make, say)
        self.states: dict[str, str] = {}
        self.known: set[str] = set()
        self.begin(argv)

    def row(self, row: dict[str, Any]) -> None:
        match row.get("type"):
            case "user":
                self._user(row["uuid"], row["message"]["content"])
            case "control_request":
                self._control(row["request_id"], row["request"])
            case "control_response":
                self.decide(row["response"]["response"].get("behavior") == "allow")
            case _:
                pass

    def _user(self, given: str, text: str) -> None:
        if given in self.known:
            # A second text under the same id is dropped.
            return
        self.known.add(given)
        self._state(given, "queued")
        self.take(text, given)

    def _state(self, given: str, state: str) -> None:
        self.states[given] = state
        self.say({"type": "command_lifecycle", "command_uuid": given, "state": state})

    def _control(self, request_id: str, request: dict[str, Any]) -> None:
        cli = self.cli
        assert cli is not None
        answer: dict[str, Any] = {}
        match request.get("subtype"):
            case "cancel_async_message":
                given = request["message_uuid"]
                cli.give_back(given)
                self._state(given, "cancelled")
            case "interrupt":
                cli.interrupt()
                answer = {"still_queued": []}
            case _:
                pass
        response = {"subtype": "success", "request_id": request_id, "response": answer}
        self.say({"type": "control_response", "response": response})

    def consumed(self, text: str, given: str) -> None:
        if self.states.get(given) == "queued":
            self._state(given, "started")
            message = {"role": "user", "content": text}
            self.say({"type": "user", "uuid": given, "message": message, "isReplay": True})

    def busy(self, busy: bool) -> None:
        if not busy:
            self.say({"type": "result", "subtype": "success", "is_error": False})
            for given in [given for given, state in self.states.items() if state == "started"]:
                self._state(given, "completed")

    def asks(self, ask_id: str, menu: Menu) -> None:
        request = {
            "subtype": "can_use_tool",
            "tool_name": menu.spec.body[0].removesuffix(" command"),
            "input": {"command": menu.spec.body[-1].strip()},
        }
        self.say({"type": "control_request", "request_id": ask_id, "request": request})


PROTOCOLS: dict[str, type[Structured]] = {"pi": PiRpc, "codex": CodexServer, "claude-code": ClaudeStream}
