"""Settings: which source wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnkeeper.errors import SettingInvalid
from turnkeeper.settings import Settings, find_file


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TURNKEEPER_{name.upper()}", raising=False)
    monkeypatch.delenv("TURNKEEPER_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "turnkeeper.toml"
    file.write_text("queue_cap = 5\nundo_seconds = 7\nport = 1\n")
    monkeypatch.setenv("TURNKEEPER_QUEUE_CAP", "6")
    monkeypatch.setenv("TURNKEEPER_PORT", "2")
    settings = Settings.load(file, port=3, host=None)
    assert (settings.port, settings.queue_cap, settings.undo_seconds) == (3, 6, 7.0)
    assert settings.host == "127.0.0.1"


def test_lists_and_none_can_be_given_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEPER_ALLOWED_HOSTS", '["chat.example"]')
    monkeypatch.setenv("TURNKEEPER_MAX_TURN_SECONDS", "none")
    settings = Settings.load()
    assert settings.allowed_hosts == ("chat.example",)
    assert settings.max_turn_seconds is None


def test_other_variables_of_the_same_prefix_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEPER_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TURNKEEPER_TOKEN", "secret")
    assert Settings.load() == Settings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("queue_cap = 0", "queue_cap .* greater than or equal to 1, got 0"),
        ("undo_seconds = -1", "undo_seconds .* greater than 0, got -1"),
        ("stall_seconds = 'soon'", "stall_seconds .* valid number"),
        ("no_such_limit = 1", "no_such_limit .* there is no setting of this name"),
        ("queue_cap = ", "it is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_name_and_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(text)
    with pytest.raises(SettingInvalid, match=why):
        Settings.load(file)


def test_an_absent_file_that_was_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="there is no such file"):
        Settings.load(tmp_path / "absent.toml")


def test_a_list_in_the_environment_that_is_not_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEPER_ALLOWED_HOSTS", "chat.example")
    with pytest.raises(SettingInvalid, match="lists are written as JSON"):
        Settings.load()


def test_the_file_is_looked_for_in_the_data_folder_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert find_file(data) is None
    (tmp_path / "turnkeeper.toml").write_text("")
    assert find_file(data) == Path("turnkeeper.toml")
    (data / "turnkeeper.toml").write_text("")
    assert find_file(data) == data / "turnkeeper.toml"
    monkeypatch.setenv("TURNKEEPER_CONFIG", "/elsewhere.toml")
    assert find_file(data) == Path("/elsewhere.toml")


def test_every_number_says_its_unit_and_every_setting_says_what_it_does() -> None:
    units = (
        "_seconds",
        "_bytes",
        "_bytes_max",
        "_max",
        "_ms",
        "_cap",
        "_chars_max",
        "_rows",
        "_items",
        "_events",
    )
    for name, field in Settings.model_fields.items():
        assert field.description, name
        if type(field.default) in {int, float} and name != "port":
            assert name.endswith(units), name
