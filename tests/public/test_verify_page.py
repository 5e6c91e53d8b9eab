"""The page on `verify` says what the code says."""

import re
from pathlib import Path

from outlast.core.audit.violation import REPAIRS

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "verify.md"


def test_page_lists_every_violation_with_its_repair():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)

    assert [(code, repair) for code, _, repair in rows] == [*REPAIRS.items()]
