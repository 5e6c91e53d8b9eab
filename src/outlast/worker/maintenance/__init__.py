"""Maintenance of a store: recovery, expired leases, reservations, groups and history."""
