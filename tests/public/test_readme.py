"""Every Python block of the README runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number])

    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_readme_has_blocks() -> None:
    assert len(BLOCKS) >= 2
