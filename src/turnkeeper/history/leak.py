"""Finds tool-call markup that leaked into a model's text, in a whole message or while it streams.

A serving-side parser that misses a call hands its markup on as words: nothing runs, the person believes that
work was done, and replaying the text teaches the model the broken form (seed 004; provider-wire-rules
section 2). `find_leak` judges a stored message; `LeakScanner` reads chunks, tells how many characters may
already be shown, and gives the same verdict at the end. Dialects are data: `DIALECTS`.

Not a leak: markup in a fence, in inline code, in a quoted or indented block; markup that the user asked
for; markup beside a real call. The strongest sign of one is a stop for tool use without any call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from turnkeeper.conversation.messages import Message
from turnkeeper.conversation.parts import Text, ToolCall

EVIDENCE_CHARS: Final = 200
"""How far behind a marker its evidence may stand; a stream is held back at most so long for a false alarm."""

TOOL_STOPS: Final = frozenset({"tool_use", "tool_calls", "function_call"})
"""Stop reasons that promise a call."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write a call as text. Bars of any kind are read as `|`, U+2581 as `_`."""

    name: str
    heads: tuple[str, ...]
    """What the markup begins with, word for word."""
    evidence: str = ""
    """A pattern that must follow a head; a head alone may be part of a sentence about it."""
    evidence_chars: int = 1
    """How much text the pattern needs for a sure answer."""
    ends: bool = True
    """Whether a head at the very end of the text, or followed only by blanks, is evidence enough."""
    starts_text: bool = False
    """Heads count only as the first characters of the text."""
    after: tuple[str, ...] = ()
    """Stray words that may stand on a line of their own just before; they belong to the leak."""
    alone: bool = True
    """Whether a head counts without a stray word before it."""
    mentions: tuple[str, ...] = ()
    """Words of a user that ask for such markup."""


_NOT_PROSE = r"""(?![ \t]\w|["'”’»)`,.;:?!])"""
"""Behind a control token: anything but the rest of a sentence about it."""
_STRAY = ("court", "count", "call")

