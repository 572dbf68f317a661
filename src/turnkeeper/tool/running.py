"""Running one call within its limits: time, size, and whatever a tool may throw.

The clock is handed in, so that a test advances it instead of waiting. A tool that is out of time, or
stopped, is abandoned: whether it took effect is then unknown, unless it only reads.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec

from turnkeeper.conversation.turns import Disposition, Effect
from turnkeeper.port.clock import Clock
from turnkeeper.tool.contract import (
    DID_NOT_HAPPEN,
    Arguments,
    NotSent,
    Outcome,
    OutcomeLost,
    ResultUnreadable,
    SignInNeeded,
    Tool,
    ToolFailed,
    ToolFile,
)

T = TypeVar("T")

ASK_SECONDS = 10.0
"""How long a tool's own check (did_it_happen) may take."""
NO_OUTPUT = "(the tool returned nothing)"
"""Stands for an empty result: providers refuse blank ones (wire rules A12, B5)."""
ERROR_BYTES_MAX = 4_000
"""Most bytes of a tool's own error message."""


class OutOfTime(Exception):
    """It took longer than it may."""


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The value of `work`, or OutOfTime after `seconds` of this clock; `work` is cancelled then."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise OutOfTime
        return task.result()
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
        # Also a task that has just ended: who waited for it may have been cancelled in the same moment.
        task.add_done_callback(_swallow)


def _swallow(task: asyncio.Future[Any]) -> None:
    """Look at the error of an abandoned task: its call has its outcome already."""
    if not task.cancelled():
        task.exception()


