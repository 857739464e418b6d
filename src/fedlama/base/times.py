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
        minutes = seconds / MINUTE
        return f"{minutes:.0f} min"
    if seconds < 2 * DAY:
        hours = seconds / HOUR
        return f"{hours:.1f} h"
    days = seconds / DAY
    return f"{days:,.0f} days"
