"""What an exception of an SDK or of the transport under it means, as a failure value.

Both SDKs stand on httpx2 and let its errors through in mid-stream (a stall is a bare ReadTimeout), so the
whole chain of causes is looked at. Nothing of an exception's text reaches the sentence unless it is a
provider's own message: header values, and so keys, can stand in it.
"""

from __future__ import annotations

import json
import ssl
from typing import Any, Final

from turnkeeper.conversation.turns import Failure
from turnkeeper.provider.failures import failure, from_error

BODY_BYTES_READ: Final = 100_000
"""How much of an error's body is looked at."""


def from_exception(error: BaseException, *, seconds: float, spoke: bool, where: str, now: float) -> Failure:
    """The failure value of `error`, which came `seconds` after the request; `spoke`: data had come by then."""
    import httpx2

    chain = list(_chain(error))
    for one in chain:
        response = getattr(one, "response", None)
        status = getattr(one, "status_code", None) or getattr(response, "status_code", None)
        if isinstance(status, int) and not isinstance(one, httpx2.StreamError):
            return _from_status(one, response, status, where, now)
    for one in chain:
        body = getattr(one, "body", None)
        if isinstance(body, dict | list) and body:  # an error event inside a stream
            return from_error(body, status=None, where=where)
    if any(
        isinstance(one, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(one) or "[SSL" in str(one)
        for one in chain
    ):
        return failure("tls", where=where, why=_tls_reason(chain))
    for one in chain:
        made = _from_transport(one, httpx2, seconds, spoke, where)
        if made is not None:
            return made
    return failure("unknown", why=type(error).__name__)


def _chain(error: BaseException | None) -> Any:
    seen = 0
    while error is not None and seen < 10:
        yield error
        error = error.__cause__ or error.__context__
        seen += 1


def _from_status(error: BaseException, response: Any, status: int, where: str, now: float) -> Failure:
    headers = {name.lower(): value for name, value in dict(getattr(response, "headers", None) or {}).items()}
    body = getattr(error, "body", None)
    if body is None:
        body = _body_of(response)
    if 200 <= status < 300:  # the stream had begun well, then an error event came
        return from_error(body, status=None, headers=headers, where=where, now=now)
    page = "text/html" in headers.get("content-type", "")
    if page and (300 <= status < 400 or status in (400, 404, 405)):
        return failure("not_an_api", status=status, where=where, why=f"a web page with HTTP status {status}")
    return from_error("" if page else body, status=status, headers=headers, where=where, now=now)


def _body_of(response: Any) -> Any:
    try:
        content = response.content[:BODY_BYTES_READ]
    except Exception:  # noqa: BLE001 - a body that was not read says nothing, whatever the client calls that
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content


def _tls_reason(chain: list[BaseException]) -> str:
    for one in chain:
        reason = getattr(one, "verify_message", None) or getattr(one, "reason", None)
        if isinstance(reason, str) and reason:
            return reason.replace("_", " ").lower()
    return "the handshake failed"


def _from_transport(
    error: BaseException, httpx2: Any, seconds: float, spoke: bool, where: str
) -> Failure | None:
    def broken(why: str) -> Failure:
        return failure("broken_stream", seconds=seconds, why=why)

    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return failure("connection", where=where, why=f"no answer within {seconds:.1f} s")
    if isinstance(error, httpx2.ConnectError):
        return failure("connection", where=where, why=_connect_reason(error))
    if isinstance(error, httpx2.TimeoutException):
        return failure("stall" if spoke else "first_token", seconds=seconds)
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return failure("config", why=f"the address or key cannot be used ({type(error).__name__})")
    if isinstance(error, httpx2.ProxyError):
        return failure("connection", where=where, why="the proxy failed")
    if isinstance(error, httpx2.TooManyRedirects):
        return failure("not_an_api", where=where, why="it redirects without end")
    if isinstance(error, httpx2.DecodingError | UnicodeDecodeError | json.JSONDecodeError):
        return broken("it was not readable")
    if isinstance(error, httpx2.TransportError | httpx2.StreamError | ConnectionError):
        return broken("it was cut")
    if isinstance(error, RecursionError | ValueError):
        return broken("it was not readable")
    return None


def _connect_reason(error: BaseException) -> str:
    for one in _chain(error):
        text = str(one).lower()
        for needle, reason in _CONNECT_REASONS:
            if needle in text:
                return reason
    return "no connection"


_CONNECT_REASONS: Final = (
    ("refused", "connection refused"),
    ("name or service not known", "the host name is not known"),
    ("nodename nor servname", "the host name is not known"),
    ("name resolution", "the host name is not known"),
    ("no address associated", "the host name is not known"),
    ("unreachable", "the network is unreachable"),
    ("all connection attempts failed", "connection refused"),
)
