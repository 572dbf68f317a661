"""`turnkeeper transcript show`: exactly the public cases, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.transcript.test_cases import FOLDERS, NOT_OURS, expected
from turnkeeper.cli import run


@pytest.mark.parametrize("folder", [pytest.param(each, id=each.name) for each in FOLDERS])
def test_show_prints_the_case_and_exits_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = expected(folder)
    arguments = ["transcript", "show", str(folder)]
    if wanted.get("merge"):
        arguments += ["--merge-into", str(folder / "persisted.jsonl")]
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    got = json.loads(out)
    for key, value in wanted.items():
        if key not in NOT_OURS or key == "merge":
            assert got[key] == value, key


@pytest.mark.parametrize("folder", [pytest.param(each, id=each.name) for each in FOLDERS])
def test_show_reads_the_file_as_it_reads_its_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = expected(folder)
    files = [path for path in folder.glob("*.jsonl") if path.name != "persisted.jsonl"]
    path = folder / wanted["primary"] if "primary" in wanted else files[0]
    assert run(["transcript", "show", str(path), "--format", wanted["format"]]) == 0
    got = json.loads(capsys.readouterr().out)
    for key, value in wanted.items():
        if key not in {*NOT_OURS, "primary"} and not (wanted.get("merge") and key == "conversation"):
            assert got[key] == value, key


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_bytes(b""), "empty"),
        (
            lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
            "no transcript of a format",
        ),
        (lambda path: path.mkdir(), "no transcript"),
        (lambda path: path.symlink_to(path), "symbolic links"),
    ],
)
def test_what_cannot_be_read_at_all_is_one_line_and_exit_2(
    make: object, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "session.jsonl"
    assert callable(make)
    make(path)
    assert run(["transcript", "show", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_an_unknown_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    assert run(["transcript", "show", str(tmp_path / "a.jsonl"), "--format", "word"]) == 2
    assert "there is no transcript format 'word'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"), [(b"no json", "not JSON"), (b'{"role": "user"}', "expected"), (b"[]", "expected")]
)
def test_a_bad_line_of_the_history_is_named(
    line: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    history.write_bytes(b'{"role": "user", "text": "a"}\n' + line + b"\n")
    assert run(["transcript", "show", str(FOLDERS[0]), "--merge-into", str(history)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "line 2" in err
    assert sentence in err
