"""Words and habits that this tree does without. Each rule says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, files, name, syntax, text, under

THIS = Path(__file__)
CODE_SUFFIXES = {".py", ".ts", ".tsx", ".js", ".mjs", ".css", ".sql", ".toml", ".md", ".sh", ".yaml", ".yml"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc", "stuff"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
REGISTRY_HOSTS = re.compile(
    r"(pypi\.org|pythonhosted\.org|npmjs\.(org|com)|deb\.debian\.org|security\.debian\.org|unpkg\.com|jsdelivr\.net)"
)
MACHINE_PATHS = re.compile(r"(?<![\w.])(/work/(wt|main|shared)\b|/root/|/opt/(wheels|pypi)|\.library/)")


def prose() -> Iterator[Path]:
    """Files that people write: no captured data, no lock."""
    for path in files():
        data = path.is_relative_to(ROOT / "tests" / "vectors") or path.name.endswith((".lock", "-lock.json"))
        if path.suffix in CODE_SUFFIXES and not data and path != THIS:
            yield path


def found(pattern: re.Pattern[str], paths: Iterator[Path] | tuple[Path, ...]) -> list[str]:
    """`file:line: match` of every hit."""
    return [
        f"{name(path)}:{number}: {match.group()}"
        for path in paths
        for number, line in enumerate(text(path).splitlines(), 1)
        if (match := pattern.search(line))
    ]


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a Python file with the dotted name that is called."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def test_a_module_is_named_by_what_it_is() -> None:
    vague = [name(path) for path in files() if VAGUE_NAMES & set(re.split(r"[_.\W]+", path.name.lower()))]
    assert vague == [], "name the idea that holds the file together"


def test_nothing_is_left_unfinished_in_words() -> None:
    assert found(UNFINISHED, prose()) == [], "do it, or open an issue"


def test_no_file_names_a_package_registry_by_host() -> None:
    assert found(REGISTRY_HOSTS, files()) == [], "name the package; every desk has its own registry"


def test_no_file_holds_a_path_of_one_machine() -> None:
    own = tuple(path for path in files() if path != THIS)
    assert found(MACHINE_PATHS, own) == [], "use a path relative to the checkout, or a setting"


def in_virtual_time(path: Path) -> bool:
    """Whether the tests of this folder run in virtual time, where a sleep returns at once."""
    return any(
        "run_virtual" in text(each) or "VirtualLoop" in text(each) for each in path.parent.glob("*.py")
    )


def test_no_test_sleeps() -> None:
    """`sleep(0)` lets other tasks run and is fine; anything longer hopes instead of knowing."""
    sleeps = [
        f"{name(path)}:{call.lineno}: {ast.unparse(call)}"
        for path in under("tests", ".py")
        for call, called in calls(path)
        if "programs" not in path.parts  # what a test starts and watches may take its time
        and (
            called == "time.sleep"
            or (called in {"asyncio.sleep", "anyio.sleep"} and not in_virtual_time(path))
        )
        and not (len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
    ]
    advice = "advance a clock, wait for a signal, or poll a condition with turnkeeper.testing.until"
    assert sleeps == [], advice


def test_every_skip_says_why() -> None:
    silent = []
    for path in under("tests", ".py"):
        for call, called in calls(path):
            if called.endswith("mark.skipif") and not any(key.arg == "reason" for key in call.keywords):
                silent.append(f"{name(path)}:{call.lineno}")
            if called in {"pytest.skip", "pytest.mark.skip"} and not (call.args or call.keywords):
                silent.append(f"{name(path)}:{call.lineno}")
        silent += [
            f"{name(path)}:{node.lineno}"
            for node in ast.walk(syntax(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            for mark in node.decorator_list
            if ast.unparse(mark) == "pytest.mark.skip"
        ]
    assert silent == []


def test_no_error_is_swallowed_whole() -> None:
    """`except Exception: pass` hides what the next person needs; name the error, or record it."""
    swallowed = [
        f"{name(path)}:{handler.lineno}"
        for path in (*under("src", ".py"), *under("tests", ".py"))
        for handler in ast.walk(syntax(path))
        if isinstance(handler, ast.ExceptHandler)
        and (handler.type is None or ast.unparse(handler.type) in {"Exception", "BaseException"})
        and all(
            isinstance(step, ast.Pass | ast.Continue)
            or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant))
            for step in handler.body
        )
    ]
    assert swallowed == []


def test_every_module_opens_with_a_paragraph() -> None:
    bare = [
        name(path)
        for path in (*under("src", ".py"), *under("tests", ".py"))
        if text(path).strip() and ast.get_docstring(syntax(path)) is None
    ]
    assert bare == []


def test_only_one_function_authorises() -> None:
    """One `authorise` for every route, stream, verb and delayed turn (G18)."""
    doors = [
        f"{name(path)}:{node.lineno}"
        for path in under("src", ".py")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in {"authorise", "authorize"}
    ]
    assert len(doors) == 1, doors
