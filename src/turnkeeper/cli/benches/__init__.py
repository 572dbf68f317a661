"""Benches of the whole product: they need a Keeper or a server (those of single rooms are in testing/bench)."""

from __future__ import annotations
