"""Transfer of everything from one store to another; at any moment one of them accepts work."""

from outlast.transfer.copy import CopyResult, StoreCopy, address_of

__all__ = ["CopyResult", "StoreCopy", "address_of"]
