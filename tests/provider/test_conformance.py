"""Every provider keeps every promise: the scripted fake, and each wire through its real client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provider.kits import WIRES, ScriptedKit, WireKit
from turnkeeper.testing.conformance.provider import PROVIDER_CASES


@pytest.mark.parametrize("case", PROVIDER_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("provider", ["scripted", *WIRES])
async def test_each_provider_keeps_the_promise(provider: str, case: Any) -> None:
    kit = ScriptedKit() if provider == "scripted" else WireKit(provider)
    try:
        await case(kit)
    finally:
        await kit.close()
