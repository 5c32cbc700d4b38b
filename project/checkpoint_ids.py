"""Ids as LangGraph gives them to its checkpoints."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

GREGORIAN_START = datetime(1582, 10, 15, tzinfo=UTC)


def checkpoint_id_at(instant: datetime, sequence: int = 0) -> str:
    """Return a version-6 UUID of that instant (RFC 9562, section 5.6); ids of a sequence differ."""
    ticks = (instant - GREGORIAN_START) // timedelta(microseconds=1) * 10
    return str(
        UUID(
            int=(ticks >> 12) << 80
            | 0x6 << 76
            | (ticks & 0xFFF) << 64
            | 0x2 << 62
            | sequence & 0x3FFF_FFFF_FFFF_FFFF
        )
    )
