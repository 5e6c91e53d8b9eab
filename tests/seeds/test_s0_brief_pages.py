"""S0: what is promised and what is not is written down, for readers and in the health."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daily_brief.promises import DOES_NOT_MEAN, GUARANTEED, NOT_GUARANTEED
from daily_brief.web import Web

from .brief_web import EXAMPLES, FOUND_IN, SINGLE, call
from .test_s1_studio import GUARD
from .timeouts import PATIENCE

ROOT = EXAMPLES.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Slots, in each topology\n", 1)[1].split("\n## ", 1)[0]
README = (EXAMPLES / "daily_brief" / "README.md").read_text(encoding="utf-8")


def rows() -> dict[str, dict[str, str]]:
    """What the page says of each promise, by topology."""
    lines = [line for line in SECTION.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {cells[0].lower(): dict(zip(head[1:], cells[1:], strict=True)) for cells in body}


@pytest.mark.req("S0-1.d")
def test_the_page_names_guarantees_and_non_guarantees_for_each_topology() -> None:
    said = rows()

    assert list(said) == [*(each.lower() for each in GUARANTEED), *NOT_GUARANTEED]
    for promise in GUARANTEED:
        assert said[promise.lower()]["`single`"].startswith(("yes", "yours"))
        assert said[promise.lower()]["`pool`"]
        assert "`test_" in said[promise.lower()]["test"]
    for promise in (*GUARANTEED, *NOT_GUARANTEED, *DOES_NOT_MEAN):
        assert promise in README


@pytest.mark.req("S0-3.f")
def test_page_and_health_list_what_a_single_worker_does_not_guarantee(tmp_path: Path) -> None:
    _, _, text = call(Web(tmp_path), "GET", "/healthz")

    said = rows()
    assert json.loads(text)["not_guaranteed"] == list(NOT_GUARANTEED)
    assert {said[each]["`single`"] for each in NOT_GUARANTEED} == {"not guaranteed"}


@pytest.mark.slow
@pytest.mark.req("S0-3.f")
def test_a_single_worker_opens_no_lock_on_any_network(tmp_path: Path) -> None:
    """Nor anything else: this brief has no feeds. What it locks are files."""
    site, asked = tmp_path / "site", tmp_path / "asked"
    site.mkdir()
    (site / "sitecustomize.py").write_text(GUARD)
    (tmp_path / "brief.toml").write_text("[feeds]\n")
    asked.touch()
    path = os.pathsep.join([str(site), FOUND_IN])

    done = subprocess.run(
        [sys.executable, "-m", "outlast", "worker", "daily_brief.worker:app", "--burst", *SINGLE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "ASKED": str(asked)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, asked.read_text()) == (0, ""), done.stderr
    assert "worker started" in done.stderr


@pytest.mark.req("S0-12.e")
def test_no_page_calls_a_once_job_exactly_once() -> None:
    pages = [ROOT / "README.md", *EXAMPLES.glob("*/README.md"), *(ROOT / "docs").rglob("*.md")]
    claims = [
        " ".join(paragraph.split())
        for page in pages
        if "requirements" not in page.parts
        for paragraph in re.split(r"\n\s*\n|\n- |\n\| ", page.read_text(encoding="utf-8"))
        if re.search(r"exactly[- ]once", paragraph, re.IGNORECASE)
    ]

    of_once = [claim for claim in claims if "`once`" in claim or "slot" in claim]
    assert any("not exactly once" in claim for claim in of_once)
    for claim in of_once:
        before = re.split(r"exactly[- ]once", claim, flags=re.IGNORECASE)[0]
        is_denied = before.endswith("not ") or "by distributed consensus" in claim
        is_of_rows = "run.transaction()" in before
        assert is_denied or is_of_rows, claim
    for word in DOES_NOT_MEAN:
        assert word in SECTION.split("It does not mean", 1)[1]
