"""HTTP on a socket, as uvicorn speaks it, with a bound on what comes before a request is known.

The parser under it keeps headers, and trailers after a body, for as long as they come: without a bound anybody who
can connect, signed in or not, could fill the memory of the whole server with one endless header.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REFUSAL: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection that sends more than `header_bytes_max` bytes that are no body.

    The bound is kept after each piece that arrives, so one piece more may be taken in; the application checks
    complete requests exactly.
    """

    def __init__(self, *args: Any, header_bytes_max: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self._header_bytes_max = header_bytes_max
        self._waiting_bytes = 0
        """What came since the request began, or since the last piece of its body."""
        self._inside = False

    def data_received(self, data: bytes) -> None:
        """Take in a piece."""
        self._waiting_bytes += len(data)
        super().data_received(data)
        if self._inside and self._waiting_bytes > self._header_bytes_max and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(REFUSAL)
                self.transport.close()
            else:
                self.transport.abort()  # trailers: an answer may have begun

    def on_message_begin(self) -> None:
        """A request begins."""
        self._inside = True
        self._waiting_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """A piece of its body came: those have bounds of their own."""
        self._waiting_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._inside = False
        super().on_message_complete()
