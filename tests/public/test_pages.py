"""Every block of the documentation runs, and prints what the page says it prints."""

import re
from pathlib import Path

import pytest
from pages import ROOT, play

from outlast.core.explain import GateCode

PAGES = [
    "docs/learn/quickstart.md",
    "docs/howto/executors.md",
    "docs/howto/progress-and-cancel.md",
    "docs/howto/read-jobs-and-results.md",
    "docs/howto/pydantic-models.md",
    "docs/howto/deploy-without-losing-jobs.md",
    "docs/howto/limits-and-retention.md",
    "docs/howto/fastapi.md",
    "docs/howto/why-a-job-waits.md",
    "docs/howto/order-and-groups.md",
    "docs/howto/schedules.md",
    "docs/howto/errors-to-sentry.md",
    "docs/howto/middleware-and-lifespan.md",
    "docs/howto/label-your-jobs.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_page_is_true_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    play((ROOT / page).read_text(), tmp_path)


def test_the_page_on_waiting_names_every_condition() -> None:
    page = (ROOT / "docs/howto/why-a-job-waits.md").read_text()

    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert named == {*GateCode} - {GateCode.ENDED, GateCode.RUNNING}


def test_a_page_that_is_not_true_is_found(tmp_path: Path) -> None:
    page = "```python\n# a.py\nprint(1)\n```\n\n```console\n$ python a.py\n2\n```\n"

    with pytest.raises(AssertionError, match="is not"):
        play(page, tmp_path)
