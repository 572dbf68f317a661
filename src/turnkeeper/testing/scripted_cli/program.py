"""The scripted CLI without a terminal: bytes of the keyboard in, lines of the screen out, time handed in.

`feed` takes what a terminal would send, `advance` lets time pass, `wake_at` says when that is worth while,
`draw` gives the screen. What it did is told to `log` as one dict each: submit, key, paste, eaten, chose, exit.
How the three dialects differ when busy follows measurements (reference: retained-clis 4): pi takes what was
queued one by one at the next boundary, codex lets it cut off a streaming answer, claude queues it, answers all
of it at once, or takes it up after a tool.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from turnkeeper.testing.scripted_cli.quirks import Burst, MenuSpec, Quirks
from turnkeeper.testing.scripted_cli.transcripts import DIALECTS, Claude

Log = Callable[[dict[str, Any]], None]

DIRECTIVE: Final = re.compile(r"\[\[(\w+)(?::([^\]]*))?\]\]")
KEYS: Final[dict[bytes, str]] = {
    b"\x1b[A": "Up",
    b"\x1b[B": "Down",
    b"\x1b[C": "Right",
    b"\x1b[D": "Left",
    b"\x1bOA": "Up",
    b"\x1bOB": "Down",
    b"\x1b[1;3A": "M-Up",
    b"\x1b[F": "End",
    b"\x1b[4~": "End",
    b"\x1b[H": "Home",
    b"\x1b[1~": "Home",
    b"\x1b[Z": "BTab",
}
PASTE_BEGIN: Final = b"\x1b[200~"
PASTE_END: Final = b"\x1b[201~"
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
HISTORY_LINES: Final = 400

BOOT_MENUS: Final[dict[str, MenuSpec]] = {
    "trust": MenuSpec("Do you trust the files in this folder?", ("Yes, proceed", "No, exit")),
    "mcp_servers": MenuSpec(
        "New MCP server found in .mcp.json: demo",
        ("Use this MCP server", "Continue without using this MCP server"),
    ),
    "update": MenuSpec(
        "Update available", ("Update now", "Skip", "Skip until next version"), cursor="›", on_enter="exit"
    ),
    "login": MenuSpec(
        "Select login method:", ("Claude account with subscription", "Anthropic Console account")
    ),
}
COMMANDS: Final[dict[str, frozenset[str]]] = {
    "pi": frozenset(
        {"/quit", "/exit", "/clear", "/new", "/compact", "/help", "/model", "/resume", "/settings"}
    ),
    "codex": frozenset(
        {"/quit", "/exit", "/clear", "/new", "/compact", "/help", "/model", "/diff", "/status"}
    ),
    "claude-code": frozenset({"/quit", "/exit", "/clear", "/compact", "/help", "/model", "/resume", "/cost"}),
}


@dataclass
class Paste:
    """A paste in the composer that is shown as a placeholder."""

    text: str
    label: str


@dataclass
class Step:
    """What the scripted model does at `at` seconds of the turn."""

    at: float
    act: str
    words: tuple[str, ...] = ()


@dataclass
class Running:
    """A turn that is being answered."""

    texts: list[str]
    began: float
    steps: list[Step]
    shift: float = 0.0
    tool: str | None = None
    words: list[str] = field(default_factory=list)
    quiet_until: float = 0.0
    looks_idle: bool = False
    final: str | None = None


@dataclass
class Menu:
    """A menu on the screen."""

    spec: MenuSpec
    selected: int
    kind: str
    chosen: Callable[[int], None]


class ScriptedCli:
    """One run of the program. `clock()` is Unix seconds; `pid` is that of the process it plays."""

    def __init__(
        self,
        dialect: str,
        argv: list[str],
        *,
        home: Path,
        cwd: str,
        env: dict[str, str],
        quirks: Quirks,
        clock: Callable[[], float],
        log: Log,
        pid: int = 1,
    ) -> None:
        self.dialect = dialect
        self._home = home
        self.quirks = quirks
        self.clock = clock
        self.log = log
        self.pid = pid
        self.transcript = DIALECTS[dialect](home, cwd, env, clock)
        self.exit_code: int | None = None
        self.columns, self.rows = 200, 50
        self.began = clock()
        self.atoms: list[str | Paste] = []
        self.queue: list[tuple[float, str]] = []
        self.turn: Running | None = None
        self.menus: list[Menu] = []
        self.modal = False
        self.history: list[str] = []
        self.pastes = 0
        self.compacting = False
        self.dirty = True
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._in_paste: bytearray | None = None
        self._pending = b""
        self._last_paste = -1e9
        self._enters_to_swallow = 0
        self._lost = quirks.record_lost_times
        self._typed: list[float] = []
        self._ctrl_c = -1e9
        self._first_chunk = True
        self.ready = False
        self.given: list[tuple[str, str]] = []
        """Ids and texts of a structured client that are not on their way to the model yet."""
        self.taken: Callable[[str, str], None] | None = None
        """A structured client's ear: told each text that is on its way to the model, with its id."""
        self.frozen_until = 0.0
        self.final_words = ""
        log({"launch": argv, "dialect": dialect, "cwd": cwd})
        self._start(argv)

    # -- start

    def _start(self, argv: list[str]) -> None:
        quirks = self.quirks
        wanted, resume = _session_of(self.dialect, argv)
        session = wanted or self._first_session() or f"00000000-0000-4000-8000-{int(self.clock() * 1e3):012d}"
        if not self.transcript.begin(session, resume=resume):
            words = {
                "codex": f"Error: no rollout found for thread id {session}",
                "claude-code": f"No conversation found with session ID: {session}",
            }[self.dialect]
            self.final_words = words
            self._exit(1)
            return
        if resume and quirks.resume_yields and quirks.resume_yields != session:
            old = self.transcript.path
            self.transcript.begin(quirks.resume_yields, resume=False)
            if old is not None and old.exists() and self.transcript.path is not None:
                data = old.read_bytes().replace(session.encode(), quirks.resume_yields.encode())
                self.transcript.path.write_bytes(data)
                self.transcript.begin(quirks.resume_yields, resume=True)
        if quirks.records_nothing:
            self.transcript.silent = True
        self._status()
        for spec in quirks.boot_menus:
            menu = BOOT_MENUS[spec] if isinstance(spec, str) else spec
            self._open(menu, "boot", lambda index, menu=menu: self._boot_choice(menu, index))  # type: ignore[misc]
        self._at(self.began + quirks.boot_s, self._booted)
        if quirks.exits_at_s is not None:
            self._at(self.began + quirks.exits_at_s, lambda: self._exit(quirks.exit_code))
        if quirks.idle_repaint_s is not None:
            self._repaint()

    def _first_session(self) -> str | None:
        """The id that the quirks give to the first session of this home."""
        given = self.quirks.native_session
        if given is None:
            return None
        mark = self._home / ".scripted-first-session"
        if mark.exists():
            return None
        mark.touch()
        return given

    def _booted(self) -> None:
        self.ready = True
        self.dirty = True

    def _boot_choice(self, menu: MenuSpec, index: int) -> None:
        refuses = re.match(r"no\b|exit", menu.options[index], re.IGNORECASE)
        if (index == 0 and menu.on_enter == "exit") or refuses:
            self._exit(0)

    def _repaint(self) -> None:
        self.dirty = True
        assert self.quirks.idle_repaint_s is not None
        self._at(self.clock() + self.quirks.idle_repaint_s, self._repaint)

    # -- time

    def _at(self, at: float, act: Callable[[], None]) -> None:
        self._number += 1
        self._later.append((at, self._number, act))
        self._later.sort(key=lambda item: item[:2])

    def wake_at(self) -> float | None:
        """When `advance` has something to do."""
        return self._later[0][0] if self._later else None

    def advance(self) -> None:
        """Do what is due."""
        while self._later and self._later[0][0] <= self.clock() and self.exit_code is None:
            _, _, act = self._later.pop(0)
            act()
            self.dirty = True

    def _exit(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self.dirty = True
            self.log({"exit": code})

    # -- orders from a test

    def order(self, order: dict[str, Any]) -> None:
        """Do what a test asks: print, menu, exit, clear_menu, type, rotate, freeze (the screen stands still), lose (texts at Enter)."""
        self.log({"order": order["do"]})
        match order["do"]:
            case "print":
                self._say(order["text"])
            case "menu":
                spec = msgspec.convert(order["menu"], MenuSpec)
                kind = order.get("kind", "shown")
                self._open(spec, kind, lambda index: self._boot_choice(spec, index))
            case "clear_menu":
                self.menus.clear()
            case "exit":
                self._exit(order.get("code", 0))
            case "type":
                self.atoms.extend(order["text"])
            case "rotate":
                self.transcript.begin(order["session"], resume=False)
                self._status()
            case "lose":
                self._lost = order["times"]
            case "freeze":
                self.frozen_until = self.clock() + order["seconds"]
                self._at(self.frozen_until, lambda: None)
        self.dirty = True

    def _open(self, spec: MenuSpec, kind: str, chosen: Callable[[int], None]) -> None:
        menu = Menu(spec, spec.selected, kind, chosen)
        self.menus.append(menu)
        if spec.resets_at_s is not None:
            self._at(self.began + spec.resets_at_s, lambda: self._close(menu))

    def _close(self, menu: Menu) -> None:
        if menu in self.menus:
            self.menus.remove(menu)

    # -- a client instead of a keyboard

    def take(self, text: str, given: str) -> None:
        """A text from a structured client, under its id: it reads as no command, and stands in no composer."""
        if self._lost > 0:
            self._lost -= 1
            return
        self.given.append((given, text))
        if not self._busy():
            self.transcript.enqueue(text)
            self.transcript.dequeue([text])
        self._submit(text, as_it_is=True)

    def give_back(self, given: str) -> None:
        """Take a text that is still queued off the queue."""
        text = next((text for own, text in self.given if own == given), None)
        at = next((index for index, (_, queued) in enumerate(self.queue) if queued == text), None)
        if text is not None and at is not None:
            del self.queue[at]
            self.given.remove((given, text))

    def clear_queue(self) -> list[str]:
        """Take all texts off the queue."""
        texts = [text for _, text in self.queue]
        self.queue.clear()
        self.given = [one for one in self.given if one[1] not in texts]
        return texts

    def interrupt(self) -> None:
        """Stop what runs."""
        self._interrupt()

    def compact(self) -> None:
        """Compact the context."""
        self.log({"submit": "/compact", "command": True})
        self._run_command("/compact", "/compact")

    def choose(self, menu: Menu, index: int) -> None:
        """A menu was answered."""
        self._choose(menu, index)

    # -- keyboard

    def feed(self, data: bytes) -> None:
        """What the terminal sends."""
        self.dirty = True
        if (
            self.quirks.drops_first_chunk_when_unbracketed
            and self._in_paste is None
            and PASTE_BEGIN not in data
            and len(data) >= self.quirks.read_chunk
        ):
            return
        data = self._pending + data
        self._pending = b""
        while data and self.exit_code is None:
            if self._in_paste is not None:
                end = data.find(PASTE_END)
                if end < 0:
                    keep = len(PASTE_END) - 1
                    self._in_paste += data[:-keep]
                    self._pending = data[-keep:]
                    return
                self._in_paste += data[:end]
                text = bytes(self._in_paste).decode("utf-8", "replace")
                self._in_paste = None
                data = data[end + len(PASTE_END) :]
                self._pasted(text.replace("\r\n", "\n").replace("\r", "\n"))
            elif data.startswith(PASTE_BEGIN):
                self._in_paste = bytearray()
                data = data[len(PASTE_BEGIN) :]
            else:
                data = self._key(data)

    def _key(self, data: bytes) -> bytes:
        """Take one key off `data`."""
        for sequence, name in KEYS.items():
            if data.startswith(sequence):
                self._pressed(name)
                return data[len(sequence) :]
        if data[0] == 0x1B:
            self._pressed("Escape")
            return data[1:]
        if data[0] < 0x20 or data[0] == 0x7F:
            names = {0x0D: "Enter", 0x0A: "C-j", 0x7F: "BSpace", 0x09: "Tab"}
            self._pressed(names.get(data[0], f"C-{chr(data[0] + 96)}"))
            return data[1:]
        length = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
        if len(data) < length:
            self._pending = data
            return b""
        self._typed_char(data[:length].decode("utf-8", "replace"))
        return data[length:]

    def _pasted(self, text: str) -> None:
        self.log({"paste": len(text.encode()), "bracketed": True})
        if self.menus or self.modal or not self.ready:
            self.log({"eaten": text})
            return
        self._last_paste = self.clock()
        self._enters_to_swallow = self.quirks.swallow_enters
        text = re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", text) if self.dialect == "claude-code" else text
        text = "".join(c for c in text if c in "\n\t" or ord(c) >= 0x20)
        if self.dialect in {"pi", "claude-code"}:
            text = text.replace("\t", "    ")
        lines = text.count("\n")
        if lines >= self.quirks.collapse_lines or len(text) > self.quirks.collapse_chars:
            self.pastes += 1
            label = {
                "pi": f"[paste #{self.pastes} +{lines + 1} lines]"
                if lines
                else f"[paste #{self.pastes} {len(text)} chars]",
                "codex": f"[Pasted Content {len(text)} chars]",
                "claude-code": f"[Pasted text #{self.pastes} +{lines} lines]",
            }[self.dialect]
            self.atoms.append(Paste(text, label))
        else:
            self.atoms.extend(text)

    def _typed_char(self, char: str) -> None:
        if self.modal:
            self.log({"eaten": char})
            return
        if self.menus:
            menu = self.menus[0]
            if menu.spec.numbered and char.isdigit() and 1 <= int(char) <= len(menu.spec.options):
                self._choose(menu, int(char) - 1)
            else:
                self.log({"eaten": char})
            return
        self._typed = [*self._typed[-8:], self.clock()]
        self.atoms.append(char)

    def _pressed(self, key: str) -> None:
        if key != "Enter":
            self.log({"key": key})
        if self.menus:
            self._menu_key(self.menus[0], key)
            return
        if self.modal:
            if key == "Escape":
                self.modal = False
            return
        if not self.ready:
            self.log({"eaten": key})
            return
        match key:
            case "Enter":
                self._enter()
            case "C-j":
                self.atoms.append("\n")
            case "Escape":
                if self._busy():
                    self._interrupt()
            case "C-c":
                self._control_c()
            case "C-u":
                self._kill_line()
            case "BSpace":
                if self.atoms:
                    self.atoms.pop()
            case "M-Up" | "Up":
                if self.queue and (key == "M-Up") == (self.dialect == "pi"):
                    self._take_back()
            case _:
                pass

    def _menu_key(self, menu: Menu, key: str) -> None:
        match key:
            case "Up":
                menu.selected = max(0, menu.selected - 1)
            case "Down":
                menu.selected = min(len(menu.spec.options) - 1, menu.selected + 1)
            case "Enter":
                self._choose(menu, menu.selected)
            case "Escape" if menu.kind == "ask":
                self._choose(menu, len(menu.spec.options) - 1)
            case _:
                pass

    def _choose(self, menu: Menu, index: int) -> None:
        self.log({"chose": menu.spec.options[index], "menu": menu.spec.title})
        self._close(menu)
        menu.chosen(index)

    def _kill_line(self) -> None:
        if self.atoms and self.atoms[-1] == "\n":
            self.atoms.pop()
            return
        while self.atoms and self.atoms[-1] != "\n":
            self.atoms.pop()

    def _control_c(self) -> None:
        if self._busy():
            self._interrupt()
        elif self.atoms:
            self.atoms.clear()
        elif self.quirks.ctrl_c_idle == "exit" or self.clock() - self._ctrl_c < 1.0:
            self._exit(0)
        self._ctrl_c = self.clock()

    @property
    def composed(self) -> str:
        """What stands in the composer, placeholders opened."""
        return "".join([atom.text if isinstance(atom, Paste) else atom for atom in self.atoms])

    def _enter(self) -> None:
        quirks, now = self.quirks, self.clock()
        since_ms = (now - self._last_paste) * 1000
        if since_ms < quirks.enter_newline_ms:
            self.atoms.append("\n")
            return
        burst = quirks.burst
        if burst is not None and self._is_burst(burst, now):
            self.atoms.append("\n")
            return
        if self._enters_to_swallow > 0:
            self._enters_to_swallow -= 1
            return
        if self._busy() and not self._steerable(now):
            return
        text = self.composed
        if not text.strip():
            return
        if self._lost > 0:
            self._lost -= 1
            self.atoms = ["\n", "\n"]
            return
        if not self._command(text):
            self.atoms.clear()
            self._submit(text)

    def _is_burst(self, burst: Burst, now: float) -> bool:
        recent = [at for at in self._typed if (now - at) * 1000 < burst.enter_is_newline_ms]
        pasted = (now - self._last_paste) * 1000 < burst.enter_is_newline_ms
        return pasted or len(recent) >= burst.chars

    def _steerable(self, now: float) -> bool:
        if self.quirks.steer_ack == "refuse":
            return False
        window = self.quirks.not_steerable_between
        if window is None or self.turn is None:
            return True
        return not window[0] <= now - self.turn.began < window[1]

    # -- commands

    def _command(self, text: str) -> bool:
        """Whether the text was a command (it ran, or was refused and stays)."""
        head = text.lstrip() if self.dialect == "pi" else text
        word = head.split(maxsplit=1)[0] if head.split() else ""
        known = COMMANDS[self.dialect]
        if head.startswith("!"):
            self.atoms.clear()
            self.log({"shell": head[1:].strip()})
            self.transcript.shell(head[1:].strip(), "done\n")
            return True
        if not head.startswith("/"):
            return False
        if self.dialect == "pi":
            if head.strip() not in known:
                return False
        elif "/" in word[1:]:
            return False
        elif word not in known:
            if self.dialect == "codex":
                self._say(f"■ Unrecognized command '{word}'")
                return True
            self.atoms.clear()
            self.transcript.unknown_command(word[1:])
            self._say(f"● Unknown command: {word}")
            return True
        self.atoms.clear()
        self.log({"submit": text.strip(), "command": True})
        self._run_command(word, head)
        return True

    def _run_command(self, word: str, text: str) -> None:
        match word:
            case "/quit" | "/exit":
                self._exit(0)
            case "/clear" | "/new":
                fresh = f"00000000-0000-4000-8000-{int(self.clock() * 1e3) + 1:012d}"
                self.transcript.begin(fresh, resume=False)
                self.transcript.command(word[1:], "(no content)")
                self.history.clear()
                self._status()
            case "/compact":
                self.compacting = True
                self._status()
                self._at(self.clock() + self.quirks.compact_s, self._compacted)
            case "/help" if self.dialect == "claude-code":
                self.modal = True
            case _:
                self.transcript.command(word[1:], "ok")
                self._say(text)

    def _compacted(self) -> None:
        self.compacting = False
        self.transcript.compacted()
        if self.quirks.compact_emits_turn_end:
            self.transcript.ended(None)
        self._status()
        self._say("Compacted")
        self._drain()

    # -- a turn

    def _busy(self) -> bool:
        return self.turn is not None or self.compacting

    def _submit(self, text: str, *, as_it_is: bool = False) -> None:
        self.log({"submit": text})
        recorded = text if as_it_is else self._recorded(text)
        if not self._busy():
            self._begin([recorded])
            return
        if self.dialect == "codex" and self.turn is not None and self.turn.tool is None:
            # A message that comes while text streams cuts the answer off and joins the same turn.
            self._consume(recorded)
            self._say_user(recorded)
            self.turn = Running([recorded], self.clock(), self._script(recorded))
            self._next(self.turn)
            return
        self.queue.append((self.clock(), recorded))
        self.transcript.enqueue(recorded)

    def _consume(self, text: str, *, queued: bool = False, absorbed: bool = False) -> None:
        """A text is on its way to the model: write it down."""
        entry = next((one for one in self.given if one[1] == text), None)
        given = None
        if entry is not None:
            self.given.remove(entry)
            given = entry[0]
        if absorbed:
            self.transcript.absorb(text, given=given)
        else:
            self.transcript.user(text, queued=queued, given=given)
        if self.taken is not None:
            self.taken(text, given or "")

    def _recorded(self, text: str) -> str:
        if self.quirks.alters_texts:
            text = text.swapcase()
        if self.dialect != "claude-code":
            return text.strip()
        if text.count("\n") >= 3 or len(text) > 800:
            return f'\n\n<pasted_content id="18dd">\n{text}\n</pasted_content id="18dd">\n'
        return text.rstrip()

    def _begin(self, texts: list[str], *, queued: bool = False, silent: bool = False) -> None:
        turn = Running(list(texts), self.clock(), self._script(texts[-1]))
        turn.quiet_until = self.clock() + self.quirks.silent_think_s
        self.turn = turn
        for text in texts:
            self._say_user(text)
        self._status()

        def record() -> None:
            if not silent:
                self.transcript.began()
                for text in texts:
                    self._consume(text, queued=queued)

        if self.quirks.record_s <= 0 or queued:
            record()
        else:
            self._at(self.clock() + self.quirks.record_s, record)
        if self.quirks.dies_at_s is not None:
            self._at(turn.began + self.quirks.dies_at_s, lambda: self._exit(9))
        if self.quirks.end_signal_at_s is not None:
            self._at(turn.began + self.quirks.end_signal_at_s, lambda: self._look_idle(turn))
        self._next(turn)

    def _look_idle(self, turn: Running) -> None:
        turn.looks_idle = True
        self._status()

    def _script(self, text: str) -> list[Step]:
        quirks = self.quirks
        steps: list[Step] = []
        at = quirks.turn_s
        final: str | None = None
        for found in DIRECTIVE.finditer(text):
            name, arg = found[1], found[2] or ""
            parts = arg.split("|")
            match name:
                case "text":
                    final = arg
                case "seconds":
                    at = float(arg)
                case "think":
                    steps.append(Step(0.05, "think", (arg,)))
                case "say":
                    steps.append(Step(0.05, "say", (arg,)))
                case "tool":
                    takes = float(parts[1]) if len(parts) > 1 else 0.1
                    output = parts[2] if len(parts) > 2 else "done"
                    steps.append(Step(0.05, "tool", (parts[0],)))
                    steps.append(Step(0.05 + takes, "result", (output,)))
                    at = max(at, 0.1 + takes)
                case "slow":
                    steps += [Step(1.0 + index, "word", (f"w{index} ",)) for index in range(int(arg))]
                    at = 1.0 + int(arg)
                    final = "".join(f"w{index} " for index in range(int(arg))) + "SLOWEND"
                case "ask":
                    steps.append(Step(0.05, "ask", tuple(parts)))
                case "err":
                    return [*steps, Step(at, "error", (arg,))]
                case "silent":
                    return steps
                case "crash":
                    return [*steps, Step(at, "crash", (arg or "3",))]
                case _:
                    pass
        if quirks.previous_block is not None:
            steps.append(Step(min(at, 0.05), "say", (quirks.previous_block,)))
        if quirks.final_text is not None:
            final = quirks.final_text
        if final is None:
            final = f"ok {_unwrapped(text)}"
        steps.append(Step(at if quirks.flush_at_s is None else quirks.flush_at_s, "final", (final,)))
        return steps

    def _next(self, turn: Running) -> None:
        if turn.steps:
            step = turn.steps[0]
            self._at(turn.began + step.at + turn.shift, lambda: self._step(turn))

    def _step(self, turn: Running) -> None:
        if turn is not self.turn or not turn.steps:
            return
        step = turn.steps.pop(0)
        transcript = self.transcript
        match step.act:
            case "think":
                transcript.thinking(step.words[0])
            case "say":
                if self.dialect == "claude-code":
                    transcript.answer(step.words[0])
                else:
                    transcript.tool(self._call(turn), "true", step.words[0])
                    self._result(turn, "")
                self._say(f"● {step.words[0]}")
            case "word":
                turn.words.append(step.words[0])
            case "tool":
                transcript.tool(self._call(turn), step.words[0], "")
                self._say(f"$ {step.words[0]}")
            case "result":
                self._result(turn, step.words[0])
                self._after_tool(turn)
            case "ask":
                self._ask(turn, step)
                return
            case "error":
                transcript.failed(int(step.words[0]))
                self._say(f"API Error: {step.words[0]}")
                self._end(turn, None, failed=True)
                return
            case "crash":
                self._exit(int(step.words[0]))
                return
            case _:
                transcript.answer(step.words[0])
                self._say(f"● {step.words[0]}")
                self._end(turn, step.words[0])
                return
        self._next(turn)

    def _call(self, turn: Running) -> str:
        turn.tool = f"call_{self.transcript.new_id()[:12]}"
        return turn.tool

    def _result(self, turn: Running, output: str, *, is_error: bool = False) -> None:
        if turn.tool is not None:
            self.transcript.result(turn.tool, output, is_error=is_error)
            turn.tool = None

    def _after_tool(self, turn: Running) -> None:
        """What was queued reaches the model after a tool."""
        if self.quirks.phantom_riders:
            return
        taken, self.queue = self.queue, []
        for index, (_, text) in enumerate(taken):
            if self.dialect == "pi" and index > 0:
                self.queue = taken[index:]
                break
            self._consume(text, absorbed=self.dialect == "claude-code")
            self._say_user(text)
            final = turn.steps[-1]
            final.words = (f"{final.words[0]} ALSO({_unwrapped(text)})",)

    def _ask(self, turn: Running, step: Step) -> None:
        name, command = (*step.words, "", "")[:2]
        self.transcript.tool(self._call(turn), command, "")
        asked = self.clock()
        spec = MenuSpec(
            "Do you want to proceed?",
            ("Yes", "No, and tell it what to do differently"),
            body=(f"{name} command", f"  {command}"),
        )

        def chosen(index: int) -> None:
            turn.shift += self.clock() - asked
            if index == 0:
                self._result(turn, "done")
            else:
                self._result(turn, "The user doesn't want to proceed with this tool use.", is_error=True)
            self._next(turn)

        self._open(spec, "ask", chosen)

    def _end(self, turn: Running, text: str | None, *, failed: bool = False) -> None:
        self.turn = None
        # Over its own protocol claude writes down no end.
        tells = self.taken is None or self.dialect != "claude-code"
        if not failed and not self.quirks.omit_end_event and tells:
            self.transcript.ended(text)
        if self.quirks.phantom_riders:
            self.queue.clear()
        window = self.quirks.last_poll_at_s
        if window is not None:
            late = [(at, words) for at, words in self.queue if at >= turn.began + window]
            self.queue = [entry for entry in self.queue if entry not in late]
            self._drain()
            self.queue += late
        else:
            self._drain()
        self._status()

    def _drain(self) -> None:
        """Go on with what was queued."""
        if not self.queue or self._busy():
            return
        if self.dialect == "claude-code" and self.quirks.answers_merged:
            texts = [text for _, text in self.queue]
            self.queue.clear()
            self.transcript.dequeue(texts)
            if self.taken is not None and len(texts) > 1:
                texts = [self._joined(texts)]
        else:
            texts = [self.queue.pop(0)[1]]
        self._begin(texts, queued=True)

    def _joined(self, texts: list[str]) -> str:
        """What was queued over the protocol is one row, under the id of the last (retained-clis 4)."""
        last = ""
        for text in texts:
            entry = next((one for one in self.given if one[1] == text), None)
            if entry is not None:
                self.given.remove(entry)
                last = entry[0]
                assert self.taken is not None
                self.taken(text, last)
        joined = "\n".join(texts)
        self.given.append((last, joined))
        return joined

    def _interrupt(self) -> None:
        turn = self.turn
        if turn is None:
            return
        self.menus = [menu for menu in self.menus if menu.kind != "ask"]
        self.turn = None
        self.transcript.interrupted("".join(turn.words), turn.tool)
        self._say("Interrupted")
        self._status()
        if self.dialect == "codex" or self.taken is not None:
            self._drain()
        elif self.queue:
            self._take_back()
        if self.quirks.restores_prompt_on_escape and not turn.words:
            self.atoms.extend(turn.texts[0])

    def _take_back(self) -> None:
        texts = [text for _, text in self.queue]
        self.queue.clear()
        for text in texts:
            self.transcript.took_back(text)
        self.atoms.extend("\n\n".join(texts))

    def hangup(self) -> None:
        """The terminal closed (SIGHUP) or somebody asked it to end (SIGTERM)."""
        turn = self.turn
        if turn is not None and self.dialect == "pi":
            self.transcript.interrupted("".join(turn.words), turn.tool)
        elif turn is not None and self.dialect == "claude-code" and turn.tool is not None:
            self.transcript.result(turn.tool, "Exit code 137", is_error=True)
        self._exit(129)

    # -- screen

    def _status(self) -> None:
        if isinstance(self.transcript, Claude) and not self.quirks.records_nothing:
            self.transcript.status(self.pid, "busy" if self._shows_busy() else "idle")

    def _shows_busy(self) -> bool:
        if self.compacting:
            return True
        turn = self.turn
        return turn is not None and not turn.looks_idle and self.clock() >= turn.quiet_until

    def _say(self, text: str) -> None:
        self.history += ["", *text.split("\n")]
        del self.history[:-HISTORY_LINES]

    def _say_user(self, text: str) -> None:
        mark = {"pi": "", "codex": "› ", "claude-code": "❯ "}[self.dialect]
        first, *rest = _unwrapped(text).strip("\n").split("\n")
        self._say("\n".join([f"{mark}{first}", *(f"  {line}" for line in rest)]))

    @property
    def title(self) -> str:
        """The terminal's title."""
        busy = self._shows_busy() and self.quirks.busy_title
        if self.dialect == "codex":
            return f"{SPINNER[int(self.clock() * 10) % 10]} work" if busy else "work"
        if self.dialect == "claude-code":
            return "◐ Claude Code" if busy else "✳ Claude Code"
        return "π - work"

    def draw(self) -> list[str]:
        """The screen's lines, SGR codes inside; the last of them stand at the bottom."""
        if self.exit_code is not None:
            return [*self.history[-10:], *([self.final_words] if self.final_words else [])]
        if self.modal:
            return [*self.history, "", "  Help", "", "  /clear /compact /quit", "", "  Esc to close"]
        if self.menus:
            return [*self.history, "", *self._draw_menu(self.menus[0])]
        if not self.ready:
            return ["Starting…"]
        return [*self.history, "", *self._draw_composer()]

    def _draw_menu(self, menu: Menu) -> list[str]:
        rule = "─" * 60
        lines = [rule, f" {menu.spec.title}", "", *(f"   {line}" for line in menu.spec.body), ""]
        for index, option in enumerate(menu.spec.options):
            mark = menu.spec.cursor if index == menu.selected else " "
            number = f"{index + 1}. " if menu.spec.numbered else ""
            lines.append(f" {mark} {number}{option}")
        return [*lines, "", " Enter to confirm · Esc to cancel"]

    def _draw_composer(self) -> list[str]:
        text = "".join([atom.label if isinstance(atom, Paste) else atom for atom in self.atoms])
        rows = text.split("\n")
        busy = self._shows_busy()
        rule = self.quirks.composer_rule_char * (self.columns - 1)
        queued = [_unwrapped(words).split("\n")[0] for _, words in self.queue]
        if self.turn is not None and self.turn.words and not self.turn.looks_idle:
            streamed = ["", "● " + "".join(self.turn.words)]
        else:
            streamed = []
        if self.dialect == "pi":
            lines = [*streamed]
            if queued:
                lines += ["", *(f" Steering: {line}" for line in queued)]
                lines += [" ↳ Alt+Up to edit all queued messages"]
            spin = SPINNER[int(self.clock() * 10) % 10]
            top = f"── {spin} Working {rule[14:]}" if busy else rule
            return [
                *lines,
                "",
                top,
                *rows,
                rule,
                "/work",
                "↑50 ↓10 0.0%/128k (auto)     (mock) mock-1 • medium",
            ]
        if self.dialect == "codex":
            lines = [*streamed]
            if self.turn is not None and self.turn.tool is not None and busy:
                lines += ["", "• Working (2s • esc to interrupt)"]
            if queued:
                lines += ["", "• Messages to be submitted after next tool call (press esc to interrupt)"]
                lines += [f"  ↳ {line}" for line in queued]
            first = f"› {rows[0]}" if text else "› \x1b[2mAsk Codex to do anything\x1b[22m"
            return [
                *lines,
                "",
                first,
                *(f"  {row}" for row in rows[1:]),
                "",
                "  mock-1 default · /work",
                "  ? for shortcuts",
            ]
        lines = [*streamed]
        for line in queued:
            lines += ["", f"❯ {line}", "  ⎿  Queued"]
        if busy:
            lines += ["", f"✻ Working… ({int(self.clock() - self._since())}s · ↓ 3 tokens)"]
        hint = "\x1b[2mPress up to edit queued messages\x1b[22m" if queued else ""
        first = f"❯ {rows[0]}" if text else f"❯ {hint}"
        foot = "  ⏵⏵ bypass permissions on (shift+tab to cycle)"
        return [
            *lines,
            "",
            rule,
            first,
            *(f"  {row}" for row in rows[1:]),
            rule,
            foot + (" · esc to interrupt" if busy else ""),
        ]

    def _since(self) -> float:
        return self.turn.began if self.turn is not None else self.clock()


def _session_of(dialect: str, argv: list[str]) -> tuple[str | None, bool]:
    """The session that the arguments name, and whether it must exist."""
    for flag, resume in (("--session-id", False), ("--session", False), ("--resume", True), ("resume", True)):
        if flag in argv and argv.index(flag) + 1 < len(argv):
            return argv[argv.index(flag) + 1], resume and dialect != "pi"
    return None, False


def _unwrapped(text: str) -> str:
    found = re.fullmatch(r'\s*<pasted_content id="[^"]*">\n(.*)\n</pasted_content[^>]*>\s*', text, re.DOTALL)
    return found[1] if found else text


def width_of(line: str) -> int:
    """Cells that a line takes (SGR codes none, wide characters two, combining ones none)."""
    plain = re.sub("\x1b\\[[0-9;]*m", "", line)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in plain
    )


def fit(lines: list[str], columns: int, rows: int) -> list[str]:
    """The last lines that fit on a screen once the terminal has wrapped them."""
    kept: list[str] = []
    left = rows
    for line in reversed(lines):
        need = max(1, -(-width_of(line) // columns))
        if need > left:
            break
        kept.append(line)
        left -= need
    return kept[::-1]
