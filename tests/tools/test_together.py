"""Tests of one file that share an expensive fixture run in one process."""

import pytest


def test_tests_that_belong_together_stay_together(
    request: pytest.FixtureRequest, worker_id: str
) -> None:
    """xdist reads the group from the node id; versions that do not are not supported."""
    has_group = request.node.nodeid.endswith(f"@{request.path.name}")

    assert has_group or worker_id == "master"
