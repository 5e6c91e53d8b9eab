"""An app over a file of its own, a job type of it, and the bridge that waits for it."""

import pytest

from outlast import Outlast


@pytest.fixture
def app(tmp_path):
    return Outlast(f"sqlite:///{tmp_path / 'jobs.db'}", poll="20ms", tick="20ms")


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number * 2

    return send


@pytest.fixture
def wait(app):
    with app.sync() as wait:
        yield wait
