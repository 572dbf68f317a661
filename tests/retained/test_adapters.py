"""What adapters make of real CLIs: captures of panes and of what each step appended to the transcript."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from turnkeeper.errors import ConfigError
from turnkeeper.retained.adapter import Adapter, Memory, Plan
from turnkeeper.retained.adapters import ADAPTERS, adapter_named, looks
from turnkeeper.retained.signs import BlockKind, Composer, Reading, Sign
from turnkeeper.retained.tape import Tape
from turnkeeper.terminal.screen import read_screen
from turnkeeper.transcript import formats
from turnkeeper.transcript.tail import tail_lines

VECTORS = Path(__file__).parents[1] / "vectors" / "retained-clis"
FOLDERS = {"pi": "pi", "codex": "codex", "claude-code": "claude"}


def read_pane(cli: str, label: str, title: str = "") -> Reading:
    path = VECTORS / FOLDERS[cli] / f"{label}.pane.txt"
    return ADAPTERS[cli].read(read_screen(path.read_text(), title), None, trust=False)


def read_rows(cli: str, *labels: str, folder: str | None = None) -> list[Sign]:
    adapter, memory = ADAPTERS[cli], Memory()
    found: list[Sign] = []
    for label in labels:
        path = VECTORS / (folder or FOLDERS[cli]) / f"{label}.delta.jsonl"
        tail = tail_lines(path, adapter.Row, None)
        found += adapter.signs(tail.rows, tail.offsets, memory)
    return found


def kinds(found: list[Sign]) -> str:
    return " ".join(f"{sign.kind}{'!' if sign.final else ''}" for sign in found)


# --- the registry


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_every_adapter_answers_everything(adapter: Adapter) -> None:
    wanted = [name for name in vars(Adapter) if not name.startswith("_")]
    assert [name for name in wanted if not hasattr(adapter, name)] == []
    assert formats.reader(adapter.FORMAT) is not None, "its transcript can be read and reconciled"
    assert adapter.INSTRUCTIONS in {"launch", "inline", "fresh"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", adapter.TESTED)
    assert not any(key in {"C-c", "Enter"} for key in (*adapter.CLEAR_KEYS, *adapter.INTERRUPT_KEYS))


def test_a_cli_nobody_knows_is_refused_by_name() -> None:
    assert adapter_named("claude").NAME == "claude-code"
    with pytest.raises(ConfigError, match="there is no adapter for the CLI 'vim'"):
        adapter_named("vim")


# --- screens


IDLE = {
    "pi": ("00-start", "10-text", "20-thinktool", "32-after-queue", "42-err400", "60-esc-text", "82-resumed"),
    "codex": (
        "00-start",
        "10-text",
        "20-thinktool",
        "32-after-queue",
        "42-err400",
        "60-esc-text",
        "82-resumed",
    ),
    "claude-code": (
        "00-start",
        "10-text",
        "20-thinktool",
        "32-after-queue",
        "42-err400",
        "73-slash",
        "k7-resumed",
    ),
}


@pytest.mark.parametrize(("cli", "label"), [(cli, label) for cli in IDLE for label in IDLE[cli]])
def test_an_idle_pane_has_an_empty_composer(cli: str, label: str) -> None:
    reading = read_pane(cli, label)
    assert (reading.composer, reading.busy, reading.block) == (Composer.EMPTY, False, None)


@pytest.mark.parametrize(
    ("cli", "label", "title"),
    [
        ("pi", "30-busy", ""),
        ("pi", "40-err529-early", ""),
        ("pi", "51-stall-cut", ""),
        ("codex", "33-queued-during-tool", ""),
        ("codex", "30-busy", "⠋ work"),
        ("claude-code", "30-busy", ""),
        ("claude-code", "busy-sample", ""),
        ("claude-code", "00-start", "◐ Claude Code"),
    ],
)
def test_a_busy_pane_is_busy_and_its_composer_empty(cli: str, label: str, title: str) -> None:
    reading = read_pane(cli, label, title)
    assert (reading.composer, reading.busy) == (Composer.EMPTY, True)


def test_the_status_file_is_believed_before_title_and_screen() -> None:
    screen = read_screen((VECTORS / "claude" / "30-busy.pane.txt").read_text(), "◐ Claude Code")
    reading = ADAPTERS["claude-code"].read(screen, "idle", trust=False)
    assert (reading.busy, reading.busy_source) == (False, "status file")


@pytest.mark.parametrize(
    ("cli", "label", "queued"),
    [
        ("pi", "31-queued-while-busy", ("queued alpha", "queued beta")),
        ("codex", "33-queued-during-tool", ("steer gamma during tool",)),
        ("claude-code", "31-queued-while-busy", ("queued alpha", "queued beta")),
        ("claude-code", "k5-before9", ("queued two before kill9",)),
    ],
)
def test_what_the_cli_shows_as_waiting_is_read(cli: str, label: str, queued: tuple[str, ...]) -> None:
    assert read_pane(cli, label).queued == queued


@pytest.mark.parametrize("cli", FOLDERS)
def test_a_collapsed_paste_is_a_placeholder(cli: str) -> None:
    reading = read_pane(cli, "71-bigpaste-composer")
    assert (reading.composer, reading.placeholder) == (Composer.TEXT, True)


def test_a_refused_command_stays_in_the_composer_of_codex() -> None:
    reading = read_pane("codex", "73-slash")
    assert reading.text == "/nosuchcmd [[text:slash]] hello"


def composer(cli: str, *rows: str, rule: str = "─") -> Reading:
    line = rule * 100
    first, *rest = rows
    lines = {
        "pi": ["history", line, *rows, line, "/work", "footer"],
        "codex": [
            "history",
            "",
            f"› {first}",
            *(f"  {row}" for row in rest),
            "",
            "  footer",
            "  ? for shortcuts",
        ],
        "claude-code": ["history", line, f"❯ {first}", *(f"  {row}" for row in rest), line, "  footer"],
    }[cli]
    return ADAPTERS[cli].read(read_screen("\n".join(lines)), None, trust=False)


@pytest.mark.parametrize("cli", FOLDERS)
def test_blank_lines_left_over_are_seen(cli: str) -> None:
    """Seed 002, 2026-09-24: the draft check read one line and saw nothing."""
    assert composer(cli, "", "").composer is Composer.BLANK
    assert composer(cli, "").composer is Composer.EMPTY
    assert composer(cli, "", "text").text == "text"
    assert composer(cli, "one", "", "two").text == "one\n\ntwo"


@pytest.mark.parametrize("cli", ["pi", "claude-code"])
@pytest.mark.parametrize("rule", looks.RULE_CHARS.replace("\\", ""))
def test_a_rule_of_another_dash_is_a_rule(cli: str, rule: str) -> None:
    assert composer(cli, "draft", rule=rule).text == "draft"


def test_a_dim_hint_is_no_text() -> None:
    line = "─" * 100
    raw = f"{line}\n❯ \x1b[2mfix the tests\x1b[22m\n{line}\n  footer"
    assert ADAPTERS["claude-code"].read(read_screen(raw), None, trust=False).composer is Composer.EMPTY
    raw = "\n› \x1b[2;3mSummarize the last commits\x1b[0m\n\n  footer"
    assert ADAPTERS["codex"].read(read_screen(raw), None, trust=False).composer is Composer.EMPTY


# --- menus


UPDATE = "  ✨ Update available! 0.171.0 -> 0.172.0\n\n  Release notes\n\n› 1. Update now (runs `npm install`)\n  2. Skip\n  3. Skip until next version\n\n  Press enter to continue"
TRUST = "──────────────────────\n Do you trust the files in this folder?\n\n /home/ana/work\n\n ❯ 1. Yes, proceed\n   2. No, exit\n\n Enter to confirm · Esc to exit"
PERMISSION = "╭──────────────────────────────╮\n│ Bash command                 │\n│                              │\n│   rm -rf build               │\n│                              │\n│ Do you want to proceed?      │\n│   1. Yes                     │\n│ ❯ 2. Yes, and don't ask again│\n│   3. No, tell Claude what    │\n╰──────────────────────────────╯\n Esc to cancel"
LIMIT = " What do you want to do?\n\n ❯ 1. Upgrade your plan\n   2. Stop and wait for limit to reset\n\n Enter to confirm · Esc to cancel"
PLAIN = " Select login method:\n\n❯ Claude account with subscription\n  Anthropic Console account\n\n Enter to confirm"


@pytest.mark.parametrize(
    ("raw", "kind", "selected", "options", "yes", "no", "auto"),
    [
        (UPDATE, BlockKind.UPDATE, 0, 3, None, 1, 1),
        (TRUST, BlockKind.TRUST, 0, 2, 0, 1, None),
        (PERMISSION, BlockKind.PERMISSION, 1, 3, 0, 2, None),
        (LIMIT, BlockKind.LIMIT, 0, 2, None, 1, None),
        (PLAIN, BlockKind.LOGIN, 0, 2, None, None, None),
    ],
)
def test_a_menu_is_parsed_whole(
    raw: str, kind: BlockKind, selected: int, options: int, yes: int | None, no: int | None, auto: int | None
) -> None:
    menu = looks.find_menu(read_screen(raw).lines)
    assert menu is not None
    block = looks.block_of(menu, trust=False)
    assert (block.kind, menu.selected, len(menu.options)) == (kind, selected, options)
    assert (block.yes, block.no, block.auto) == (yes, no, auto)


def test_a_trusted_folder_is_trusted_by_rule() -> None:
    menu = looks.find_menu(read_screen(TRUST).lines)
    assert menu is not None
    assert looks.block_of(menu, trust=True).auto == 0


def test_a_server_that_only_the_folder_names_is_not_used() -> None:
    raw = TRUST.replace("trust the files", "use the MCP server files").replace(
        "Yes, proceed", "Use this MCP server"
    )
    menu = looks.find_menu(read_screen(raw.replace("No, exit", "Continue without using it")).lines)
    assert menu is not None
    block = looks.block_of(menu, trust=True)
    assert (block.kind, block.auto) == (BlockKind.SERVERS, 1)


@pytest.mark.parametrize(
    "raw",
    [
        TRUST.replace("❯", " "),
        TRUST.replace("   2.", " ❯ 2."),
        TRUST.replace("2. No", "3. No"),
        "❯ a prompt of before\n  its second line\n\n● an answer\n\n❯ another\n  more",
        "Steps:\n 1. Do this\n 2. Do that",
    ],
    ids=["no cursor", "two cursors", "a number is missing", "history", "a list"],
)
def test_what_is_not_clear_is_no_menu(raw: str) -> None:
    assert looks.find_menu(read_screen(raw).lines) is None


def test_keys_lead_from_the_cursor_to_the_option() -> None:
    menu = looks.find_menu(read_screen(PERMISSION).lines)
    assert menu is not None
    assert looks.keys_for(menu, 0) == ("Up", "Enter")
    assert looks.keys_for(menu, 1) == ("Enter",)
    assert looks.keys_for(menu, 2) == ("Down", "Enter")


def test_a_modal_that_nobody_understands_holds() -> None:
    raw = "  Help\n\n  /clear  start anew\n\n  Esc to close"
    reading = ADAPTERS["claude-code"].read(read_screen(raw), None, trust=False)
    assert reading.block is not None
    assert reading.block.kind is BlockKind.MODAL


# --- transcripts


@pytest.mark.parametrize("cli", FOLDERS)
def test_the_form_of_an_accent_makes_no_other_text(cli: str) -> None:
    assert ADAPTERS[cli].normalise("e\u0301 \u1112\u1161\u11ab") == ADAPTERS[cli].normalise("\u00e9 \ud55c")


@pytest.mark.parametrize("cli", FOLDERS)
def test_a_plain_turn_is_taken_said_ended(cli: str) -> None:
    found = [s for s in read_rows(cli, "10-text") if s.kind != "began"]
    assert kinds(found) == "taken said! ended"
    assert found[0].text == "[[text:hello world]] line one\nline two"


@pytest.mark.parametrize("cli", FOLDERS)
def test_thinking_and_tools_come_before_the_answer(cli: str) -> None:
    found = [s for s in read_rows(cli, "20-thinktool") if s.kind != "began"]
    assert kinds(found) == "taken thought called returned said! ended"
    call, result = found[2], found[3]
    assert call.call_id == result.call_id
    assert "echo hi" in str(call.arguments)


def test_two_queued_inputs_of_claude_get_one_answer_and_two_records() -> None:
    found = read_rows("claude-code", "31-queued-while-busy", "32-after-queue")
    assert kinds(found) == "queued queued said! ended taken taken said! ended"
    assert [s.via for s in found if s.kind == "taken"] == ["dequeued", "dequeued"]


def test_two_queued_inputs_of_pi_get_an_answer_each() -> None:
    assert kinds(read_rows("pi", "32-after-queue")) == "said! ended taken said! ended taken said! ended"


def test_codex_takes_an_input_into_the_turn_that_it_cut_off() -> None:
    assert kinds(read_rows("codex", "31-queued-while-busy")) == "taken said! ended began taken said! ended"


def test_an_absorbed_input_of_claude_is_taken_by_its_attachment_and_not_by_its_removal() -> None:
    """Seed 002: the human boundary that was silently discarded."""
    found = read_rows("claude-code", "33-queued-during-tool", "34-after-tool-queue")
    assert kinds(found) == "taken called queued removed returned taken said! ended"
    assert [s.text for s in found if s.via == "absorbed"] == ["steer gamma during tool"]


def test_a_large_paste_is_unwrapped() -> None:
    taken = read_rows("claude-code", "71-bigpaste")[0]
    assert taken.text.startswith("[[text:big ok]] row 0")
    assert "pasted_content" not in taken.text


@pytest.mark.parametrize("cli", FOLDERS)
def test_an_interruption_is_no_end(cli: str) -> None:
    found = read_rows(cli, "60-esc-text")
    assert found[-1].kind == "interrupted"
    assert not any(sign.final for sign in found)


@pytest.mark.parametrize("cli", FOLDERS)
def test_a_refusal_of_the_provider_is_a_failure_with_its_words(cli: str) -> None:
    failed = [s for s in read_rows(cli, "42-err400") if s.kind == "failed"]
    assert failed
    assert "400" in failed[-1].text


def test_attempts_that_pi_set_aside_are_named() -> None:
    found = read_rows("pi", "40-err529-early", "41-err529")
    assert kinds(found) == "taken failed superseded failed superseded said! ended"
    assert [s.native_id for s in found if s.kind == "superseded"] == [
        s.native_id for s in found if s.kind == "failed"
    ]


def test_commands_say_what_they_did() -> None:
    assert kinds(read_rows("claude-code", "compact", folder="claude-g")) == "compacted commanded"
    assert kinds(read_rows("claude-code", "73-slash")) == "refused"
    assert kinds(read_rows("codex", "74-bang")) == "began commanded ended"
    assert kinds(read_rows("pi", "74-bang")) == "commanded"


# --- texts


@pytest.mark.parametrize("cli", FOLDERS)
def test_what_a_cli_does_to_a_text_is_undone_on_both_sides(cli: str) -> None:
    adapter = ADAPTERS[cli]
    sent = "\n\nHEAD\r\n\tindented \x1b[31mred\x1b[0m\x00  \n日本 é\n\n"
    recorded = "\n\nHEAD\n    indented [31mred[0m  \n日本 é"
    assert adapter.normalise(sent) == adapter.normalise(recorded)
    assert adapter.normalise("a") != adapter.normalise("b")


@pytest.mark.parametrize(
    ("cli", "text", "refused"),
    [
        ("pi", "/nosuch text", False),
        ("pi", "/quit now", False),
        ("pi", "/quit", True),
        ("pi", " !ls", True),
        ("pi", "/home/user/.zshrc is missing", False),
        ("pi", "# heading", False),
        ("codex", "/clear", False),
        ("codex", "!ls", False),
        ("claude-code", "/clear", True),
        ("claude-code", " /help x", True),
        ("claude-code", "!ls", True),
        ("claude-code", " !ls", False),
        ("claude-code", "/etc/hosts", False),
        ("claude-code", "/home/user/.zshrc is missing, what now?", False),
        ("claude-code", "# not a memory note", False),
        ("claude-code", "@nobody hi", False),
    ],
)
def test_a_text_that_reads_as_a_command_is_known(cli: str, text: str, refused: bool) -> None:
    assert ADAPTERS[cli].reads_as_command(text) is refused


def test_codex_gets_a_space_that_it_strips_again() -> None:
    adapter = ADAPTERS["codex"]
    for text in ("/clear the table", "!important"):
        assert adapter.paste_text(text) == f" {text}"
        assert adapter.normalise(adapter.paste_text(text)) == adapter.normalise(text)


# --- launches


@pytest.mark.parametrize("cli", FOLDERS)
def test_a_launch_and_a_resume(cli: str) -> None:
    adapter = ADAPTERS[cli]
    plan = Plan(cwd="/w", session_id="S-1", instructions="be kind", model="m", trust_cwd=True, folder="/f")
    new = adapter.command(plan).argv
    resumed = adapter.command(Plan(cwd="/w", session_id="S-1", resume=True, command=("npx", "it"))).argv
    assert new[0] == adapter.PROGRAM
    assert resumed[:2] == ("npx", "it")
    assert "S-1" in resumed
    assert ("S-1" in new) is adapter.CHOOSES_ID


def test_codex_never_starts_its_daemon() -> None:
    assert "daemon_auto_start" in ADAPTERS["codex"].command(Plan(cwd="/w")).argv


def test_mcp_servers_are_written_anew_at_each_launch() -> None:
    servers = {"files": {"command": "mcp-files", "args": ["--root", "/w"], "env": {"A": "b c"}}}
    claude = ADAPTERS["claude-code"].command(Plan(cwd="/w", mcp=servers, folder="/f"))
    assert claude.files == {
        "/f/mcp.json": '{"mcpServers":{"files":{"command":"mcp-files","args":["--root","/w"],"env":{"A":"b c"}}}}'
    }
    codex = ADAPTERS["codex"].command(Plan(cwd="/w", mcp=servers)).argv
    assert 'mcp_servers.files.command="mcp-files"' in codex
    assert 'mcp_servers.files.args=["--root", "/w"]' in codex
    assert 'mcp_servers.files.env={"A" = "b c"}' in codex


def test_a_lost_session_is_known_by_its_own_words() -> None:
    assert ADAPTERS["claude-code"].lost_session("No conversation found with session ID: S-1")
    assert ADAPTERS["codex"].lost_session("Error: no rollout found for thread id T-1")
    assert not ADAPTERS["claude-code"].lost_session("Error: ENOSPC")


ODD: list[Any] = [
    None,
    True,
    3.5,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    [None, "x", {"type": "text"}],
    {"a": None},
]


def _odd_lines(data: bytes, chance: Random) -> list[bytes]:
    """The lines of a transcript with odd values somewhere in some of them, as a newer version might write."""
    lines = [line for line in data.split(b"\n") if line]
    for _ in range(3):
        at = chance.randrange(len(lines))
        row = inside = json.loads(lines[at])
        while isinstance(inside, dict | list) and inside:
            key = chance.choice(list(inside)) if isinstance(inside, dict) else chance.randrange(len(inside))
            if chance.random() < 0.4 or not isinstance(inside[key], dict | list) or not inside[key]:
                inside[key] = chance.choice(ODD)
                break
            inside = inside[key]
        lines[at] = json.dumps(row).encode()
    return lines


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_rows_of_a_newer_version_say_nothing_and_hide_no_other(name: str, tmp_path: Path) -> None:
    """A turn that runs must not end because its CLI was updated; what is not known is counted and told."""
    chance = Random(7)
    adapter = ADAPTERS[name]
    prefix = {"claude-code": "claude", "codex": "codex", "pi": "pi"}[adapter.FORMAT]
    vectors = Path(__file__).parents[1] / "vectors" / "transcripts"
    sources = sorted(vectors.glob(f"*-{prefix}-*/*.jsonl"))
    unknown = told = 0
    for number in range(60):
        lines = []
        for line in sources[number % len(sources)].read_bytes().split(b"\n"):
            try:
                lines.append(json.dumps(json.loads(line)).encode())
            except ValueError:
                continue
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b"\n".join(_odd_lines(b"\n".join(lines), chance)) + b"\n")
        tape = Tape(adapter, path)
        told += len(tape.poll())
        unknown += tape.unknown
        assert tape.readable
        assert tape.unknown <= 3, "a row hides no other"
    assert unknown > 0
    assert told > 60
