"""Moving everything from one store to another, with work going on at one of them at any moment."""

from outlast.transfer.copy import CopyResult, StoreCopy, address_of

__all__ = ["CopyResult", "StoreCopy", "address_of"]
