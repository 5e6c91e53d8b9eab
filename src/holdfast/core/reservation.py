"""Reservations: a direct run holds its queue, so that nothing else is taken before it."""

from enum import StrEnum


class ReservationStatus(StrEnum):
    """How a reservation stands; every value but the first is final."""

    ACTIVE = "active"  # of its queue only its own job can be taken
    RELEASED = "released"  # it was used, or given back
    EXPIRED = "expired"  # whoever held it fell silent, or died
