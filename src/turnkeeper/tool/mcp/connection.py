"""One living connection to one server, held open by a task of its own.

The protocol library wants to be entered and left by the same task, and may end with any kind of error when its
server does. So one task holds it; calls run beside it and are told when it is gone. Whatever happens becomes
one of the few exceptions that a tool may raise (tool/contract.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from turnkeeper.tool.contract import (
    NotSent,
    OutcomeLost,
    ResultUnreadable,
    SignIn,
    SignInNeeded,
    SourceTrouble,
    ToolFailed,
)
from turnkeeper.tool.mcp.config import McpServer
from turnkeeper.tool.mcp.notes import CALL_KEY, Note, Notes
from turnkeeper.tool.mcp.stdio import Child

log = logging.getLogger("turnkeeper.tool.mcp")

T = TypeVar("T")

PAGES_MAX: Final = 20
"""Most pages of one list of tools."""
CLOSE_SECONDS: Final = 6.0
"""How long a connection may take to close in an orderly way."""
LISTEN_AGAIN_SECONDS: Final = 5.0
"""A server that stopped telling of changes is asked to go on after so long; twice as long each time."""
LISTEN_AGAIN_SECONDS_MAX: Final = 300.0
CONNECTION_CLOSED: Final = -32000
REQUEST_TIMEOUT: Final = -32001
UNKNOWN_METHOD: Final = -32601
UNKNOWN_TOOL: Final = -32602


class Connection:
    """A connection to `server` for `person`. `streams` opens the transport under it."""

    def __init__(
        self,
        server: McpServer,
        person: str,
        streams: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        notes: Notes | None = None,
        trouble: Callable[[], str] = lambda: "",
        moved: Callable[[], bool] = lambda: False,
        child: Child | None = None,
    ) -> None:
        self.server = server
        self.person = person
        self.list_changed = False
        """Its server said that it has other tools now."""
        self.calls = 0
        """How many requests of ours run on it now: calls, and questions for its tools."""
        self._streams = streams
        self._notes = notes
        self._trouble = trouble
        """Why the person's sign-in cannot be used just now, although it is there; "" if it can."""
        self._moved = moved
        """Whether the person's sign-in there was for another address than the server has now."""
        self._child = child
        self._client: Any = None
        self._asked = False
        """Whether its tools were asked for."""
        self._retired = False
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self._why = ""

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return self._client is not None and not self._closing.is_set() and not self._retired

    @property
    def ended(self) -> bool:
        """Whether nothing is left of it."""
        return self._holder is None or self._holder.done()

    async def open(self) -> None:
        """Start it. Raises SignInNeeded, SourceTrouble."""
        self._holder = asyncio.create_task(self._hold(), name=f"mcp {self.server.name}")
        opened = asyncio.ensure_future(self._opened.wait())
        try:
            watched: set[asyncio.Future[Any]] = {opened, self._holder}
            await asyncio.wait(
                watched, timeout=self.server.start_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            opened.cancel()
        if self._opened.is_set() and not self._holder.done():
            return
        timed_out = not self._holder.done()
        await self.close()
        for method in ("initialize", "server/discover"):
            note = self._note(method)
            if note.refused:
                raise self._refusal(note, SourceTrouble)
            if note.not_sent or note.lost:
                raise SourceTrouble(note.not_sent or note.lost)
        if timed_out:
            raise SourceTrouble(f"it did not start within {self.server.start_seconds:g} s")
        raise SourceTrouble(self._gone())

    async def _hold(self) -> None:
        from mcp import Client
        from mcp_types import ToolListChangedNotification

        async def notice(message: Any) -> None:
            if isinstance(getattr(message, "root", message), ToolListChangedNotification):
                self.list_changed = True

        try:
            async with Client(self._streams(), cache=None, message_handler=notice) as client:
                self._client = client
                self._opened.set()
                listening = asyncio.create_task(self._listen(client), name=f"mcp {self.server.name} listens")
                try:
                    await self._closing.wait()
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        except BaseException as error:  # noqa: BLE001 - it may end with any kind; what it was is said to who calls
            self._why = self._why or _first_words(error)
        finally:
            self._client = None
            self._closing.set()

    async def _listen(self, client: Any) -> None:
        """Hear of other tools from a server that must be asked to tell (since 2026-07-28).

        An older one tells of its own accord, over http on a stream that the protocol library keeps open: `notice`.
        """
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        wait_seconds = LISTEN_AGAIN_SECONDS
        while not self._closing.is_set():
            try:
                async with client.listen(tools_list_changed=True) as told:
                    if not told.honored.tools_list_changed:
                        return
                    # What was asked for before may be out of date: nothing that happened until now is told.
                    self.list_changed = self.list_changed or self._asked
                    async for _ in told:
                        wait_seconds = LISTEN_AGAIN_SECONDS
                        self.list_changed = True
            except SubscriptionLost:
                log.debug("a server of tools stopped telling of changes", extra={"server": self.server.name})
            except (MCPError, ListenNotSupportedError):
                return
            except Exception as error:  # noqa: BLE001 - who does not listen still asks when the list is old
                log.debug("a server of tools cannot be listened to", extra={"why": _first_words(error)})
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._closing.wait()
            wait_seconds = min(2 * wait_seconds, LISTEN_AGAIN_SECONDS_MAX)

    def end(self) -> None:
        """Its server is gone: who holds it lets go, and the next call opens another one."""
        self._closing.set()

    def retire(self) -> None:
        """Take no new call, and end as soon as nothing runs on it."""
        self._retired = True
        if not self.calls:
            self._closing.set()

    async def close(self) -> None:
        """End it, in an orderly way if that does not take long."""
        self._closing.set()
        holder = self._holder
        if holder is None or holder.done():
            return
        if self._client is None:
            holder.cancel()
        await asyncio.wait({holder}, timeout=CLOSE_SECONDS)
        if not holder.done():
            holder.cancel()
            await asyncio.wait({holder}, timeout=CLOSE_SECONDS)

    # -- what is asked of it

    async def list(self) -> list[Any]:
        """Every tool that the server names now. Raises SignInNeeded, SourceTrouble."""
        from mcp import MCPError

        found: list[Any] = []
        cursor: str | None = None
        self._asked = True
        self.calls += 1
        try:
            async with asyncio.timeout(self.server.start_seconds):
                for _ in range(PAGES_MAX):
                    self.list_changed = False
                    page = await self._beside(self._client.list_tools(cursor=cursor))
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        return found
        except TimeoutError:
            raise SourceTrouble(f"it did not name its tools within {self.server.start_seconds:g} s") from None
        except MCPError as error:
            note = self._note("tools/list")
            if note.refused:
                raise self._refusal(note, SourceTrouble) from None
            raise SourceTrouble(str(error)[:500]) from None
        except OutcomeLost as error:
            raise SourceTrouble(str(error)) from None
        except Exception as error:  # noqa: BLE001 - a list that cannot be read is the server's fault
            raise SourceTrouble(f"its list of tools cannot be read: {_first_words(error)}") from None
        finally:
            self._let_go()
        return found

    async def call(self, name: str, arguments: dict[str, Any], key: str) -> Any:
        """The result of one call (mcp's CallToolResult). Raises what a tool may raise (tool/contract.py)."""
        from mcp import MCPError
        from pydantic import ValidationError

        self.calls += 1
        try:
            return await self._beside(self._client.call_tool(name, arguments, meta={CALL_KEY: key}))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                await self.close()
            raise self._failed(error, self._note(key)) from None
        except (ValidationError, RuntimeError) as error:
            raise ResultUnreadable(_first_words(error)) from None
        except (OutcomeLost, SignInNeeded):
            raise
        except Exception as error:  # noqa: BLE001 - anything else ends the connection under the call
            raise OutcomeLost(_first_words(error)) from None
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.calls -= 1
        if self._retired and not self.calls:
            self._closing.set()

    def _failed(self, error: Any, note: Note) -> Exception:
        """What an error of the protocol means for the call."""
        if note.refused:
            return self._refusal(note, NotSent)
        if note.not_sent:
            return NotSent(note.not_sent)
        if note.status == 404 and error.code != UNKNOWN_METHOD:
            self._closing.set()  # the server has forgotten the session: the next call begins another
            return NotSent("the server has ended the session")
        if error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT) or note.lost or note.status >= 500:
            return OutcomeLost(note.lost or (self._gone() if self._child else str(error)[:500]))
        if error.code in (UNKNOWN_METHOD, UNKNOWN_TOOL):
            self.list_changed = True
        return ToolFailed(f"its server refused the call: {str(error)[:2000]}")

    async def _beside(self, work: Awaitable[T]) -> T:
        """The value of `work`; OutcomeLost if the connection ends before."""
        assert self._holder is not None
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        try:
            watched: set[asyncio.Future[Any]] = {task, self._holder}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise OutcomeLost(self._gone())
            if task.cancelled():
                raise OutcomeLost(self._gone())
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_swallow)

    def _note(self, key: str) -> Note:
        return Note() if self._notes is None else self._notes.of(key)

    def _refusal(self, note: Note, otherwise: type[Exception]) -> Exception:
        """What a 401 means: that a sign-in is needed, unless there is one that cannot be refreshed just now."""
        trouble = self._trouble()
        return otherwise(trouble) if trouble else SignInNeeded(self._sign_in(note))

    def _sign_in(self, note: Note) -> SignIn:
        why = "scope" if note.status == 403 else "revoked" if note.grant else "not_connected"
        if not note.grant and self._moved():
            why = "moved"
        return SignIn(server=self.server.name, person=self.person, why=why, rejected=note.grant)

    def challenge(self, key: str | None = None) -> str:
        """The WWW-Authenticate header with which this call was refused; without a key the newest one."""
        if self._notes is None:
            return ""
        return self._notes.challenge if key is None else self._notes.of(key).challenge

    def _gone(self) -> str:
        started = self._child is not None and (self._child.exit is not None or self._child.flooded)
        if self._child is not None and (started or not self._why):
            return self._child.why()
        return self._why or "the connection ended"


def _swallow(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _first_words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:500] if str(error) else type(error).__name__
