"""Finds the sessions in a file and writes healed ones: JSON and JSON lines, three kinds of SQLite files, our own.

`open_source(path)` recognises the file by what is in it. A source gives its sessions, each with its items as
they are stored, and can write a copy with healed items; the file itself is never written to. Python objects
in a file are never unpickled.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import apsw
import msgspec

from turnkeeper.conversation.messages import Message
from turnkeeper.errors import BadInput
from turnkeeper.foreign.containers import CONTAINERS, detect_container, plain_langchain
from turnkeeper.foreign.glance import Glance, glance
from turnkeeper.foreign.wires import WIRES, Item, detect_wire

FILE_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""A larger JSON file is refused unread."""

LIST_FIELDS: Final = ("messages", "input", "contents", "history", "items")
"""Where a list of messages stands in an object."""


class Session(msgspec.Struct, kw_only=True):
    """One conversation of a file, as it is stored."""

    name: str
    format: str
    """anthropic | openai-chat | openai-responses | gemini | pydantic-ai | langchain | vercel | turnkeeper"""
    items: Sequence[Any]
    reads: list[Message] | None = None
    """The items as messages, once they were read; for our own store the messages themselves."""
    ids: list[str] | None = None
    """What each row is called, where it has a name of its own."""
    glanced: int | None = None
    """How many items there are in a session that a glance found healthy; they themselves were not read then."""

    @property
    def rows(self) -> int:
        """How many items the session has."""
        return len(self.items) if self.glanced is None else self.glanced

    def read(self) -> list[Message]:
        """The items as messages, one for each; a message's id is its place."""
        if self.reads is None:
            reader = WIRES[self.format].read if self.format in WIRES else CONTAINERS[self.format].read
            self.reads = reader(self.items)
        return self.reads


class Source(Protocol):
    """A file with sessions in it."""

    path: Path

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        ...

    def heal(self, healed: Mapping[str, list[Any]], out: Path) -> None:
        """Write a copy to the new file `out` in which these sessions have these items."""
        ...


def format_of(items: Sequence[Any]) -> str | None:
    """Whose messages a list holds, or None."""
    objects = [item for item in items if isinstance(item, dict)]
    if not objects:
        return None
    return detect_container(objects) or detect_wire(objects)


