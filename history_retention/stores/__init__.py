"""Every statement on a vendor's tables, one module a layout."""

from .opening import LAYOUTS, open_store, register

__all__ = ["LAYOUTS", "open_store", "register"]
