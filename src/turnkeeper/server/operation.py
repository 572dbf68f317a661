"""The words in which the HTTP interface is written: operations, and the call of one.

An operation is one verb on one path, with the right that it needs, the shapes of its body and answer, and
the function that carries it out. All operations stand in one table (`turnkeeper.server.routes`); the
router, the checks of rights, the API description and the tests that enumerate routes are made from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope

from turnkeeper.conversation import codec
from turnkeeper.conversation.rights import Right
from turnkeeper.conversation.turns import Principal
from turnkeeper.errors import BadInput, BodyTooLarge, CursorInvalid, TurnkeeperError
from turnkeeper.server.reply import Answer

if TYPE_CHECKING:
    from turnkeeper.app import Keeper
    from turnkeeper.server.edge import Edge

T = TypeVar("T")


class ClientLeft(Exception):
    """The client went away before its request was complete."""


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """A query parameter or header of an operation, for its description."""

    name: str
    description: str
    place: str = "query"
    required: bool = False
    type: str = "string"


Handler = Callable[["Call"], Awaitable[Answer]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one path."""

    method: str
    path: str
    name: str
    """Its operationId: a verb and a noun."""
    summary: str
    handler: Handler
    right: Right | None
    """What the sign-in must be allowed; None is for the few that anybody may call."""
    answer: Any = None
    """The type of the answer's JSON, or None where it is no JSON."""
    status: int = 200
    media_type: str = "application/json"
    body: Any = None
    """The type of the body's JSON, or None where there is none."""
    body_optional: bool = False
    body_media_type: str = "application/json"
    params: tuple[Param, ...] = ()
    errors: tuple[type[TurnkeeperError], ...] = ()
    """What it answers beside the errors that every operation has."""
    tag: str = ""


class Call:
    """One request to one operation."""

    __slots__ = ("_query", "edge", "headers", "keeper", "principal", "receive", "scope", "values")

    def __init__(
        self,
        edge: Edge,
        scope: Scope,
        receive: Receive,
        headers: dict[bytes, bytes],
        principal: Principal,
    ) -> None:
        self.edge = edge
        self.keeper: Keeper = edge.keeper
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.principal = principal
        self.values: dict[str, str] = scope["path_params"]
        self._query: dict[str, str] | None = None

    # -- query and headers

    def query(self, name: str) -> str | None:
        """A query parameter; the last one, if it is repeated."""
        if self._query is None:
            raw: bytes = self.scope["query_string"]
            self._query = dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}
        return self._query.get(name)

    def limit(self, *, default: int) -> int:
        """The query parameter `limit`, 1 or more; more than `page_rows_max` gives that many."""
        value = self.query("limit")
        if value is None:
            return default
        # Longer numbers are not read: int() gives up on the very long ones.
        if not value.isdecimal() or len(value) > 18 or int(value) < 1:
            raise BadInput(why=f"limit is a whole number from 1, not {value!r}")
        return min(int(value), self.edge.settings.page_rows_max)

    def number(self, name: str) -> int | None:
        """A cursor that is a seq. Raises CursorInvalid if it is no whole number."""
        value = self.query(name)
        if value is None:
            return None
        return whole_number(value)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false."""
        value = (self.query(name) or "false").lower()
        if value not in {"true", "false", "1", "0"}:
            raise BadInput(why=f"{name} is true or false, not {value!r}")
        return value in {"true", "1"}

    def header(self, name: bytes) -> str | None:
        """A header, its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    # -- the body

    async def chunks(self, limit_bytes: int, setting: str) -> AsyncIterator[bytes]:
        """The body as it comes. Raises BodyTooLarge, ClientLeft."""
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limit_bytes:
                raise BodyTooLarge(limit_bytes=limit_bytes, setting=setting)
            if piece:
                yield piece
            if not message.get("more_body", False):
                return

    async def body_bytes(self) -> bytes:
        """The whole body, at most `body_bytes_max`."""
        limit_bytes = self.edge.settings.body_bytes_max
        pieces: list[bytes] = []
        size = 0
        while True:
            # As `chunks`, without the generator: this is the path of every submission.
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limit_bytes:
                raise BodyTooLarge(limit_bytes=limit_bytes, setting="body_bytes_max")
            pieces.append(piece)
            if not message.get("more_body", False):
                return piece if len(pieces) == 1 else b"".join(pieces)

    async def body(self, kind: type[T], *, optional: bool = False) -> T:
        """The body as a `kind`. `optional`: no body is the same as `{}`. Raises BadInput with a clear sentence."""
        data = await self.body_bytes()
        if optional and not data:
            data = b"{}"
        return parse(data, kind)


def parse(data: bytes, kind: type[T]) -> T:
    """JSON from outside as a `kind`. Raises BadInput."""
    try:
        return codec.unwire(data, kind)
    except msgspec.ValidationError as error:
        raise BadInput(why=explain(str(error))) from None
    except RecursionError:
        raise BadInput(why="the body is nested too deeply") from None
    except ValueError as error:
        why = "it is empty" if not data.strip() else str(error)
        raise BadInput(why=f"the body is not JSON: {why}") from None


def explain(sentence: str) -> str:
    """A validation message for people: "Expected `str`, got `int` - at `$.text`" -> "text: expected str, got int"."""
    what, separator, where = sentence.rpartition(" - at ")
    if not separator:
        what, where = sentence, ""
    what = what.replace("`", "")
    place = where.strip("`").removeprefix("$").removeprefix(".") or "the body"
    return f"{place}: {what[:1].lower()}{what[1:]}"


def whole_number(value: str) -> int:
    """A seq from outside. Raises CursorInvalid."""
    if not (value.isascii() and value.isdecimal() and len(value) <= 18):
        raise CursorInvalid(cursor=value)
    return int(value)
