"""What every dialect needs to put a feed on the wire: call ids, names, well-formed text, files, violations.

A dialect (`provider/anthropic.py` and its siblings) is four pure functions, `encode, decode, classify,
validate`. They share what stands here. Everything is a copy made for one request: the stored message
keeps its original ids, names and characters.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from turnkeeper.conversation.messages import Message, Origin
from turnkeeper.conversation.parts import Attachment, Json, Opaque, Part, ToolCall, ToolResult
from turnkeeper.provider.picture import measure_image

EMPTY_RESULT: Final = "(no output)"
"""Stands for a tool result without a visible character (A12, B5, 1g.3): a word, never a space (A10)."""

EMPTY_MESSAGE: Final = "(empty message)"
"""Stands for a user message that has nothing which this provider takes."""

NAMELESS: Final = "unnamed_tool"
"""Stands for the name of a call that came without one (O9); sanitised names never equal it by accident."""

NAME_CHARS_MAX: Final = 64
"""The shortest limit of a tool's name in any history (A9, B4, M5)."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Violation(msgspec.Struct, frozen=True):
    """A rule that a request body breaks. `rule` is its number in the wire rules (A1, C4 ...)."""

    rule: str
    path: str
    """Where: `messages[3].content[0]`."""
    sentence: str


class LeftOut(msgspec.Struct, frozen=True):
    """Something of a message that was not sent as it stands, with the reason."""

    message_id: str
    rule: str
    what: str
    """thinking | call_id | name | arguments | attachment | result | text | item_id | server_tool | opaque"""
    why: str


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `body` is the provider's own request body, ready to be JSON.

    `calls` holds a pair (id as sent, original id) for each tool call, in the feed's order; ids as sent are
    unique, so the pairs map back. `names` maps each changed tool name (as sent) to the original one.
    """

    dialect: str
    body: dict[str, Any]
    calls: tuple[tuple[str, str], ...] = ()
    names: dict[str, str] = msgspec.field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    @property
    def ids(self) -> dict[str, str]:
        """Id as sent -> original id."""
        return dict(self.calls)

    def to_bytes(self) -> bytes:
        """The body as JSON bytes."""
        return msgspec.json.encode(self.body)


class File(msgspec.Struct, frozen=True):
    """What is known of an attachment's bytes. Without `data` a note is sent in the file's place."""

    data: bytes | None = None
    width: int | None = None
    height: int | None = None


Files = Callable[[Attachment], File | None]
"""Gives the bytes of an attachment, or None when they are gone."""


# --- text


def wellformed(text: str) -> str:
    """`text` without NUL and with each lone surrogate replaced by U+FFFD (A23, 1g.9)."""
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "") if "\0" in text else text


def wellformed_json(value: Json) -> Json:
    """A copy of a JSON value in which every string, keys too, is `wellformed`."""
    if isinstance(value, str):
        return wellformed(value)
    if isinstance(value, dict):
        return {wellformed(str(key)): wellformed_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [wellformed_json(item) for item in value]
    return value


def blank(text: str) -> bool:
    """Whether `text` has no visible character (A10)."""
    return not text or text.isspace()


def compact(value: Json) -> str:
    """`value` as compact JSON text, well-formed. Raises ValueError when it cannot be JSON (too deep)."""
    try:
        data = msgspec.json.encode(value)
        if _holds_nul(data):
            data = msgspec.json.encode(wellformed_json(value))
        return data.decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(wellformed_json(value)).decode()
    except (RecursionError, TypeError, msgspec.MsgspecError) as error:
        raise ValueError("not a JSON value") from error


def unsound_json(body: Json) -> str | None:
    """Why `body` cannot go over the wire as JSON (A23, 1g.9), in a sentence; None if it can."""
    try:
        data = msgspec.json.encode(body)
    except UnicodeEncodeError:
        return "The request body is not valid JSON: no low surrogate in string."
    except (RecursionError, TypeError, msgspec.MsgspecError):
        return "The request body is not valid JSON: it is nested too deeply or holds a value that JSON lacks."
    return "The request body holds a NUL character." if _holds_nul(data) else None


_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def _holds_nul(data: bytes) -> bool:
    """Whether JSON bytes hold an escaped NUL, not just the six characters that spell one."""
    return b"\\u0000" in data and _NUL.search(data) is not None


# --- arguments of tool calls


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments that go on the wire: an object whatever was stored (A8, C5, 1g.6), well-formed."""
    arguments = call.arguments
    if type(arguments) is not dict:
        return {}
    if not arguments:
        return arguments
    try:
        data = msgspec.json.encode(arguments)
    except UnicodeEncodeError:
        return dict(wellformed_json(arguments))
    except (RecursionError, TypeError, msgspec.MsgspecError):
        return {}
    return dict(wellformed_json(arguments)) if _holds_nul(data) else arguments


