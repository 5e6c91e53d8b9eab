"""How much of everything the tests do: OUTLAST_SIZE is `check`, `test` (the default) or `full`.

`servers` is for stores of which each request takes milliseconds, in place of the first two.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

VARIABLE: Final = "OUTLAST_SIZE"
DEFAULT: Final = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One set of test sizes."""

    history_examples: int  # random histories per store
    history_steps: int  # steps in each of them
    batch_jobs: int  # jobs in one large call
    finished_jobs: int  # jobs that have ended before a start
    moves: int  # jobs moved to one place
    pruned_runs: int  # runs of one job that is pruned
    every_case_on_servers: bool  # etcd and DynamoDB; or one of each test's: requests take time
    crash_on_either_side: bool  # of a statement, or only before it
    race_processes: int  # processes that race for one thing
    race_rounds: int  # times that they do
    race_jobs: int  # jobs that they share out
    chaos_jobs: int  # jobs in a storm of killed workers
    chaos_kills: int  # workers killed in it
    chaos_deploys: int  # workers replaced under load
    chaos_trials: int  # handlers of each kind that block for four leases
    outage_jobs: int  # jobs while the database is killed
    outage_kills: int  # times that it is
    cut_workers: int  # workers whose network fails
    cut_seconds: tuple[float, ...]  # for so long, for all of them and for one alone
    slot_processes: int  # schedulers that race for twenty slots
    slot_minutes: int  # minutes of twenty schedules, of which some scheduler is always killed
    slot_kills: int  # times that one is
    logged_lines: int  # lines of one run that logs without end


_TEST: Final = Sizes(
    history_examples=6,
    history_steps=100,
    batch_jobs=120,
    finished_jobs=300,
    moves=12,
    pruned_runs=100,
    every_case_on_servers=False,
    crash_on_either_side=False,
    race_processes=4,
    race_rounds=6,
    race_jobs=120,
    chaos_jobs=400,
    chaos_kills=6,
    chaos_deploys=3,
    chaos_trials=4,
    outage_jobs=300,
    outage_kills=3,
    cut_workers=2,
    cut_seconds=(1,),
    slot_processes=8,
    slot_minutes=25,
    logged_lines=100_000,
    slot_kills=6,
)

_SERVERS: Final = replace(
    _TEST,
    history_examples=20,
    history_steps=30,
    batch_jobs=40,
    moves=6,
    pruned_runs=20,
    race_processes=3,
    race_rounds=4,
    race_jobs=40,
)

TABLE: Final[Mapping[str, Sizes]] = MappingProxyType(
    {
        "check": Sizes(
            history_examples=20,
            history_steps=100,
            batch_jobs=120,
            finished_jobs=300,
            moves=12,
            pruned_runs=50,
            every_case_on_servers=False,
            crash_on_either_side=False,
            race_processes=3,
            race_rounds=5,
            race_jobs=200,
            chaos_jobs=300,
            chaos_kills=4,
            chaos_deploys=3,
            chaos_trials=3,
            outage_jobs=200,
            outage_kills=2,
            cut_workers=2,
            cut_seconds=(1,),
            slot_processes=4,
            slot_minutes=10,
            logged_lines=20_000,
            slot_kills=3,
        ),
        "test": _TEST,
        "servers": _SERVERS,
        "full": Sizes(
            history_examples=10_000,
            history_steps=100,
            batch_jobs=1_000,
            finished_jobs=3_000,
            moves=100,
            pruned_runs=100_000,
            every_case_on_servers=True,
            crash_on_either_side=True,
            race_processes=8,
            race_rounds=200,
            race_jobs=2_000,
            chaos_jobs=10_000,
            chaos_kills=100,
            chaos_deploys=50,
            chaos_trials=50,
            outage_jobs=10_000,
            outage_kills=20,
            cut_workers=4,
            cut_seconds=(1, 4, 8, 12),
            slot_processes=50,
            slot_minutes=100,
            logged_lines=1_000_000,
            slot_kills=50,
        ),
    }
)

SIZES: Sizes
"""The sizes of this run. The environment is read when it is first asked for, not at import."""


def __getattr__(name: str) -> Sizes:
    if name != "SIZES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sizes(os.environ.get(VARIABLE, DEFAULT))


def sizes(name: str) -> Sizes:
    """The sizes called `name`; ValueError lists the names if there are none."""
    if name not in TABLE:
        raise ValueError(f"{VARIABLE} is {name!r}; use one of {', '.join(TABLE)}")
    return TABLE[name]