DIALECTS: Final = (
    Dialect(
        name="invoke",
        heads=(
            "<invoke name=",
            "<antml:invoke name=",
            "<antml:parameter name=",
            "<steptml:invoke name=",
            "<xai:function_call name=",
        ),
        evidence=r"""["'][^"'\n]{1,150}["'][^>\n]{0,40}>""",
        ends=False,
        after=_STRAY,
        mentions=("<invoke", "invoke tag", "invoke block", "invoke element", "<parameter", "function_calls"),
    ),
    Dialect(
        name="invoke",
        heads=("<parameter name=",),
        evidence=r"""["'][^"'\n]{1,150}["'][^>\n]{0,40}>""",
        ends=False,
        after=_STRAY,
        alone=False,
        mentions=("<invoke", "<parameter"),
    ),
    Dialect(
        name="invoke",
        heads=("<function_calls>", "<antml:function_calls>", "</invoke>", "</antml:invoke>"),
        evidence=r"\s*(?:</?(?:antml:)?(?:invoke|function_calls|parameter)|[\w.]{1,64}\()",
        after=_STRAY,
        mentions=("<invoke", "invoke tag", "function_calls"),
    ),
    Dialect(
        name="tool_call",
        heads=(
            "<tool_call>",
            "<tool_calls>",
            "<|tool_call>",
            "<minimax:tool_call>",
            "<seed:tool_call>",
            "<longcat_tool_call>",
            "<TOOLCALL>",
            "<tool_code>",
        ),
        # A name stands right behind its tag or on the next line: behind a blank it is the rest of a sentence.
        evidence=r"\s*(?:\{|\[|<(?:tool_call|function=|arg_key|longcat_arg_key|invoke|parameter))|(?:[ \t]*\n\s*)?[\w.:-]{1,64}[ \t]*(?:\n|<|\{|\()",
        mentions=("tool_call", "tool call tag", "tool-call tag", "tool call markup", "tool-call markup"),
    ),
    Dialect(
        name="tool_call",
        heads=("</tool_call>", "</tool_calls>", "</minimax:tool_call>", "</seed:tool_call>", "</TOOLCALL>"),
        evidence=r"\s*</?tool_call",
        mentions=("tool_call", "tool call tag", "tool-call tag"),
    ),
    Dialect(
        name="arg_key",
        heads=("<arg_key>", "<arg_value>"),
        evidence=r"[^<\n]{1,150}</arg_",
        ends=False,
        mentions=("arg_key", "arg_value"),
    ),
    Dialect(
        name="function",
        heads=("<function=", "<parameter="),
        evidence=r"[\w.:-]{1,100}>",
        ends=False,
        mentions=("<function=", "function= tag", "<parameter="),
    ),
    Dialect(
        name="function_call",
        heads=("<function_call>", "<tool_use>", "<start_function_call>"),
        evidence=r"\s*(?:\{|<|call:)",
        mentions=("function_call", "tool_use"),
    ),
    Dialect(
        name="dsml",
        heads=("<|DSML|", "<||DSML||", "</|DSML|", "</||DSML||", "<| DSML |", "<|| DSML ||"),
        evidence=r"\s*\w",
        mentions=("dsml",),
    ),
    Dialect(
        name="deepseek",
        heads=("<|tool_calls_begin|>", "<|tool_call_begin|>", "<|tool_sep|>", "<|tool_outputs_begin|>"),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("tool_calls_begin", "tool_call_begin", "tool_sep", "tool▁call"),
    ),
    Dialect(
        name="kimi",
        heads=("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("tool_calls_section", "tool_call_argument"),
    ),
    Dialect(
        name="kimi",
        heads=("<|open|>", "<|sep|>", "<|close|>"),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("<|open|>", "<|sep|>"),
    ),
    Dialect(
        name="harmony",
        heads=("<|channel|>", "<|start|>", "<|message|>", "<|call|>", "<|constrain|>"),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("harmony", "<|channel", "<|start", "<|message", "<|call"),
    ),
    Dialect(
        name="harmony",
        heads=("assistantfinal", "assistantcommentary", "assistantanalysis", "commentary to=functions."),
        evidence=r"""[A-Z<"'*#\d\s-]""",
        mentions=("harmony", "assistantfinal", "assistantcommentary"),
    ),
    Dialect(
        name="harmony",
        heads=("analysis",),
        evidence=r"[A-Z]",
        ends=False,
        starts_text=True,
        mentions=("harmony",),
    ),
    Dialect(
        name="mistral",
        heads=("[TOOL_CALLS]",),
        evidence=r"\s*(?:\[|\{|[\w.-]{1,64}\s*(?:\[ARGS\]|\[CALL_ID\]|\{))",
        mentions=("tool_calls",),
    ),
    Dialect(
        name="llama",
        heads=("<|python_tag|>", "<|python_start|>"),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("python_tag", "python_start"),
    ),
    # The token with which others begin a call: Granite and Phi, LFM, Cohere, InternLM, Apertus, Functionary.
    Dialect(
        name="token",
        heads=(
            "<|tool_call|>",
            "<|tool_call_start|>",
            "<|START_ACTION|>",
            "<|action_start|>",
            "<|tools_prefix|>",
            "<|recipient|>",
        ),
        evidence=_NOT_PROSE,
        evidence_chars=2,
        mentions=("<|tool_call", "START_ACTION", "action_start", "tools_prefix", "<|recipient"),
    ),
)


class Leak(msgspec.Struct, frozen=True):
    """Markup in a text: its dialect, and where it begins."""

    dialect: str
    start: int


class _Head(msgspec.Struct, frozen=True):
    text: str
    dialect: Dialect
    evidence: re.Pattern[str]
    at_line_start: bool = False


_NONE, _WAIT, _LEAK = 0, 1, 2
_FENCED = -1
"""What `_scan_ticks` says when ticks began a fence."""

_BARS = str.maketrans({"｜": "|", "‖": "|", "▁": "_"})


def _make_heads() -> tuple[_Head, ...]:
    heads = []
    for dialect in DIALECTS:
        evidence = re.compile(dialect.evidence)
        for head in dialect.heads:
            if dialect.alone:
                heads.append(_Head(head, dialect, evidence))
            heads += [
                _Head(word + gap + head, dialect, evidence, at_line_start=True)
                for word in dialect.after
                for gap in ("\n", "\n\n")
            ]
    return tuple(heads)


_HEADS = _make_heads()
_BY_FIRST: dict[str, tuple[_Head, ...]] = {
    first: tuple(head for head in _HEADS if head.text[0] == first) for first in {h.text[0] for h in _HEADS}
}
_WORD_HEADS = tuple(h.text for h in _HEADS if h.text[0].isalpha() and not h.at_line_start)
_STOPS = re.compile(r"[`<\[\n]|assistant(?=final|commentary|analysis)|commentary(?= to=functions\.)")
_ITEM = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)+")
"""What stands before a fence that begins an item of a list."""
_LINE_START_CHARS_MAX = 400
_ITEM_CHARS_MAX = 40


