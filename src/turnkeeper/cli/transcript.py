"""`turnkeeper transcript`: what coding CLIs recorded of themselves: find, show, import."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnkeeper.cli.target import AsJson, Data, Token, Url
from turnkeeper.cli.target import find as find_server
from turnkeeper.cli.turns import NEW, at, put
from turnkeeper.errors import BadInput

if TYPE_CHECKING:
    from turnkeeper.transcript.place import Roots
    from turnkeeper.transcript.record import Reading

HISTORY_BYTES_MAX = 256 * 1024 * 1024


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    verbs = typer.Typer(
        name="transcript",
        help="Read the records that coding CLIs keep of their own sessions.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verbs.command(
        name="show",
        help="Print what a session file (or a folder of them) says, as one JSON object.",
        epilog="Example: turnkeeper transcript show ~/.claude/projects/-home-ana-demo/1b2c.jsonl",
    )(show)
    verbs.command(
        name="find",
        help="List the sessions on this machine, newest activity first.",
        epilog="Example: turnkeeper transcript find --format codex",
    )(find)
    verbs.command(
        name="import",
        help="Merge a session's record into a conversation; doing it again changes nothing.",
        epilog="Example: turnkeeper transcript import new claude-code:1b2c3d4e-5f60-4a7b-8c9d-0e1f2a3b4c5d",
    )(bring)
    app.add_typer(verbs)


def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A session file, or a folder of one thread.")],
    name: Annotated[
        str | None, typer.Option("--format", help="The CLI that wrote it; guessed if not given.")
    ] = None,
    merge_into: Annotated[
        Path | None,
        typer.Option(
            "--merge-into", metavar="HISTORY.jsonl", help='Lines {"role", "text"} to merge it into.'
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Which session of a database; the newest if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The output is JSON in any case.")] = False,
) -> None:
    """Print one JSON object; exit 0 however torn the file is."""
    del as_json
    from turnkeeper.transcript.formats import read_path
    from turnkeeper.transcript.project import as_case

    _read_by_settings()
    history = None if merge_into is None else read_history(merge_into)
    reading = read_path(path, name=name, session=session)
    case = as_case(reading)
    if history is not None:
        case |= merged(history, reading)
    sys.stdout.write(json.dumps(case) + "\n")


def _read_by_settings() -> None:
    from turnkeeper.cli.serve import own_settings
    from turnkeeper.transcript.limits import put_settings_in_force

    put_settings_in_force(own_settings())


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of a HISTORY.jsonl. Raises BadInput with the number of the line that cannot be used."""
    try:
        if path.stat().st_size > HISTORY_BYTES_MAX:
            raise BadInput(f"{path} is too large; the limit is {HISTORY_BYTES_MAX // 1024 // 1024} MB")
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(f"{path}, line {number}: this is not JSON") from None
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("role", "text")):
            raise BadInput(f'{path}, line {number}: an object with "role" and "text" is expected')
        rows.append(row)
    return rows


def merged(history: list[dict[str, Any]], reading: Reading) -> dict[str, Any]:
    """The merged conversation, and how it came about."""
    from turnkeeper.history.reconcile import Ours, Theirs, reconcile
    from turnkeeper.transcript import project

    spoken = project.conversation(reading)
    ours = [
        Ours(
            str(number),
            row["role"],
            row["text"],
            (row["native_id"],) if isinstance(row.get("native_id"), str) else (),
        )
        for number, row in enumerate(history)
    ]
    theirs = [Theirs(record.native_id, record.role, record.text, record.aliases) for record in spoken]
    result = reconcile(ours, theirs)
    conversation: list[dict[str, Any]] = []
    for our, their in result.order:
        row = {} if their is None else project.spoken(spoken[their])
        if our is not None:
            row |= {"role": history[our]["role"], "text": history[our]["text"]}
        conversation.append(row)
    return {
        "conversation": conversation,
        "merge": True,
        "reconciled": {
            "matched": len(result.pairs),
            "added": len(result.added),
            "joined": result.joined,
            "ambiguous": result.ambiguous,
            "crossings": result.crossings,
        },
    }


def find(
    name: Annotated[str | None, typer.Option("--format", help="Only sessions of this CLI.")] = None,
    home: Annotated[Path | None, typer.Option("--home", help="Another home folder than yours.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List sessions."""
    from turnkeeper.transcript.find import find as find_sessions
    from turnkeeper.transcript.formats import MODULES, reader

    _read_by_settings()
    names = tuple(MODULES) if name is None else (name,)
    for each in names:
        reader(each)
    found = sorted(
        find_sessions(_roots(home), names=names), key=lambda session: session.last_activity or 0, reverse=True
    )[:limit]
    if as_json:
        import msgspec

        sys.stdout.write(json.dumps({"sessions": msgspec.to_builtins(found)}) + "\n")
        return
    from turnkeeper.cli.safe import printable
    from turnkeeper.projection.view import iso

    for session in found:
        turns = f"{session.turns}{'' if session.whole else '+'} turns"
        line = "  ".join(
            (
                (iso(session.last_activity) or "-")[:16],
                f"{session.format:11}",
                f"{turns:>9}",
                f"{session.size_bytes // 1024:>7} kB",
                session.id.partition(":")[2],
                session.cwd or "-",
                session.unreadable or session.title or "",
            )
        )
        print(" ".join(printable(line).split("\n")))


def bring(
    conversation: Annotated[
        str, typer.Argument(metavar="CONV", help="The conversation's id, or `new`.", show_default=False)
    ],
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="An id that `transcript find --json` lists; the conversation's own sessions if not given.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[str, typer.Option(help="The agent of a new conversation.")] = "demo",
    url: Url = None,
    token: Token = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Ask the server to merge. Files are read on the server's machine, by its user."""
    client = find_server(url, token, data)
    if conversation == NEW:
        if session is None:
            raise BadInput(why="a new conversation needs a session to import")
        conversation = client.post("/v1/conversations", {"agent": agent})["conversation_id"]
    told = client.post(
        at("conversations", conversation, "reconcile"), None if session is None else {"session": session}
    )
    if as_json:
        put({"conversation_id": conversation, **told})
        return
    from turnkeeper.cli.safe import printable

    print(f"{conversation}: {told['added']} added, {told['matched']} known{_marks(told)}")
    for name in told["missing"]:
        print(f"{printable(name)}: its file is nowhere")
    for name, why in told["unreadable"].items():
        print(f"{printable(name)}: {printable(why)}")
    if not told["stored"]:
        print(f"Not stored: {printable(told['why'])}")


def _marks(told: dict[str, Any]) -> str:
    """What a person should know of how it was merged."""
    marks = (
        (told["joined"], "put into one prompt by the CLI"),
        (told["ambiguous"], "matched by words that stand more often"),
        (told["crossings"], "in another order there"),
        (told["malformed"], "lines that cannot be read"),
    )
    return "".join(f", {count} {what}" for count, what in marks if count)


def _roots(home: Path | None) -> Roots:
    from turnkeeper.transcript.place import Roots

    if home is not None:
        return Roots(home=home)
    return Roots(home=Path.home(), env=dict(os.environ))
