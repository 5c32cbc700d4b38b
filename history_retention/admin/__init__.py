"""The admin: the readout, prune, reclaim and vacuum with their confirmations, and the records."""

from . import holds, records, sweeps, threads, vendor

__all__ = ["holds", "records", "sweeps", "threads", "vendor"]