def may_hold_markup(text: str) -> bool:
    """A fast look: False means that there is certainly no markup in `text`."""
    return (
        "<" in text
        or "[TOOL_CALLS]" in text
        or "assistantfinal" in text
        or "assistantcommentary" in text
        or "assistantanalysis" in text
        or "commentary to=" in text
        or text.startswith("analysis")
    )


def clean_tool_name(name: str) -> str:
    """A tool's name without control tokens that leaked into it: `search<|channel|>commentary` -> `search`."""
    cut = name.translate(_BARS).find("<|")
    return name if cut < 0 else name[:cut].rstrip(". ")


def is_asked_for(dialect: str, asked: str) -> bool:
    """Whether the user's words ask for markup of this dialect."""
    words = asked.translate(_BARS).casefold()
    return any(
        mention.casefold() in words
        for known in DIALECTS
        if known.name == dialect
        for mention in known.mentions
    )


def find_leak(message: Message, *, asked: str = "") -> Leak | None:
    """The leak in an assistant's message, or None. `asked` is what the user had said before it."""
    if [1 for part in message.parts if type(part) is ToolCall]:
        return None
    text = "".join([part.text for part in message.parts if type(part) is Text])
    return find_leak_in(text, asked=asked, stop_reason=message.stop_reason)


def find_leak_in(text: str, *, asked: str = "", stop_reason: str | None = None) -> Leak | None:
    """The leak in the whole text of an answer without calls."""
    if not may_hold_markup(text):
        return None
    scanner = LeakScanner(asked=asked)
    scanner.feed(text)
    return scanner.finish(has_calls=False, stop_reason=stop_reason)