def arguments_text(call: ToolCall) -> str:
    """The arguments as the JSON text of an object: as it was streamed if it says the same, else anew."""
    arguments = arguments_object(call)
    raw = call.arguments_raw
    if raw and read_arguments(raw) == arguments and "\\u0000" not in raw:
        return wellformed(raw)
    return compact(arguments)


def read_arguments(text: str) -> dict[str, Any] | None:
    """The object that a streamed arguments text holds, or None (cut in the middle, no object, too deep)."""
    if not text:
        return {}
    try:
        value = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return None
    return value if type(value) is dict else None


# --- the body as a whole


def joined_system(instructions: str, more: Iterable[str]) -> str:
    """The instructions and the system messages that a feed begins with, as one text; "" for none."""
    return "\n\n".join(text for text in (wellformed(instructions), *more) if not blank(text))


FEED_FIELDS: Final = ("model", "messages", "input", "contents", "system", "systemInstruction", "instructions")
"""Fields of a body that stand for the conversation itself; options never replace them."""


def lay_over(body: dict[str, Any], options: dict[str, Any]) -> None:
    """Lay the fields of `options["extra"]` over a body, apart from those that are the conversation."""
    extra = options.get("extra")
    if isinstance(extra, dict):
        body.update({name: value for name, value in extra.items() if name not in FEED_FIELDS})


# --- ids and names


KEPT_IDS: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
"""What all providers take but old Mistral models (A7, C4, O6); those re-mint ids themselves."""


class CallIds:
    """The ids of tool calls in one request: unique, in the provider's shape, mapped back to the original.

    An original id that the provider takes and that was not used before is kept, so that a received block
    goes back unchanged. Any other is minted from the original and how often it came before: the same
    prefix of a feed always gets the same ids, whatever is appended to it.
    """

    def __init__(self, keep: re.Pattern[str], length: int) -> None:
        self._keep = keep
        self._length = length
        self._used: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        self._open: dict[str, deque[str]] = {}
        self._open_count = 0

    def open_batch(self) -> None:
        """A new assistant message: results from here on answer its calls only (A2)."""
        if self._open:
            self._open = {}

    def call(self, original: str) -> str:
        """The id to send for a call whose own id is `original`; the call is open now."""
        nth = self._seen.get(original, 0)
        self._seen[original] = nth + 1
        wire = original
        if nth or original in self._used or not self._keep.match(original):
            turn = 0
            wire = self._mint(original, nth, turn)
            while wire in self._used:
                turn += 1
                wire = self._mint(original, nth, turn)
        self._used[wire] = original
        waiting = self._open.get(original)
        if waiting is None:
            self._open[original] = deque((wire,))
        else:
            waiting.append(wire)
        return wire

    def result(self, original: str) -> str | None:
        """The id to send for a result of the call `original`, or None if no such call is open."""
        waiting = self._open.get(original)
        if not waiting:
            return None
        return waiting.popleft()

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(id as sent, original id) in order."""
        return tuple(self._used.items())

    def _mint(self, original: str, nth: int, turn: int) -> str:
        seed = f"{turn}\0{nth}\0{original}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.blake2b(seed, digest_size=32).digest(), "big")
        digits = []
        for _ in range(self._length):
            number, digit = divmod(number, 62)
            digits.append(_BASE62[digit])
        return "".join(digits)


class Names:
    """Tool names on the wire: letters, digits, _ and -, at most 64 (B4, M5), in definitions and history alike.

    `letter_first` is for Gemini, where a name begins with a letter or _.
    """

    def __init__(self, *, letter_first: bool = False) -> None:
        self._letter_first = letter_first
        self.changed: dict[str, str] = {}

    def wire(self, name: str) -> str:
        """The name to send for `name`; the same for ever, whatever else is in the request."""
        odd = self._letter_first and not (name[:1].isalpha() or name[:1] == "_")
        if not odd and _NAME.match(name):
            return name
        wire = sanitise_name(name, "_" if odd and name else "")
        self.changed[wire] = name
        return wire


def sanitise_name(name: str, before: str = "") -> str:
    """`name` in the alphabet of the wire, with a mark of the original so that two never become one."""
    if not name:
        return NAMELESS
    mark = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{(before + _NOT_IN_NAME.sub('_', name))[: NAME_CHARS_MAX - 9]}_{mark}"


# --- provider-bound data


def is_bound_here(message: Message, origin: Origin) -> bool:
    """Whether the message's blocks, signatures and item ids may go to `origin` (1g.8)."""
    return message.origin is not None and message.origin == origin


