"""The nouns: ids, parts, messages, turns, receipts, journal events, and their encoding.

Frozen values without behaviour that needs a clock. Everything above speaks in these words
(docs/glossary.md); this room imports nothing above it.
"""

from __future__ import annotations
