"""What a package offers is listed, sorted, real and explained."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import turnkeeper

PACKAGES = ["turnkeeper"] + [
    module.name
    for module in pkgutil.walk_packages(turnkeeper.__path__, "turnkeeper.")
    if module.name != "turnkeeper.__main__"
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_is_offered_exists_once_and_is_explained(package: str) -> None:
    module = importlib.import_module(package)
    offered = list(getattr(module, "__all__", ()))
    assert len(set(offered)) == len(offered)
    for each in offered:
        value = getattr(module, each)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{package}.{each} has no docstring"


def test_the_front_door_lists_what_it_offers() -> None:
    offered = list(getattr(turnkeeper, "__all__", ()))
    assert offered == sorted(offered)
