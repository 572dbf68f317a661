"""The locks hold every dependency, pinned, with hashes and without addresses."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.tidy.tree import ROOT, text

LOCKS = ("run", "test")
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)(?: ; .*)? \\$", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """Name -> version of requirements/`lock`.txt."""
    return dict(PIN.findall(text(ROOT / "requirements" / f"{lock}.txt")))


def wanted(lock: str) -> list[Requirement]:
    """What pyproject.toml and the lock's .in files ask for."""
    lines = list(tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["dependencies"])
    for source in ("run",) if lock == "run" else ("run", "test"):
        lines += text(ROOT / "requirements" / f"{source}.in").splitlines()
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [Requirement(line) for line in stripped if line]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_what_is_asked_for_and_the_pin_satisfies_it(lock: str) -> None:
    pinned = pins(lock)
    for requirement in wanted(lock):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in pinned, f"{name} is not in requirements/{lock}.txt: run `make lock`"
        assert requirement.specifier.contains(pinned[name]), f"{name} {pinned[name]}: run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_of_a_lock_has_hashes_and_no_address(lock: str) -> None:
    locked = text(ROOT / "requirements" / f"{lock}.txt")
    blocks = [block for block in re.split(r"\n(?=[a-z0-9])", locked) if block.strip()]
    assert len(blocks) == len(pins(lock)) > 20
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert re.findall(r"\S+://\S+|^--.*", locked, re.MULTILINE) == []


def test_the_test_lock_holds_every_pin_of_the_run_lock() -> None:
    assert pins("run").items() <= pins("test").items()


def test_the_project_is_built_with_the_hatchling_that_is_locked() -> None:
    (build,) = tomllib.loads(text(ROOT / "pyproject.toml"))["build-system"]["requires"]
    assert build == f"hatchling=={pins('run')['hatchling']}"
