"""Tests of one file that share what is dear are run by one process, however many there are."""

import pytest


def test_tests_that_belong_together_stay_together(
    request: pytest.FixtureRequest, worker_id: str
) -> None:
    """Whoever distributes them reads it in their names; a version of his that does not is wrong."""
    is_told = request.node.nodeid.endswith(f"@{request.path.name}")

    assert is_told or worker_id == "master"