def read_block(part: Part) -> dict[str, Any] | None:
    """The provider's own block that `part` was read from, or None if none was kept."""
    raw = getattr(part, "block", msgspec.UNSET)
    if not isinstance(raw, msgspec.Raw):
        return None
    try:
        block = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return block if isinstance(block, dict) and not _holds_nul(bytes(raw)) else None


def raw_block(block: Json) -> msgspec.Raw:
    """A received block as it is kept: compact JSON, keys in the order they came.

    A lone surrogate, which JSON in UTF-8 cannot hold, becomes U+FFFD: such a block could not go back as it
    came anyhow (A23).
    """
    try:
        data = msgspec.json.encode(block)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_without_lone_surrogates(block))
    # The codec's mark for odd characters must not stand in raw JSON.
    return msgspec.Raw(data.replace("\ue000".encode(), b"\\ue000"))


def user_block(message: Message, part: Part, origin: Origin) -> dict[str, Any] | None:
    """A block on the user's side that we do not know ourselves and that came from this very origin."""
    return read_block(part) if type(part) is Opaque and is_bound_here(message, origin) else None


def _without_lone_surrogates(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_lone_surrogates(key): _without_lone_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    return value


# --- results and files


def result_pieces(result: ToolResult, files: Files | None = None) -> Iterable[tuple[str, Json]]:
    """A tool result's content as pieces: ("text", str) and ("image", {media_type, data base64[, big]}).

    A file that is kept beside the journal ({type: attachment, attachment_id, ...}) is read by `files`.

    Content is text, or a list of parts as the tool gave them: MCP's {type: text|image|resource ...},
    Anthropic's own blocks, or any JSON, which is sent as its JSON text.
    """
    content = result.content
    if type(content) is str:
        yield "text", content
        return
    if content is None:
        return
    if not isinstance(content, list | tuple):
        yield "text", _json_text(content)
        return
    for piece in content:
        if isinstance(piece, str):
            yield "text", piece
        elif isinstance(piece, dict) and piece.get("type") == "text" and isinstance(piece.get("text"), str):
            yield "text", piece["text"]
        elif isinstance(piece, dict) and (image := _image_of(piece)) is not None:
            yield "image", image
        elif (attachment := attachment_of(piece)) is not None:
            fit = fit_attachment(attachment, files)
            if fit.kind == "image":
                big = attachment if fit.big else None
                yield "image", {"media_type": fit.media_type, "data": fit.value, "big": big}
            elif fit.kind == "pdf":
                yield "text", _note(attachment, attachment.name, "results hold words and images only")
            else:
                yield "text", fit.value
        else:
            yield "text", _json_text(piece)


def attachment_of(piece: Json) -> Attachment | None:
    """The attachment that a piece of a result is, if it is one."""
    if not isinstance(piece, dict) or piece.get("type") != "attachment":
        return None
    try:
        return msgspec.convert(piece, Attachment)
    except msgspec.ValidationError:
        return None


def result_text(result: ToolResult) -> str:
    """A tool result as one text, never blank: what providers get that take only text."""
    content = result.content
    if type(content) is str:
        text = content
    else:
        text = "\n".join(
            str(value) if kind == "text" else f"[image {value['media_type']} left out: text only here]"
            for kind, value in result_pieces(result)
        )
    return EMPTY_RESULT if blank(text) else wellformed(text)


def _json_text(value: Json) -> str:
    try:
        return compact(value)
    except ValueError:
        return "[a value that is too deep to be sent]"


def _image_of(piece: dict[str, Any]) -> dict[str, str] | None:
    if piece.get("type") != "image":
        return None
    source = piece.get("source")
    if isinstance(source, dict) and source.get("type") == "base64":
        media_type, data = source.get("media_type"), source.get("data")
    else:
        media_type, data = piece.get("mimeType"), piece.get("data")
    if isinstance(media_type, str) and isinstance(data, str) and data:
        return {"media_type": media_type, "data": data}
    return None


IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/x-yaml", "application/toml")
IMAGE_SIDE_MAX: Final = 8000
"""Pixels a side (A22)."""
IMAGE_SIDE_MAX_MANY: Final = 2000
"""Pixels a side once a request holds several images (A22; the exact number of "many" is not public)."""
IMAGE_BYTES_MAX: Final = 5_000_000
"""Bytes of one image in base64: the smallest published limit among the providers."""
TEXT_FILE_BYTES_MAX: Final = 200_000
"""Bytes of a text file that are sent as words."""


class Fit(msgspec.Struct, frozen=True):
    """How an attachment goes out: as an image, a PDF, words, or a note that says why not."""

    kind: str
    """image | pdf | text | note"""
    value: str
    """base64 for image and pdf, words otherwise."""
    media_type: str = ""
    big: bool = False
    """An image that may stand alone in a request but not among several."""


def fit_attachment(part: Attachment, files: Files | None) -> Fit:
    """What can be sent of `part`; never raises, never sends what would be refused for its size."""
    label = wellformed(part.name or part.attachment_id)
    if part.transcript:
        return Fit("text", f"[recording {label}] {wellformed(part.transcript)}")
    file = files(part) if files is not None else None
    if file is None or file.data is None:
        return Fit("note", _note(part, label, "its bytes are not at hand"))
    data = file.data
    if part.media_type in IMAGE_TYPES:
        size = measure_image(data)
        width, height = size if size is not None else (file.width or 0, file.height or 0)
        side = max(width, height)
        if side > IMAGE_SIDE_MAX:
            return Fit("note", _note(part, label, f"{side} pixels a side; the limit is {IMAGE_SIDE_MAX}"))
        encoded = base64.b64encode(data).decode()
        if len(encoded) > IMAGE_BYTES_MAX:
            return Fit("note", _note(part, label, f"larger than {IMAGE_BYTES_MAX} bytes in base64"))
        return Fit("image", encoded, part.media_type, big=side > IMAGE_SIDE_MAX_MANY)
    if part.media_type == "application/pdf":
        return Fit("pdf", base64.b64encode(data).decode(), part.media_type)
    if part.media_type.startswith(TEXT_TYPES):
        words = data[:TEXT_FILE_BYTES_MAX].decode("utf-8", "replace")
        cut = f"\n[cut after {TEXT_FILE_BYTES_MAX} bytes]" if len(data) > TEXT_FILE_BYTES_MAX else ""
        return Fit("text", f"[file {label}]\n{wellformed(words)}{cut}")
    return Fit("note", _note(part, label, "this kind of file cannot be read by the model"))


def _note(part: Attachment, label: str, why: str) -> str:
    return f"[attachment {label} ({part.media_type}, {part.size_bytes} bytes) is not shown to you: {why}]"


def kind_note(part: Attachment) -> str:
    """Stands for a file of a kind that the provider at hand does not take."""
    label = wellformed(part.name or part.attachment_id)
    return _note(part, label, "this kind of file is not taken by this provider")


def big_image_note(part: Attachment) -> str:
    """Stands for an image that is too large to be one of several (A22)."""
    label = wellformed(part.name or part.attachment_id)
    return _note(part, label, f"more than {IMAGE_SIDE_MAX_MANY} pixels a side among several images")
