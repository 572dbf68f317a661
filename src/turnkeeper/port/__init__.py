"""The Protocols between shells and drivers: Store, Runner, Clock, Provider. Drivers satisfy them by shape."""

from __future__ import annotations
