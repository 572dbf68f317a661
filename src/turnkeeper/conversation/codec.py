"""JSON to and from the nouns: one encoder, one decoder per event kind, made once.

Text keeps every character that was sent. UTF-8 cannot hold a lone surrogate (wire rule A23), so one is
written as U+E000 (private use) and four hex digits; U+E000 itself is written the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from turnkeeper.conversation.events import KINDS, Body, Unknown
from turnkeeper.conversation.messages import Message

T = TypeVar("T")

_MARK_BYTES = b"\xee\x80\x80"
_MARK_BYTE = b"\xee"
"""The first byte of a mark: looking for one byte is 40 times as fast as for three."""

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()
}
_message_decoder = msgspec.json.Decoder(Message)


def _escape(text: str) -> str:
    return "".join([f"\ue000{ord(c):04x}" if c == "\ue000" or "\ud800" <= c <= "\udfff" else c for c in text])


def _unescape(text: str) -> str:
    head, *rest = text.split("\ue000")
    return head + "".join([chr(int(piece[:4], 16)) + piece[4:] for piece in rest])


def make_encodable(value: Any) -> Any:
    """A copy of a builtin JSON value whose strings survive UTF-8 (see `restore`)."""
    if isinstance(value, str):
        return _escape(value)
    if isinstance(value, dict):
        return {make_encodable(k): make_encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [make_encodable(v) for v in value]
    return value


def restore(value: Any) -> Any:
    """The value that `make_encodable` was given."""
    if isinstance(value, str):
        return _unescape(value) if "\ue000" in value else value
    if isinstance(value, dict):
        return {restore(k): restore(v) for k, v in value.items()}
    if isinstance(value, list):
        return [restore(v) for v in value]
    return value


def _with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a noun or builtin value with every string changed.

    Raw JSON is left alone, apart from U+E000, which becomes its six-character escape: the same JSON
    value, and never taken for a mark.
    """
    kind = type(value)
    if kind is str:
        return change(value)
    if kind is msgspec.Raw:
        data = bytes(value)
        return msgspec.Raw(data.replace(_MARK_BYTES, b"\\ue000")) if _MARK_BYTES in data else value
    if kind is dict:
        return {_with_strings(k, change): _with_strings(v, change) for k, v in value.items()}
    if kind is list or kind is tuple:
        return kind([_with_strings(item, change) for item in value])
    if isinstance(value, msgspec.Struct):
        return kind(**{f: _with_strings(getattr(value, f), change) for f in value.__struct_fields__})
    return value


def encode(value: Any) -> bytes:
    """JSON bytes of a noun or a builtin value; any text whatever is kept."""
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_with_strings(value, _escape))
    if _MARK_BYTE in data and _MARK_BYTES in data:
        return _encoder.encode(_with_strings(value, _escape))
    return data


def decode(data: bytes, kind: type[T]) -> T:
    """The noun of type `kind` that `encode` was given. Raises msgspec.ValidationError or DecodeError."""
    value = msgspec.json.decode(data, type=kind)
    return cast("T", _with_strings(value, _unescape)) if _MARK_BYTE in data and _MARK_BYTES in data else value


def wire(value: Any) -> bytes:
    """JSON bytes for the outside: valid UTF-8 whatever the text; a lone surrogate goes as its own escape."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # By way of our own escapes, because a provider's block stands in it as it came.
        plain = _with_strings(json.loads(_encoder.encode(_with_strings(value, _escape))), _unescape)
        return json.dumps(plain, separators=(",", ":")).encode("ascii")


def unwire(data: bytes, kind: type[T]) -> T:
    """A value of `kind` from JSON of the outside, in which escapes of lone surrogates are allowed.

    Raises msgspec.ValidationError for a wrong shape, ValueError for what is no JSON.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(data), kind)


def decode_message(data: bytes) -> Message:
    """A message, by a decoder that was made once."""
    if _MARK_BYTE in data and _MARK_BYTES in data:
        return decode(data, Message)
    return _message_decoder.decode(data)


def decode_body(kind: str, data: bytes) -> Body | Unknown:
    """An event body of `kind`; an unknown kind is kept as it is."""
    decoder = _decoders.get(kind)
    if decoder is None:
        return Unknown(kind, msgspec.Raw(data))
    body: Body = decoder.decode(data)
    return (
        cast("Body", _with_strings(body, _unescape)) if _MARK_BYTE in data and _MARK_BYTES in data else body
    )


def encode_body(body: Body | Unknown) -> bytes:
    """JSON bytes of an event body."""
    return bytes(body.raw) if isinstance(body, Unknown) else encode(body)
