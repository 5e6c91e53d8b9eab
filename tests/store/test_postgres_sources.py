"""The SQL of PostgreSQL as it is written: named statements, typed values, nothing loose."""

import ast
import re
from pathlib import Path

import pytest

from outlast.store.postgres.placeholders import TRANSACTION, in_schema, statements

from .sqlite_helpers import SOURCES

POSTGRES = SOURCES / "store" / "postgres"
NAME = re.compile(r'"([a-z_]+\.[a-z_]+)"')
LITERAL = re.compile(r"'(?:[^']|'')*'")
VALUE = re.compile(r"\$[0-9]+(?!::|[0-9])")
SQL_WORDS = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|VALUES|WHERE)\b\s")
FOR_PEOPLE = {"health.py"}
"""Says which statement mends something, and runs none."""


def _modules() -> list[Path]:
    return sorted(POSTGRES.rglob("*.py"))


def _files() -> set[str]:
    return {file.stem for file in (POSTGRES / "sql").glob("*.sql")} | {"unit_of_work"}


def test_every_statement_is_used_and_every_name_exists() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in _modules())
    for shared in ("audit.py", "labels.py"):
        code += (SOURCES / "store" / "rows" / shared).read_text(encoding="utf-8")
    used = {name for name in NAME.findall(code) if name.split(".")[0] in _files()}

    assert used - set(statements()) == set(), "these are not there"
    assert set(statements()) - used - set(TRANSACTION) == set(), "nobody runs these"


def test_every_value_says_its_type() -> None:
    """Or the planner guesses, and the driver refuses what another one would take."""
    loose = {name: VALUE.findall(each.text) for name, each in statements().items()}

    assert {name: found for name, found in loose.items() if found} == {}


def test_every_statement_is_one_statement() -> None:
    for name, each in statements().items():
        body = re.sub(r"\$\$.*?\$\$", "", LITERAL.sub("''", each.text), flags=re.DOTALL)

        assert ";" not in body, name


def test_schema_of_another_name_takes_the_place_of_ours_everywhere() -> None:
    for name, each in statements("elsewhere").items():
        assert "outlast." not in LITERAL.sub("''", each.text), name
    assert in_schema("SELECT outlast.micros()", "b") == 'SELECT "b".micros()'


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.name)
def test_no_sql_is_put_together_from_parts(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = [
        part.value
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if isinstance(part, ast.Constant)
    ]
    suspicious = [text for text in parts if SQL_WORDS.search(str(text))]

    assert suspicious == [] or path.name in FOR_PEOPLE
