"""PostgreSQL killed under load: nothing lost, no worker dies, and all go on by themselves.

How soon is measured by `python -m bench outages`.
"""

import pytest

from outlast.testing.conformance import sizes

from .outage import outages
from .worker_tree import QUICK, SHORT

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_a_database_that_is_killed_again_and_again_loses_nothing(tmp_path):
    kills, settings = sizes.SIZES.outage_kills, {**QUICK, **SHORT}

    after = outages(
        tmp_path, jobs=sizes.SIZES.outage_jobs, workers=2, kills=kills, settings=settings
    )

    assert len(after.acknowledged) >= sizes.SIZES.outage_jobs
    assert (after.lost, after.unfinished, after.violations) == ([], 0, ())
    assert after.casualties == []
    assert len(after.pauses) == kills
