"""The one guarded way out: requests to addresses that a user, a model or another server supplied (DESIGN 7).

`client.open_guarded` gives an HTTP client that speaks http and https only, looks at every address when it
connects (so a name that changes its mind is caught too, and so is each step of a redirect), reaches no private
range that is not listed, and bounds the size and the time of every answer. It is imported where it is used:
most runs of the command line need no HTTP client.
"""

from __future__ import annotations

from turnkeeper.outbound.addresses import Bounds, Reach

__all__ = ["Bounds", "Reach"]
