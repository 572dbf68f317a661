"""Pages of docs/ that are written from the code: errors, events, settings, failpoints.

    python -m tests.tidy.generated --write    write them anew (`make docs`)

`test_generated.py` fails while one of them is old. Each page is a pure function of the code, so two runs
give the same bytes.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import typer

from tests.tidy.tree import ROOT, SOURCE, name, syntax, under
from turnkeeper import errors, failpoint
from turnkeeper.cli import build
from turnkeeper.conversation import events
from turnkeeper.server.openapi import description
from turnkeeper.server.routes import OPERATIONS
from turnkeeper.settings import CONFIG_FILE, ENVIRONMENT_PREFIX, Settings


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A markdown table; bars inside cells are kept from splitting them."""
    cells = [list(head), *([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + " --- |" * len(cells[0]))
    return "\n".join(lines)


def page(title: str, source: str, *blocks: str) -> str:
    """A whole page, with a first line that says where to change it."""
    head = f"<!-- Written from src/turnkeeper/{source} by `make docs`; change it there. -->\n# {title}"
    return "\n\n".join((head, *blocks)) + "\n"


def error_classes(
    root: type[errors.TurnkeeperError] = errors.TurnkeeperError,
) -> list[type[errors.TurnkeeperError]]:
    """The tree in the order of its source, parents before children."""
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, root)]


def errors_page() -> str:
    """Every error: what it is called outside, its status, whether sending again can help, its sentence."""
    tree = (errors.__doc__ or "").partition("    TurnkeeperError")
    rows = (
        (
            f"`{cls.__name__}`",
            f"`{cls.code}`",
            str(cls.status),
            "yes" if cls.retryable else "no",
            inspect.cleandoc(cls.__doc__ or ""),
        )
        for cls in error_classes()
    )
    return page(
        "Errors",
        "errors.py",
        "One tree. Over HTTP an error is `application/problem+json` with `type`, `title`, `detail`, `code` and\n"
        "`retryable`; `code` is stable. Words in braces are filled in where the error is raised.",
        "```text\n" + inspect.cleandoc(tree[1] + tree[2]) + "\n```",
        table(("class", "code", "status", "send again?", "what a person reads"), rows),
    )


def events_page() -> str:
    """Every kind of journal event with its fields."""
    rows = []
    for kind, cls in events.KINDS.items():
        fields = (f"`{field.name}`" for field in msgspec.structs.fields(cls))
        rows.append((f"`{kind}`", inspect.cleandoc(cls.__doc__ or ""), " ".join(fields) or "-"))
    return page(
        "Journal events",
        "conversation/events.py",
        "A conversation's journal holds these facts, in the past tense, with a gapless `seq`. Each stands in an\n"
        "envelope: `seq`, `at`, `actor` (user:ID, agent:NAME, runner, dispatcher or turnkeeper), `turn_id`,\n"
        "`attempt`. A kind that this version does not know is kept word for word.",
        table(("kind", "what happened", "fields"), rows),
    )