async def run_tool(
    tool: Tool,
    arguments: Arguments,
    key: str,
    *,
    clock: Clock,
    timeout_seconds: float,
    result_bytes_max: int,
) -> Outcome:
    """Run one call; the tool's own limits go before those given. Raises only CancelledError, when stopped."""
    began = clock.monotonic()
    limit = tool.timeout_seconds if tool.timeout_seconds is not None else timeout_seconds
    size = tool.result_bytes_max if tool.result_bytes_max is not None else result_bytes_max
    try:
        value = await within(clock, limit, tool.invoke(arguments, key))
    except OutOfTime:
        return timed_out(tool, clock.monotonic() - began)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return _raised(tool, "it cancelled itself", clock.monotonic() - began)
    except SignInNeeded as needed:
        return _waits_for_sign_in(tool, needed, clock.monotonic() - began)
    except NotSent as error:
        return _not_sent(tool, str(error), clock.monotonic() - began)
    except OutcomeLost as error:
        return _lost(tool, str(error), clock.monotonic() - began)
    except ToolFailed as error:
        return _raised(tool, cut(str(error), size), clock.monotonic() - began)
    except ResultUnreadable as error:
        return _unreadable(tool, str(error), clock.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything; that is its outcome
        return _raised(tool, _describe(error), clock.monotonic() - began)
    seconds = clock.monotonic() - began
    try:
        files, words = split_files(value)
        text = text_of(words)
    except (TypeError, ValueError, RecursionError) as error:
        return Outcome(
            disposition=Disposition.DONE,
            content=f"The tool {tool.name} ran, but what it returned ({type(value).__name__}) cannot be written as JSON: {error}",
            is_error=True,
            seconds=seconds,
            why="unreadable result",
        )
    return Outcome(disposition=Disposition.DONE, content=cut(text, size), seconds=seconds, files=files)


async def ask_whether_it_happened(
    tool: Tool, key: str, arguments: Arguments, *, clock: Clock
) -> tuple[bool | None, str]:
    """What the tool's own check says of a call with an unknown outcome, and why if it cannot say."""
    if tool.did_it_happen is None:
        return None, "the tool has no check of its own"
    try:
        verdict = await within(clock, ASK_SECONDS, tool.did_it_happen(key, arguments))
    except OutOfTime:
        return None, f"its check did not answer within {ASK_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - a check may raise anything; then nothing is known
        return None, f"its check failed: {_describe(error)}"
    return verdict, "its check cannot tell" if verdict is None else "its check says so"


def timed_out(tool: Tool, seconds: float) -> Outcome:
    """The outcome of a call that was abandoned after `seconds`."""
    if tool.effect is Effect.READ_ONLY:
        return Outcome(
            disposition=Disposition.FAILED,
            content=f"The tool {tool.name} gave no result within {seconds:.0f} s and was abandoned. It only reads, so nothing was changed.",
            is_error=True,
            seconds=seconds,
            why="time-out",
        )
    return Outcome(
        disposition=Disposition.UNKNOWN,
        content=f"The tool {tool.name} gave no result within {seconds:.0f} s and was abandoned. Whether it took effect is unknown: inspect the state before you repeat it.",
        is_error=True,
        seconds=seconds,
        why="time-out",
    )


def _waits_for_sign_in(tool: Tool, needed: SignInNeeded, seconds: float) -> Outcome:
    return Outcome(
        disposition=Disposition.REFUSED,
        content=f"Not run: {tool.name} waits until the person has signed in at {needed.sign_in.server}.",
        is_error=True,
        seconds=seconds,
        why="sign_in",
        sign_in=needed.sign_in,
    )


def _not_sent(tool: Tool, what: str, seconds: float) -> Outcome:
    return Outcome(
        disposition=Disposition.FAILED,
        content=f"Not run: the call of {tool.name} could not be sent ({cut(what, ERROR_BYTES_MAX)}). Nothing was changed.",
        is_error=True,
        seconds=seconds,
        why=DID_NOT_HAPPEN,
    )


def _lost(tool: Tool, what: str, seconds: float) -> Outcome:
    reads_only = tool.effect is Effect.READ_ONLY
    said = cut(what, ERROR_BYTES_MAX)
    after = (
        "It only reads, so nothing was changed."
        if reads_only
        else "Whether it took effect is unknown: inspect the state before you repeat it."
    )
    return Outcome(
        disposition=Disposition.FAILED if reads_only else Disposition.UNKNOWN,
        content=f"The result of {tool.name} was lost ({said}). {after}",
        is_error=True,
        seconds=seconds,
        why="lost",
    )


def _unreadable(tool: Tool, what: str, seconds: float) -> Outcome:
    return Outcome(
        disposition=Disposition.DONE,
        content=f"The tool {tool.name} ran, but its result is not what it promised: {cut(what, ERROR_BYTES_MAX)}",
        is_error=True,
        seconds=seconds,
        why="unreadable result",
    )


def _raised(tool: Tool, what: str, seconds: float) -> Outcome:
    return Outcome(
        disposition=Disposition.FAILED,
        content=f"The tool {tool.name} failed: {what}",
        is_error=True,
        seconds=seconds,
        why="raised",
    )


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error's own __str__ may be broken
        text = "(its message cannot be read)"
    return cut(f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__, ERROR_BYTES_MAX)


def split_files(value: Any) -> tuple[tuple[ToolFile, ...], Any]:
    """The files in a tool's value, and the rest of it: words in their places.

    A file is a ToolFile, or what MCP calls image content: {type: image, data: base64, mimeType}.
    """
    pieces = value if isinstance(value, list | tuple) else [value]
    found = [_file_of(piece) for piece in pieces]
    if not any(found):
        return (), value
    words = []
    for piece, file in zip(pieces, found, strict=True):
        if file is not None:
            words.append(f"[file {file.name or 'without a name'}, {len(file.data)} bytes]")
        elif isinstance(piece, dict) and piece.get("type") == "text":
            words.append(str(piece.get("text", "")))
        else:
            words.append(text_of(piece))
    return tuple([file for file in found if file is not None]), "\n".join(words)


def _file_of(piece: Any) -> ToolFile | None:
    if isinstance(piece, ToolFile):
        return piece
    if not isinstance(piece, dict) or piece.get("type") != "image" or not isinstance(piece.get("data"), str):
        return None
    try:
        data = base64.b64decode(piece["data"], validate=True)
    except (ValueError, UnicodeEncodeError):
        return None
    return ToolFile(data, f"image.{str(piece.get('mimeType', 'image/png')).rpartition('/')[2]}")


def text_of(value: Any) -> str:
    """What a model reads of a tool's value: text as it is, anything else as JSON, never blank.

    Raises TypeError or ValueError for what cannot be written as JSON.
    """
    if value is None:
        return NO_OUTPUT
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", errors="replace")
    if isinstance(value, str):
        return value if value.strip() else NO_OUTPUT
    return msgspec.json.encode(value, enc_hook=_builtin, order="sorted").decode()


def _builtin(value: Any) -> Any:
    for name in ("model_dump", "_asdict", "to_dict"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    msg = f"{type(value).__name__} is no JSON value"
    raise TypeError(msg)


def cut(text: str, bytes_max: int) -> str:
    """`text` within `bytes_max` bytes of UTF-8, the middle left out with a visible mark if it is longer."""
    if len(text) * 4 <= bytes_max:
        return text
    data = text.encode("utf-8", errors="surrogatepass")
    if len(data) <= bytes_max:
        return text
    head = bytes_max * 3 // 4
    tail = bytes_max - head
    first = data[:head].decode("utf-8", errors="ignore")
    last = data[-tail:].decode("utf-8", errors="ignore") if tail else ""
    left_out = len(data) - len(first.encode()) - len(last.encode())
    return (
        f"{first}\n[… {left_out} of {len(data)} bytes left out by Turnkeeper (limit {bytes_max}) …]\n{last}"
    )
