"""The store: every verb of the contract, on one schema of one PostgreSQL database."""

from holdfast.store.base import Capability
from holdfast.store.postgres.life import PostgresLife
from holdfast.store.postgres.parts.adding import PostgresAdding
from holdfast.store.postgres.parts.around import PostgresAround
from holdfast.store.postgres.parts.groups import PostgresGroups
from holdfast.store.postgres.parts.moving import PostgresMoving
from holdfast.store.postgres.parts.queues import PostgresQueues
from holdfast.store.postgres.parts.reading import PostgresReading
from holdfast.store.postgres.parts.running import PostgresRunning
from holdfast.store.postgres.parts.schedules import PostgresSchedules
from holdfast.store.postgres.parts.upkeep import PostgresUpkeep
from holdfast.store.postgres.parts.views import PostgresViews


class PostgresStore(
    PostgresLife,
    PostgresAdding,
    PostgresRunning,
    PostgresReading,
    PostgresQueues,
    PostgresGroups,
    PostgresSchedules,
    PostgresAround,
    PostgresViews,
    PostgresUpkeep,
    PostgresMoving,
):
    """Any number of processes on any number of hosts.

    `clock` is for tests: without one the database's clock judges everything.
    """

    capabilities = frozenset(
        {
            Capability.DURABLE,
            Capability.SHARED,
            Capability.TRANSACTIONS,
            Capability.SEALS,
            Capability.CHORES,
        }
    )
