"""The store: every verb of the contract, on one schema of one PostgreSQL database."""

from outlast.store.contract import Capability
from outlast.store.postgres.life import PostgresLife
from outlast.store.postgres.operations.insight import PostgresViews
from outlast.store.postgres.operations.jobs import JobOperations
from outlast.store.postgres.parts.adding import AddOperations
from outlast.store.postgres.parts.around import PostgresAround
from outlast.store.postgres.parts.groups import PostgresGroups
from outlast.store.postgres.parts.moving import PostgresMoving
from outlast.store.postgres.parts.queues import PostgresQueues
from outlast.store.postgres.parts.running import PostgresRunning
from outlast.store.postgres.parts.schedules import PostgresSchedules
from outlast.store.postgres.parts.upkeep import PostgresUpkeep


class PostgresStore(
    PostgresLife,
    AddOperations,
    PostgresRunning,
    JobOperations,
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
            Capability.MAINTENANCE_CHECK,
        }
    )
