"""The only place that names concrete classes and joins them: `Keeper.open` is here."""

from __future__ import annotations

from turnkeeper.app.keeper import OPERATOR, OWNER, Keeper

__all__ = ["OPERATOR", "OWNER", "Keeper"]
