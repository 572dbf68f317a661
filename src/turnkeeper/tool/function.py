"""A tool from a Python function: its name, docstring and type hints say all that a model must know.

    @tool(effect="read_only")
    def weather(city: str, days: int = 1) -> dict:
        "The forecast for a city."

A parameter `idempotency_key` is not shown to the model: the call's key is handed in there. Without a
declared effect a tool is taken to act (MCP's default). A plain function runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
import typing
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, overload

import msgspec

from turnkeeper.conversation.turns import Effect
from turnkeeper.tool.contract import Arguments, ArgumentsInvalid, Tool

F = TypeVar("F", bound=Callable[..., Any])

KEY_PARAMETER = "idempotency_key"
DECLARED = "__turnkeeper_tool__"
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider accepts as a name (wire rules A9, B4, M5)."""


class _ToolExited(Exception):
    """A tool called exit(); that ends the call, not the server."""


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    did_it_happen: Callable[[str, Arguments], Any] | None = None,
    timeout_seconds: float | None = None,
    result_bytes_max: int | None = None,
    must_ask: bool = False,
) -> Callable[[F], F]: ...


def tool(function: Any = None, **declared: Any) -> Any:
    """Declare what a function does as a tool; the function itself stays as it is.

    `effect` is read_only, idempotent, acts or destructive; the three flags say the same in MCP's words.
    """

    def declare(target: Any) -> Any:
        setattr(target, DECLARED, declared)
        tool_of(target)
        return target

    return declare if function is None else declare(function)


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool that a function is, by its declaration, docstring and type hints.

    Raises ValueError if no JSON Schema can be made of its parameters.
    """
    declared: dict[str, Any] = dict(getattr(function, DECLARED, {}))
    name = declared.pop("name", None) or getattr(function, "__name__", "")
    if not NAME_PATTERN.fullmatch(name):
        msg = f"a tool cannot be called {name!r}: 1 to 64 letters, digits, _ and - are allowed"
        raise ValueError(msg)
    description = declared.pop("description", None) or inspect.getdoc(function) or name
    arguments, wants_key = _arguments_type(function, name)
    did_it_happen = declared.pop("did_it_happen", None)

    def check(given: Arguments) -> None:
        _convert(given, arguments, name)

    async def invoke(given: Arguments, key: str) -> Any:
        values = _convert(given, arguments, name)
        keywords = {field: getattr(values, field) for field in arguments.__struct_fields__}
        if wants_key:
            keywords[KEY_PARAMETER] = key
        return await _call(function, keywords)

    async def ask(key: str, given: Arguments) -> bool | None:
        verdict = await _call(did_it_happen, {}, key, given)
        return None if verdict is None else bool(verdict)

    return Tool(
        name=name,
        description=description,
        schema=_schema(arguments),
        effect=_effect(declared, name),
        invoke=invoke,
        check=check,
        did_it_happen=ask if did_it_happen is not None else None,
        **declared,
    )


def _effect(declared: dict[str, Any], name: str) -> Effect:
    """The effect from `effect` or from MCP's flags, which are taken out of `declared`."""
    effect = declared.pop("effect", None)
    flags = {
        Effect.READ_ONLY: declared.pop("read_only", False),
        Effect.DESTRUCTIVE: declared.pop("destructive", False),
        Effect.IDEMPOTENT: declared.pop("idempotent", False),
    }
    if effect is not None:
        try:
            return Effect(effect)
        except ValueError:
            msg = f"the tool {name} declares the effect {effect!r}; there are {', '.join(Effect)}"
            raise ValueError(msg) from None
    return next((effect for effect, said in flags.items() if said), Effect.ACTS)


def _arguments_type(function: Callable[..., Any], name: str) -> tuple[type[msgspec.Struct], bool]:
    """A struct with one field per parameter, and whether the function wants the key."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        msg = f"the type hints of the tool {name} cannot be read: {error}"
        raise ValueError(msg) from error
    fields: list[Any] = []
    wants_key = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            msg = f"the tool {name} takes {parameter}: a model can only fill in named parameters"
            raise ValueError(msg)
        if parameter.name == KEY_PARAMETER:
            wants_key = True
            continue
        kind = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        elif isinstance(parameter.default, str | int | float | None):
            fields.append((parameter.name, kind, parameter.default))
        else:
            fields.append(
                (parameter.name, kind, msgspec.field(default_factory=partial(_same, parameter.default)))
            )
    struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return struct, wants_key


def _same(value: Any) -> Any:
    return value


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """An object schema without indirection at the top, as every provider takes it."""
    try:
        (found,), components = msgspec.json.schema_components([arguments])
    except TypeError as error:
        msg = f"no JSON Schema can be made of the parameters: {error}"
        raise ValueError(msg) from error
    schema = dict(components.pop(arguments.__name__)) if "$ref" in found else dict(found)
    schema.pop("title", None)
    if components:
        schema["$defs"] = components
    return schema


def _convert(given: Arguments, arguments: type[msgspec.Struct], name: str) -> msgspec.Struct:
    try:
        return msgspec.convert(given, arguments, strict=False, str_keys=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ArgumentsInvalid(tool=name, why=str(error)) from None


async def _call(function: Callable[..., Any], keywords: dict[str, Any], *values: Any) -> Any:
    """The value of a function of any colour. A plain one gets a thread that cannot keep the process alive."""
    if inspect.iscoroutinefunction(function):
        try:
            return await function(*values, **keywords)
        except SystemExit as error:
            raise _ToolExited(f"it called exit({error.code!r})") from None
    value = await _in_thread(lambda: function(*values, **keywords))
    return await value if isinstance(value, Awaitable) else value


async def _in_thread(work: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def body() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(work)
        except SystemExit as exit_:
            error = _ToolExited(f"it called exit({exit_.code!r})")
        except StopIteration as stop:
            error = RuntimeError(f"it raised StopIteration({stop.value!r})")
        except Exception as raised:  # noqa: BLE001 - whatever it raises is the outcome of the call
            error = raised
        except BaseException as raised:  # noqa: BLE001 - the same; but asyncio would end the server for it
            error = _ToolExited(f"it raised {type(raised).__name__}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=body, name="turnkeeper-tool", daemon=True).start()
    return await future