def open_source(path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> Source:
    """The sessions of the file `path`, a JSON file of at most `bytes_max`. Raises BadInput when it cannot be read or is nothing that is known."""
    try:
        if path.is_dir():
            raise BadInput(f"{path} is a folder without a Turnkeeper store")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is no regular file: a pipe or a device is not waited for")
        size = status.st_size
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    if head == b"SQLite format 3\0":
        return _open_sqlite(path)
    if size > bytes_max:
        raise BadInput(f"{path} is too large; the limit is {bytes_max} bytes (session_bytes_max)")
    return JsonSource(path)


def refuse_to_overwrite(out: Path) -> None:
    """Raises BadInput if `out` exists: a healed copy never replaces anything."""
    if out.exists():
        raise BadInput(f"{out} exists already; name a new file for the healed copy")


# --- JSON


class JsonSource:
    """A JSON file: a list of messages, an object that holds one, or one message a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = False
        self._field: str | None = None
        self._whole: Any = None
        try:
            self._data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None

    def glance(self, providers: Sequence[str] = ()) -> Glance | None:
        """What is certain of the session without reading it, as far as these providers go; None says nothing."""
        return glance(self._data, providers)

    def write_rows(self, rows: Sequence[bytes], out: Path) -> None:
        """Write a list of rows that are JSON already."""
        refuse_to_overwrite(out)
        _write(out, b"[\n " + b",\n ".join(rows) + b"\n]\n")

    @cached_property
    def _items(self) -> list[Any]:
        data = self._data
        try:
            value = parse_json(data)
        except ValueError as error:
            value = self._parse_lines(data, error)
        if isinstance(value, dict):
            for name in LIST_FIELDS:
                if isinstance(value.get(name), list):
                    self._field, self._whole = name, value
                    return list(value[name])
            value = [value]
            self._lines = True
        if not isinstance(value, list):
            raise BadInput(f"{self.path} holds no list of messages")
        return value

    def _parse_lines(self, data: bytes, error: ValueError) -> list[Any]:
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) < 2:
            raise BadInput(f"{self.path} is not valid JSON ({error})") from None
        found: list[Any] = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(parse_json(line))
            except ValueError as fault:
                raise BadInput(f"{self.path} is not valid JSON (line {number}: {fault})") from None
        self._lines = True
        return found

    def sessions(self) -> list[Session]:
        """The one session."""
        if not self._items:
            return [Session(name=self.path.name, format="openai-chat", items=[])]
        odd = next((i for i, item in enumerate(self._items) if not isinstance(item, dict)), None)
        if odd is not None:
            raise BadInput(f"{self.path}: message {odd} is no object")
        found = format_of(self._items)
        if found is None:
            raise BadInput(f"{self.path} holds no messages of a program that is known here")
        return [Session(name=self.path.name, format=found, items=self._items)]

    def heal(self, healed: Mapping[str, list[Any]], out: Path) -> None:
        """Write the list in the shape it had."""
        refuse_to_overwrite(out)
        items = healed.get(self.path.name, self._items)
        if self._lines:
            data = b"".join(write_json(item) + b"\n" for item in items)
        elif self._field is not None:
            data = write_json({**self._whole, self._field: items}, indent=1) + b"\n"
        else:
            data = write_json(items, indent=1) + b"\n"
        _write(out, data)


def _write(out: Path, data: bytes) -> None:
    try:
        out.write_bytes(data)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror or error}") from None


def parse_json(data: bytes) -> Any:
    """The value of JSON bytes; lone surrogates are kept. Raises ValueError with a short reason."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        reason = str(error)
    except RecursionError:
        raise ValueError("nested too deep") from None
    try:
        # Only the slower reader takes a lone surrogate, and those are what a doctor is asked about.
        return json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    except json.JSONDecodeError:
        raise ValueError(reason[:120].lower()) from None


def write_json(value: Any, *, indent: int = 0) -> bytes:
    """JSON text of a value that was read; a lone surrogate goes out as the escape that it came as."""
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return json.dumps(value, indent=indent or None).encode()
    return msgspec.json.format(data, indent=indent) if indent else data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


# --- SQLite files of other frameworks


def read_only(path: Path) -> apsw.Connection:
    """A connection that reads and never writes, while the file's own program may be running."""
    try:
        connection = apsw.Connection(
            f"file:{path.absolute().as_posix().replace('?', '%3f').replace('#', '%23')}?mode=ro",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        connection.set_busy_timeout(2000)
        connection.execute("PRAGMA query_only = on")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except apsw.Error as error:
        raise BadInput(f"{path} cannot be read as an SQLite database ({error})") from None
    return connection


def tables_of(connection: apsw.Connection) -> dict[str, set[str]]:
    """Each table's columns."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))}
        for name in names
    }


def _open_sqlite(path: Path) -> Source:
    connection = read_only(path)
    try:
        tables = tables_of(connection)
    finally:
        connection.close()
    if {"session_id", "message_data"} <= tables.get("agent_messages", set()):
        return OpenAIAgentsSource(path)
    if {"thread_id", "checkpoint_ns", "type", "checkpoint"} <= tables.get("checkpoints", set()):
        return LangGraphSource(path)
    raise BadInput(f"{path} is an SQLite database of no program that is known here")


def copy_database(path: Path, out: Path) -> apsw.Connection:
    """A whole copy of an SQLite database, with what its log holds, opened for writing."""
    refuse_to_overwrite(out)
    source = read_only(path)
    try:
        copy = apsw.Connection(str(out))
        with copy.backup("main", source, "main") as backup:
            backup.step(-1)
        copy.execute("PRAGMA journal_mode = delete")
    except apsw.Error as error:
        raise BadInput(f"{out} cannot be written ({error})") from None
    finally:
        source.close()
    return copy


class OpenAIAgentsSource:
    """`SQLiteSession` of the OpenAI Agents SDK: Responses items as JSON, one a row."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sessions(self) -> list[Session]:
        """Every session of the file."""
        connection = read_only(self.path)
        found: dict[str, list[Any]] = {}
        try:
            for session_id, data in connection.execute(
                "SELECT session_id, message_data FROM agent_messages ORDER BY id"
            ):
                found.setdefault(str(session_id), []).append(self._row(data))
        finally:
            connection.close()
        return [Session(name=name, format="openai-responses", items=items) for name, items in found.items()]

    def _row(self, data: Any) -> Item:
        try:
            item = parse_json(data.encode() if isinstance(data, str) else bytes(data))
        except (ValueError, TypeError, UnicodeEncodeError):
            item = None
        return item if isinstance(item, dict) else {"type": "unreadable"}

    def heal(self, healed: Mapping[str, list[Any]], out: Path) -> None:
        """Write the rows of the healed sessions anew, in a copy."""
        copy = copy_database(self.path, out)
        try:
            with copy:
                for session_id, items in healed.items():
                    copy.execute("DELETE FROM agent_messages WHERE session_id = ?", (session_id,))
                    copy.executemany(
                        "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)",
                        [(session_id, json.dumps(item)) for item in items],
                    )
        finally:
            copy.close()


_PYDANTIC_EXT: Final = frozenset({4, 5})
"""Extension types of LangGraph's serialiser that hold a model: [module, class, fields, method]."""


class LangGraphSource:
    """Checkpoints of LangGraph's SQLite saver. Only msgpack is read; nothing is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped: list[str] = []
        """Threads whose checkpoint is not msgpack."""

    def _newest(self) -> list[tuple[str, str, str, str, bytes]]:
        connection = read_only(self.path)
        try:
            return [
                (str(thread), str(ns), str(checkpoint_id), str(kind), bytes(data))
                for thread, ns, checkpoint_id, kind, data in connection.execute(
                    "SELECT thread_id, checkpoint_ns, max(checkpoint_id), type, checkpoint FROM checkpoints "
                    "GROUP BY thread_id, checkpoint_ns ORDER BY thread_id, checkpoint_ns"
                )
            ]
        finally:
            connection.close()

    def sessions(self) -> list[Session]:
        """The messages in the newest checkpoint of each thread."""
        found: list[Session] = []
        for thread, ns, _id, kind, data in self._newest():
            name = f"{thread}/{ns}" if ns else thread
            messages = self._messages(kind, data)
            if messages is None:
                self.skipped.append(name)
            else:
                items = [_langchain_item(message) for message in messages]
                found.append(Session(name=name, format="langchain", items=items))
        return found

    def _messages(self, kind: str, data: bytes) -> list[Any] | None:
        if kind != "msgpack":
            return None
        try:
            checkpoint = msgspec.msgpack.decode(data)
        except msgspec.DecodeError:
            return None
        values = checkpoint.get("channel_values") if isinstance(checkpoint, dict) else None
        messages = values.get("messages") if isinstance(values, dict) else None
        return messages if isinstance(messages, list) else []

    def heal(self, healed: Mapping[str, list[Any]], out: Path) -> None:
        """Write the healed messages into the newest checkpoint of each thread, in a copy."""
        rows = self._newest()
        copy = copy_database(self.path, out)
        try:
            with copy:
                for thread, ns, checkpoint_id, _kind, data in rows:
                    items = healed.get(f"{thread}/{ns}" if ns else thread)
                    if items is None:
                        continue
                    checkpoint = msgspec.msgpack.decode(data)
                    checkpoint["channel_values"]["messages"] = [_langchain_ext(item) for item in items]
                    copy.execute(
                        "UPDATE checkpoints SET checkpoint = ? "
                        "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                        (msgspec.msgpack.encode(checkpoint), thread, ns, checkpoint_id),
                    )
        finally:
            copy.close()


def _langchain_item(value: Any) -> Item:
    """A stored message as a dictionary; the extension that it came from is kept beside it."""
    if isinstance(value, msgspec.msgpack.Ext) and value.code in _PYDANTIC_EXT:
        try:
            fields = msgspec.msgpack.decode(bytes(value.data))
        except msgspec.DecodeError:
            return {"type": "unreadable"}
        if isinstance(fields, list) and len(fields) >= 3 and isinstance(fields[2], dict):
            return {**fields[2], EXT_FIELD: value}
    return value if isinstance(value, dict) else {"type": "unreadable"}


EXT_FIELD: Final = "\0ext"
"""Holds the stored bytes of a message, so that a healthy one is written back as it was."""

_CLASSES: Final = {
    "human": ("langchain_core.messages.human", "HumanMessage"),
    "ai": ("langchain_core.messages.ai", "AIMessage"),
    "tool": ("langchain_core.messages.tool", "ToolMessage"),
    "system": ("langchain_core.messages.system", "SystemMessage"),
}


def _langchain_ext(item: Item) -> Any:
    stored = item.get(EXT_FIELD)
    if stored is not None:
        return stored
    plain = plain_langchain(item)
    module, name = _CLASSES[str(plain["type"])]
    data = msgspec.msgpack.encode([module, name, plain, "model_validate_json"])
    return msgspec.msgpack.Ext(5, data)


def copy_file(path: Path, out: Path) -> None:
    """Copy a file as it is."""
    refuse_to_overwrite(out)
    try:
        shutil.copyfile(path, out)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror or error}") from None
