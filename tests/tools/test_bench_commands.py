"""The measurements still start: they share helpers with the tests, which nothing else checks."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import ELSEWHERE

ROOT = Path(__file__).parents[2]


NEEDS_PEERS = "postgres"
"""Imports the peers that it measures; they are installed by `make bench`."""


@pytest.mark.parametrize("words", [[], *([name] for name in ELSEWHERE.keys() - {NEEDS_PEERS})])
def test_every_measurement_can_be_started(words: list[str]) -> None:
    asked = [sys.executable, "-m", "bench", *words, "--help"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
