"""The reference pages say what the code says, and the code says something about everything it names."""

from __future__ import annotations

import inspect

import pytest

from tests.tidy.generated import PAGES, error_classes, failpoint_sites
from tests.tidy.tree import ROOT
from turnkeeper import errors, failpoint
from turnkeeper.conversation.events import KINDS
from turnkeeper.settings import Settings


@pytest.mark.parametrize("where", PAGES)
def test_a_generated_page_is_as_the_code_writes_it(where: str) -> None:
    path = ROOT / where
    assert path.exists(), f"{where} is missing: run `make docs`"
    assert path.read_text("utf-8") == PAGES[where](), f"{where} is old: run `make docs`"


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_every_error_explains_itself_in_a_sentence_of_its_own(cls: type) -> None:
    sentence = inspect.cleandoc(vars(cls).get("__doc__") or "")
    assert sentence, f"{cls.__name__} has no docstring: it is the sentence a person reads"
    assert sentence.endswith((".", "}", "}.")), sentence


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in error_classes()]
    assert len(set(codes)) == len(codes), sorted(code for code in codes if codes.count(code) > 1)


def test_every_error_stands_in_the_tree_that_opens_its_file() -> None:
    tree = (errors.__doc__ or "").replace("─", " ").split()
    assert [cls.__name__ for cls in error_classes() if cls.__name__ not in tree] == []


@pytest.mark.parametrize(("kind", "cls"), list(KINDS.items()))
def test_every_event_kind_says_what_happened(kind: str, cls: type) -> None:
    assert inspect.cleandoc(vars(cls).get("__doc__") or "").strip(), f"{kind} has no docstring"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_does(name: str) -> None:
    assert Settings.model_fields[name].description, f"{name} has no docstring below it"


def test_no_failpoint_is_visited_that_is_not_named() -> None:
    assert sorted(set(failpoint_sites()) - set(failpoint.NAMES)) == []


def test_every_failpoint_stands_somewhere() -> None:
    assert sorted(set(failpoint.NAMES) - set(failpoint_sites())) == []
