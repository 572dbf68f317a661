"""Files: taken in once, and given out only through a conversation that holds them.

What a browser does with a file is decided by its bytes, never by its name. Only four kinds of image may be
shown in place; everything else is a download, and even what is shown runs nothing (CSP sandbox, nosniff).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import unquote

from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.responses import FileResponse

from turnkeeper.conversation.rights import Right
from turnkeeper.errors import (
    AddressRefused,
    BadInput,
    BodyTooLarge,
    NotARecording,
    NotFound,
    RecordingTooLong,
    TranscriberFailed,
    TranscriberMissing,
)
from turnkeeper.server.operation import Call, Operation, Param
from turnkeeper.server.reply import Answer, reply
from turnkeeper.server.shapes import AttachmentView, TranscriptView

INLINE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

NAME_CHARS_MAX: Final = 255

FILE_HEADERS: Final = {
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=31536000, immutable",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""A browser may keep a file: an id never means other bytes, and it is asked for with the sign-in."""


async def put(call: Call) -> Answer:
    limit_bytes = call.edge.settings.attachment_bytes_max
    declared = call.header(b"content-length")
    slack_bytes = 10_000  # boundaries and headers of a form
    if declared is not None and declared.isdecimal() and int(declared) > limit_bytes + slack_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes, setting="attachment_bytes_max")
    kind, options = parse_options_header(call.headers.get(b"content-type", b""))
    if kind == b"multipart/form-data":
        boundary = options.get(b"boundary")
        if not boundary:
            raise BadInput(why="the form has no boundary")
        form = FormFile(call.chunks(limit_bytes + slack_bytes, "attachment_bytes_max"), boundary)
        name = call.query("name") or await form.name()
        pieces = bounded(form.pieces(), limit_bytes)
    else:
        name = call.query("name") or disposition_name(call.headers.get(b"content-disposition", b""))
        pieces = call.chunks(limit_bytes, "attachment_bytes_max")
    stored = await call.keeper.put_attachment(call.principal, plain_name(name), pieces)
    return reply(stored, status=201)


async def transcribe(call: Call) -> Answer:
    words = await call.keeper.recordings.write_down(call.principal, call.values["attachment_id"])
    return reply(TranscriptView(transcript=words))


async def get(call: Call) -> Answer:
    row, path = await call.keeper.attachment(
        call.principal, call.values["conversation_id"], call.values["attachment_id"]
    )
    shown = row.media_type in INLINE_TYPES
    return FileResponse(
        path,
        media_type=row.media_type if shown else "application/octet-stream",
        filename=row.name or "file",
        content_disposition_type="inline" if shown else "attachment",
        headers=FILE_HEADERS,
    )


def plain_name(name: str) -> str:
    """A file's name without folders and control characters, at most 255 characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[-NAME_CHARS_MAX:].strip()


def disposition_name(header: bytes) -> str:
    """The file name of a Content-Disposition header, or nothing."""
    _, options = parse_options_header(header)
    extended = options.get(b"filename*")
    if extended is not None:
        return unquote(extended.rpartition(b"''")[2].decode("latin-1"))
    return options.get(b"filename", b"").decode("utf-8", "replace")


async def bounded(pieces: AsyncIterator[bytes], limit_bytes: int) -> AsyncIterator[bytes]:
    """`pieces`, refused as soon as they are more than `limit_bytes`."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes, setting="attachment_bytes_max")
        yield piece


class FormFile:
    """The first file of a form, read while it comes in. Other fields of the form are passed over."""

    def __init__(self, chunks: AsyncIterator[bytes], boundary: bytes) -> None:
        self._chunks = chunks
        self._headers: dict[str, bytes] = {}
        self._field = b""
        self._value = b""
        self._found: bytes | None = None
        """The Content-Disposition of the file, once it has begun."""
        self._inside = False
        self._ended = False
        self._ready: list[bytes] = []
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
            },
        )

    def _part_begin(self) -> None:
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value
        self._field = self._value = b""

    def _headers_finished(self) -> None:
        disposition = self._headers.get("content-disposition", b"")
        _, options = parse_options_header(disposition)
        if self._found is None and (b"filename" in options or b"filename*" in options):
            self._found = disposition
            self._inside = True

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self._ready.append(data[start:end])

    def _part_end(self) -> None:
        if self._inside:
            self._inside = False
            self._ended = True

    async def _more(self) -> bool:
        """Take in another chunk; False at the end of the request."""
        from python_multipart.exceptions import FormParserError

        chunk = await anext(self._chunks, None)
        if chunk is None:
            return False
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise BadInput(why=f"the form cannot be read: {error}") from None
        return True

    async def name(self) -> str:
        """The file's name. Raises BadInput if the form holds no file."""
        while self._found is None:
            if not await self._more():
                raise BadInput(why="the form holds no file")
        return disposition_name(self._found)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file's bytes. Raises BadInput if the form breaks off inside it."""
        await self.name()
        while True:
            ready, self._ready = self._ready, []
            for piece in ready:
                yield piece
            if not await self._more():
                break
        for piece in self._ready:
            yield piece
        if not self._ended:
            raise BadInput(why="the form breaks off inside the file")


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/attachments",
        name="uploadAttachment",
        summary="Upload a file, as the body itself or as the file of a form.",
        handler=put,
        right=Right.WRITE,
        answer=AttachmentView,
        status=201,
        body=bytes,
        body_media_type="application/octet-stream",
        params=(Param(name="name", description="The file's name; else that of Content-Disposition."),),
        errors=(BodyTooLarge,),
        tag="attachments",
    ),
    Operation(
        method="POST",
        path="/v1/attachments/{attachment_id}/transcript",
        name="transcribeAttachment",
        summary="Write a recording down, once; messages that hold it carry its words.",
        handler=transcribe,
        right=Right.WRITE,
        answer=TranscriptView,
        errors=(
            NotFound,
            TranscriberMissing,
            NotARecording,
            RecordingTooLong,
            TranscriberFailed,
            AddressRefused,
        ),
        tag="attachments",
    ),
    Operation(
        method="GET",
        path="/v1/conversations/{conversation_id}/attachments/{attachment_id}",
        name="downloadAttachment",
        summary="A file that this conversation holds.",
        handler=get,
        right=Right.READ,
        media_type="application/octet-stream",
        tag="attachments",
    ),
)
