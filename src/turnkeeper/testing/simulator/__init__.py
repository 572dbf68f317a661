"""Seeded simulation: whole worlds in virtual time, with faults, and checkers that never sleep.

`lane_world` drives the pure lane alone (a hundred thousand steps a second); `dispatch_world` drives the
real dispatcher over the memory store. Both draw everything from one seed: the same seed is the same run.
Each world first lets faults happen, then stops them and demands that the lane drains (liveness).
"""

from __future__ import annotations

from turnkeeper.testing.simulator.checker import Broken

__all__ = ["Broken"]
