"""The package's own ledger, and windows onto the agents' tables."""

from .batches import Batch
from .leases import Lease
from .ledger import Hold, Measurement, Sweep, Thread
from .vendor import (
    Checkpoint,
    CheckpointBlob,
    CheckpointWrite,
    Conversation,
    LangGraphWrite,
    Session,
)

__all__ = [
    "Batch",
    "Checkpoint",
    "CheckpointBlob",
    "CheckpointWrite",
    "Conversation",
    "Hold",
    "LangGraphWrite",
    "Lease",
    "Measurement",
    "Session",
    "Sweep",
    "Thread",
]
