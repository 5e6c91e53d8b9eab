"""The page of benchmarks says what was measured, our losses too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.pg import marks
from bench.pg.rows import Row, lost
from bench.pg.tables import page

ROOT = Path(__file__).resolve().parents[2]
SPEED = Row(
    label="drain",
    unit="jobs/s",
    values={"outlast": [300.0, 400.0, 500.0], "pgqueuer": [100.0, 200.0, 100.0]},
)
DELAY = Row(
    label="pick-up",
    unit="ms",
    values={"outlast": [4.0], "pgqueuer": [2.0], "procrastinate": [8.0]},
    digits=2,
    low_is_good=True,
)
FOUND = {
    "machine": {
        "date": "2026-01-02",
        "python": "3.11",
        "postgresql": "18.4",
        "cores": 2,
        "flush, us": 100,
        "rounds": 3,
        "load before": 0.1,
        "load afterwards": 0.2,
        "versions": {"pgqueuer": "1.6"},
    },
    "rows": {"drain": [SPEED.as_dict()], "latency": [DELAY.as_dict()]},
}


def test_ratio_is_of_each_round_and_then_the_median():
    ratio = SPEED.ratio("pgqueuer")

    assert ratio is not None
    assert (list(ratio.values), ratio.middle) == ([3.0, 2.0, 5.0], 3.0)


def test_ratio_above_one_is_better_where_less_is_more():
    ratios = {peer: DELAY.ratio(peer) for peer in ("pgqueuer", "procrastinate")}

    assert {peer: ratio and ratio.middle for peer, ratio in ratios.items()} == {
        "pgqueuer": 0.5,
        "procrastinate": 2.0,
    }


def test_side_that_was_not_measured_has_no_ratio():
    assert SPEED.ratio("procrastinate") is None


def test_page_names_every_loss():
    assert [(row.label, peer) for row, peer, _ in lost([SPEED, DELAY])] == [("pick-up", "pgqueuer")]
    assert "- pick-up: pgqueuer has 2.00 against our 4.00 ms (2.00x)" in page(FOUND)


def test_page_shows_median_and_spread_of_each_side_and_its_ratio():
    shown = "| drain | jobs/s | 400 (300-500) | 100 (100-200) | 3.00 (2.00-5.00)x |  |"

    assert shown in page(FOUND).splitlines()


def test_same_figures_give_the_same_page():
    again = {
        **FOUND,
        "rows": {
            what: [Row.from_dict(r).as_dict() for r in rows] for what, rows in FOUND["rows"].items()
        },
    }

    assert page(again) == page(FOUND)


@pytest.mark.parametrize("processes", [1, 2])
def test_marks_of_all_processes_are_counted(tmp_path, processes):
    program = "from bench.pg import marks; [marks.hit(0.0) for _ in range(3)]"
    env = {**os.environ, marks.FOLDER: str(tmp_path)}
    for _ in range(processes):
        subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, check=True)

    found = marks.read(tmp_path)

    assert (found.count, len(found.waits)) == (3 * processes, 3 * processes)
    assert marks.count(tmp_path) == 3 * processes
    assert found.first > 0
    marks.clear(tmp_path)
    assert marks.read(tmp_path).count == 0