def _types() -> dict[str, str]:
    """Setting -> its type as the source spells it: `Seconds | None`."""
    (body,) = (
        node.body
        for node in syntax(SOURCE / "settings.py").body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _default(value: object) -> str:
    return f"`{value.as_posix() if isinstance(value, Path) else value}`"


def settings_page() -> str:
    """Every setting with its default, its bounds and what it does."""
    types = _types()
    rows = (
        (f"`{key}`", _default(field.get_default()), types[key], field.description or "")
        for key, field in Settings.model_fields.items()
    )
    return page(
        "Settings",
        "settings.py",
        f"A value comes from the first of these that gives one: a flag of the command line, the environment\n"
        f"(`{ENVIRONMENT_PREFIX}` and the name in capitals), the file `{CONFIG_FILE}`, the default. The unit stands\n"
        f"at the end of the name. `turnkeeper config check` shows what is in force and from where.\n"
        "Seconds and Bytes are above 0, a Count is at least 1, a Budget at least 0.",
        table(("name", "default", "type", "what it does"), rows),
    )


def failpoint_sites() -> dict[str, list[str]]:
    """Name of a failpoint -> the functions of src/ that hold it (`file:function`), innermost."""
    sites: dict[str, list[str]] = {}
    for path in under("src/turnkeeper", ".py"):
        if path == SOURCE / "failpoint.py":
            continue
        for function in ast.walk(syntax(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            place = f"{path.relative_to(SOURCE).as_posix()}:{function.name}"
            for node in ast.walk(function):
                for name_ in _visited(node):
                    sites.setdefault(name_, []).append(place)
    return sites


def _visited(node: ast.AST) -> list[str]:
    """The failpoints that a call visits (`failpoint("x")`), or hands on to be visited (`points=("x", "y")`)."""
    if isinstance(node, ast.Call):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        handed = [key.value for key in node.keywords if key.arg == "points"]
        given = node.args[:1] if called == "failpoint" else []
        return [
            str(constant.value)
            for value in (*given, *handed)
            for constant in ast.walk(value)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        ]
    return []


def failpoints_page() -> str:
    """Every failpoint and where it stands."""
    sites = failpoint_sites()
    rows = (
        (f"`{each}`", ", ".join(f"`{site}`" for site in dict.fromkeys(sites.get(each, ()))))
        for each in failpoint.NAMES
    )
    return page(
        "Failpoints",
        "failpoint.py",
        "Named places where a test may stop the world. `TURNKEEPER_FAILPOINT=name[:nth]:action` arms one in a\n"
        "server process; action is `kill` (SIGKILL to itself) or `raise`. `tests/crash/` visits them all.",
        table(("name", "stands in"), rows),
    )


def openapi_page() -> str:
    """The description of the HTTP interface."""
    return description(OPERATIONS).decode()


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, Any]]:
    """Every verb of the command line by its words: `token create`."""
    for verb, each in sorted(getattr(command, "commands", {}).items()):
        if getattr(each, "commands", None):
            yield from verbs(each, (*path, verb))
        else:
            yield " ".join((*path, verb)), each


def _verb(words: str, command: Any) -> str:
    """One verb: what it does, its options, its example."""
    arguments = " ".join(
        p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument"
    )
    rows = []
    for param in command.params:
        if param.param_type_name != "option" or param.opts == ["--help"]:
            continue
        shown = (
            param.default
            if isinstance(param.default, str | int | float) and param.default not in {"", False}
            else None
        )
        default = "" if shown is None else f" (default {shown})"
        rows.append((f"`{', '.join([*param.opts, *param.secondary_opts])}`", f"{param.help or ''}{default}"))
    example = (command.epilog or "").removeprefix("Example: ")
    return "\n\n".join(
        (
            f"## turnkeeper {words}".strip(),
            inspect.cleandoc(command.help or ""),
            f"`turnkeeper {words} {arguments}`".replace(" `", "`"),
            table(("option", "what it does"), rows),
            f"```sh\n{example}\n```",
        )
    )


def cli_page() -> str:
    """Every verb of the command line."""
    return page(
        "The command line",
        "cli/",
        "Exit codes: 0 fine; 1 only where a verb judges health and found something wrong (`doctor`, `config check`); 2 bad\n"
        "usage or input that cannot be read, with one line on stderr and nothing on stdout; 130 after Ctrl-C.\n"
        "`--json` prints JSON in ASCII. Whatever agents and tools said is printed without control characters.\n"
        "\n"
        "Verbs that talk to a server find it by the first of: `--url`, `--data`, TURNKEEPER_URL, TURNKEEPER_DATA, `./data` if a\n"
        "store is in it, the user's own data folder; the token by `--token`, TURNKEEPER_TOKEN, or the `server.json` that the\n"
        "running server of a data folder left there.",
        *(_verb(words, command) for words, command in verbs(typer.main.get_command(build()))),
    )


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_page,
    "docs/reference/openapi.json": openapi_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/events.md": events_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/failpoints.md": failpoints_page,
}


def main() -> int:
    """Write every page; name those that changed."""
    if sys.argv[1:] != ["--write"]:
        print("usage: python -m tests.tidy.generated --write", file=sys.stderr)
        return 2
    for where, write in PAGES.items():
        path = ROOT / where
        fresh = write()
        if not path.exists() or path.read_text("utf-8") != fresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fresh, "utf-8")
            print("wrote", name(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