class LeakScanner:
    """Reads a model's text as it streams. One per answer; its memory is one line and what is held back.

    `feed` returns how many characters of the whole text may be shown; the number never goes down. What is
    held back is either shown after a verdict of None, or never.
    """

    def __init__(self, *, asked: str = "") -> None:
        self._asked = asked
        self._raw = ""
        """Text that is not decided yet, bars made even."""
        self._base = 0
        """Place of `_raw[0]` in the whole text."""
        self._found: Leak | None = None
        self._in_open_fence: Leak | None = None
        """Markup inside the fence that is open now: fenced, unless the fence never closes."""
        self._line_start = True
        self._line_head = ""
        """The line so far, while inside a fence, and where it begins."""
        self._line_at = 0
        self._blank_before = False
        self._code_line = False
        self._fence = ""
        self._line_so_far = ""
        """The beginning of the line as far as it was taken."""
        self._skipping = False
        """Inside a quoted or indented line."""
        self._ended = False

    @property
    def released(self) -> int:
        """How many characters of the text may be shown."""
        return self._base if self._found is None else min(self._base, self._found.start)

    def feed(self, chunk: str) -> int:
        """Take more text; the number of characters of the whole text that may be shown now."""
        if self._found is None and chunk:
            self._raw += chunk.translate(_BARS)
            self._scan()
        return self.released

    def finish(self, *, has_calls: bool = False, stop_reason: str | None = None) -> Leak | None:
        """The verdict on the whole text; with None all of it may be shown."""
        self._ended = True
        if self._found is None:
            self._scan()
        promised = stop_reason in TOOL_STOPS
        found = self._found
        if found is None and promised and self._fence:
            found = self._in_open_fence
        if found is None or has_calls:
            return None
        if not promised and is_asked_for(found.dialect, self._asked):
            return None
        return found

    # -- the machine

    def _take(self, count: int) -> None:
        taken, self._raw = self._raw[:count], self._raw[count:]
        self._base += count
        line = taken.rfind("\n") + 1
        if line:
            self._line_so_far = taken[line : line + _ITEM_CHARS_MAX + 1]
        elif len(self._line_so_far) <= _ITEM_CHARS_MAX:
            self._line_so_far += taken[: _ITEM_CHARS_MAX + 1]

    def _begins_item(self, at: int) -> bool:
        """Whether nothing stands in this line before `at` but what begins an item of a list."""
        before = self._line_so_far + self._raw[: min(at, _ITEM_CHARS_MAX + 1)]
        return len(before) <= _ITEM_CHARS_MAX and _ITEM.fullmatch(before) is not None

    def _scan(self) -> None:
        while self._raw and self._found is None:
            if self._fence:
                moved = self._scan_fence()
            elif self._skipping:
                moved = self._scan_skipped()
            elif self._line_start:
                moved = self._scan_line_start()
            else:
                moved = self._scan_line()
            if not moved:
                return

    def _scan_fence(self) -> bool:
        end = self._raw.find("\n")
        piece = self._raw if end < 0 else self._raw[: end + 1]
        if not self._line_head:
            self._line_at = self._base
        if len(self._line_head) < _LINE_START_CHARS_MAX:
            self._line_head = (self._line_head + piece)[:_LINE_START_CHARS_MAX]
        if end >= 0 or self._ended:
            self._end_fenced_line()
        self._take(len(piece))
        return True

    def _end_fenced_line(self) -> None:
        """Judge a whole line inside a fence: does it close the fence, or begin markup that would be a leak?"""
        line = self._line_head.strip()
        mark = self._fence[0]
        if line and line[0] == mark and len(line) >= len(self._fence) and not line.strip(mark):
            self._fence, self._in_open_fence = "", None
        elif self._in_open_fence is None:
            places = [
                (self._line_head.find(head.text), head.dialect.name)
                for head in _HEADS
                if not head.at_line_start and not head.dialect.starts_text
            ]
            found = [place for place in places if place[0] >= 0]
            if found:
                at, name = min(found, key=lambda place: place[0])
                self._in_open_fence = Leak(name, self._line_at + at)
        self._line_head = ""
        self._line_start, self._blank_before, self._code_line = True, False, False

    def _scan_skipped(self) -> bool:
        end = self._raw.find("\n")
        if end < 0:
            self._take(len(self._raw))
            return False
        self._take(end + 1)
        self._skipping, self._line_start = False, True
        return True

    def _scan_line_start(self) -> bool:
        raw = self._raw
        indent = len(raw) - len(raw.lstrip(" \t"))
        rest = raw[indent : indent + 4]
        if not rest:
            if not self._ended and indent < _LINE_START_CHARS_MAX:
                return False
            self._take(indent)
            return True
        if rest[0] == "\n":
            self._take(indent + 1)
            self._blank_before = True
            return True
        indented = indent >= 4 or "\t" in raw[:indent]
        if indented and (self._code_line or (self._blank_before and self._base > 0)):
            self._code_line, self._skipping = True, True
            return True
        self._code_line = self._blank_before = False
        if rest[0] == ">":
            self._skipping = True
            return True
        if rest[0] in "`~":
            run = len(raw) - indent - len(raw[indent:].lstrip(rest[0]))
            if indent + run == len(raw) and not self._ended and run < _LINE_START_CHARS_MAX:
                return False
            if run >= 3:
                end = raw.find("\n", indent)
                if end < 0 and not self._ended:
                    return False
                line = raw[indent + run :] if end < 0 else raw[indent + run : end]
                if rest[0] == "~" or "`" not in line:
                    self._fence = rest[0] * run
                    self._line_head = ""
                    self._take(len(raw) if end < 0 else end + 1)
                    return True
        verdicts = {self._weigh(h, indent) for h in _BY_FIRST.get(rest[0], ()) if h.at_line_start}
        if _LEAK in verdicts or _WAIT in verdicts:
            return False
        self._line_start = False
        self._take(indent)
        return True

    def _scan_line(self) -> bool:
        raw = self._raw
        at = 0
        while at < len(raw):
            stop = _STOPS.search(raw, at)
            if self._base == 0 and at == 0 and (raw.startswith("analysis") or "analysis".startswith(raw)):
                verdict = self._judge(0)
            elif stop is None:
                keep = self._partial_word(raw, at)
                self._take(keep)
                return False
            else:
                at = stop.start()
                char = raw[at]
                if char == "\n":
                    self._take(at + 1)
                    self._line_start = True
                    return True
                if char == "`":
                    verdict = self._scan_ticks(at)
                    if verdict > 0:
                        at = verdict
                        continue
                    return verdict == _FENCED
                verdict = self._judge(at)
            if verdict == _LEAK:
                return False
            if verdict == _WAIT:
                self._take(at)
                return False
            at += 1
        self._take(len(raw))
        return False

    def _partial_word(self, raw: str, at: int) -> int:
        """How much of `raw` can be decided when nothing was found behind `at`."""
        if self._ended:
            return len(raw)
        for length in range(min(len(raw) - at, 30), 0, -1):
            tail = raw[len(raw) - length :]
            for head in _WORD_HEADS:
                if len(tail) < len(head) and head.startswith(tail):
                    return len(raw) - length
        return len(raw)

    def _scan_ticks(self, at: int) -> int:
        """Inline code from `at`: the place behind it, or 0 when more text is needed (all before is taken).

        _FENCED when the ticks begin a fence, as the first thing of an item of a list; then its line is taken.
        """
        raw = self._raw
        run = len(raw) - at - len(raw[at:].lstrip("`"))
        if at + run == len(raw) and not self._ended:
            self._take(at)
            return 0
        ticks = raw[at : at + run]
        line_end = raw.find("\n", at)
        limit = len(raw) if line_end < 0 else line_end
        if run >= 3 and "`" not in raw[at + run : limit] and self._begins_item(at):
            if line_end < 0 and not self._ended:
                self._take(at)
                return 0
            self._fence, self._line_head = ticks, ""
            self._take(len(raw) if line_end < 0 else line_end + 1)
            return _FENCED
        close = at + run
        while True:
            close = raw.find(ticks, close, limit)
            if close < 0:
                break
            length = limit - close - len(raw[close:limit].lstrip("`"))
            if length == run:
                if close + run == len(raw) and not self._ended:
                    self._take(at)
                    return 0
                return close + run
            close += length
        if line_end < 0 and not self._ended:
            self._take(at)
            return 0
        return at + run

    def _judge(self, at: int) -> int:
        """Whether markup begins at `at`: _LEAK, _NONE, or _WAIT for more text."""
        wait = False
        for head in _BY_FIRST.get(self._raw[at], ()):
            if head.at_line_start or (head.dialect.starts_text and self._base + at > 0):
                continue
            verdict = self._weigh(head, at)
            if verdict == _LEAK:
                return _LEAK
            wait = wait or verdict == _WAIT
        return _WAIT if wait else _NONE

    def _weigh(self, head: _Head, at: int) -> int:
        raw = self._raw
        text = head.text
        if not raw.startswith(text, at):
            if not self._ended and len(raw) - at < len(text) and text.startswith(raw[at:]):
                return _WAIT
            return _NONE
        after = at + len(text)
        window = raw[after : after + EVIDENCE_CHARS]
        enough = self._ended or len(window) >= head.dialect.evidence_chars
        if window and enough and head.evidence.match(window) is not None:
            self._found = Leak(head.dialect.name, self._base + at)
            return _LEAK
        if self._ended:
            if head.dialect.ends and not window.strip():
                self._found = Leak(head.dialect.name, self._base + at)
                return _LEAK
            return _NONE
        return _WAIT if len(window) < EVIDENCE_CHARS else _NONE


def scan_chunks(chunks: Iterable[str], *, asked: str = "") -> tuple[Leak | None, int]:
    """The verdict on a stream without calls, and how many characters were shown before it."""
    scanner = LeakScanner(asked=asked)
    shown = 0
    for chunk in chunks:
        shown = scanner.feed(chunk)
    return scanner.finish(), shown
