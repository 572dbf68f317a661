"""When a usage limit is over: a CLI's own words as a moment. Pure: now and the offset of local time are given."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT")
CLOCK: Final = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?\s*([ap]m)?$", re.IGNORECASE)
SPAN: Final = re.compile(r"(\d+)\s*([hms])", re.IGNORECASE)
SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def moment(words: str, now: float, offset_seconds: float) -> float | None:
    """Unix seconds of "2026-11-30T18:00Z", "6pm", "18:05" (the next one, in local time), or "2h 5m" from `now`."""
    if INSTANT.match(words):
        try:
            return datetime.fromisoformat(words).timestamp()
        except ValueError:
            return None
    clock = CLOCK.fullmatch(words.strip())
    if clock is not None and (clock[2] or clock[4]):
        hour, minute, second = int(clock[1]), int(clock[2] or 0), int(clock[3] or 0)
        half = (clock[4] or "").lower()
        if half and not 1 <= hour <= 12:
            return None
        if half:
            hour = hour % 12 + (12 if half == "pm" else 0)
        if hour > 23 or minute > 59 or second > 59:
            return None
        here = datetime.fromtimestamp(now, timezone(timedelta(seconds=offset_seconds)))
        at = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    spans = SPAN.findall(words)
    return now + sum(int(number) * SECONDS[unit.lower()] for number, unit in spans) if spans else None
