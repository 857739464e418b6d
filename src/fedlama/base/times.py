"""Times as people plan with them: rough ones."""

from __future__ import annotations

MINUTE = 60.0
HOUR = 3600.0
DAY = 24 * HOUR


def about(seconds: float) -> str:
    """A rough time in a sentence: `under a minute`, `about 5 min`, `about 2.5 h`, `about 12 days`."""
    if seconds < MINUTE:
        return "under a minute"
    return f"about {rough_time(seconds)}"


def rough_time(seconds: float) -> str:
    """A rough time: `< 1 min`, `5 min`, `2.5 h`, `12 days`."""
    if seconds < MINUTE:
        return "< 1 min"
    if seconds < 90 * MINUTE:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.1f} h"
    return f"{seconds / DAY:,.0f} days"
