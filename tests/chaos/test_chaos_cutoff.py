"""Workers on PostgreSQL without their network keep their runs: a free lock proves no death.

With default settings, and longer outages, `python -m bench outages` measures the same.
"""

import pytest

from outlast.testing.conformance import sizes
from outlast.testing.servers.postgres import postgres_server
from support.servers.pg_standby import promote, standby_of

from .cutoff import Outage, cut_off
from .worker_tree import LONG, QUICK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = {**QUICK, **LONG}
"""A lease that outlasts every outage: only a free lock could cost a run."""


def test_living_workers_that_lose_their_network_keep_their_runs(tmp_path, postgres):
    workers = sizes.SIZES.cut_workers
    everywhere = [
        Outage(workers, seconds, one_returns_first=True) for seconds in sizes.SIZES.cut_seconds
    ]
    one_alone = [Outage(1, seconds) for seconds in sizes.SIZES.cut_seconds]

    after = cut_off(
        tmp_path, postgres, workers=workers, outages=everywhere + one_alone, settings=SETTINGS
    )

    assert after.is_clean, after


def test_living_workers_whose_standby_is_promoted_keep_their_runs(tmp_path):
    workers = sizes.SIZES.cut_workers
    with postgres_server() as primary, standby_of(primary) as standby:

        def fail_over():
            promote(standby, primary)
            return standby

        after = cut_off(
            tmp_path,
            primary,
            workers=workers,
            outages=[Outage(workers, 0, one_returns_first=True)],
            settings=SETTINGS,
            move=fail_over,
        )

    assert after.is_clean, after
