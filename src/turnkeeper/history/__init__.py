"""From stored messages to what a model is given, and back to what a person sees.

- `feed`: `build_feed`, the one way to a feed; its values; `FeedBuilder` for conversations that grow.
- `rules`: the replay rules, one function each, in one visible ordered tuple.
- `attempts`, `confirmations`, `pairing`, `shape`: where the rules live; `wording`: what models are told.
- `leak`: tool-call markup that leaked into text, whole or while it streams.

Pure: no clock, no chance, no I/O. What depends on time arrives as a set of message ids whose expiry was
journaled before.
"""

from __future__ import annotations
