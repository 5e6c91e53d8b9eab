"""The SQL as it is written: known words only, and never put together from what comes in."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.core.audit.model import DanglingKind
from outlast.core.decide import Guard
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.group import ClosePolicy, GroupMode
from outlast.core.ordering import Ordering
from outlast.core.reservation import ReservationStatus
from outlast.core.schedule import SlotOutcome
from outlast.core.state import RunStatus, State
from outlast.store.sqlite.migrate import migrations
from outlast.store.sqlite.statements import statements

from .sqlite_helpers import SOURCES, SQL

STORE = SOURCES / "store"
STATUSES = {*RunStatus, *ReservationStatus}
LITERAL = re.compile(r"'((?:[^']|'')*)'")
STATE_COLUMN = re.compile(
    r"\b(?:state|to_state|expected_state)\s*(?:=|<>|!=|IS|IN)\s*(\([^()]*\)|'[^']*')"
)
STATUS_COLUMN = re.compile(r"\b(?:status|run_status)\s*(?:=|<>|!=|IS|IN)\s*(\([^()]*\)|'[^']*')")
OTHER_WORDS = {"sqlite_stat1", "outlast_*", "~",
    "active", "key", "window", "debounce",  # scopes of keys
    "ended",  # the guard `state`, once it is known to be an end
    "cancel_requested", "unfit_params",  # reasons
    "$[8]", "true",  # a worker that is stopping, in its description
    "%06x", "there is no job ", "job ", " has not ended", " has a successor already: ",
    "table", "outlast_meta",  # of the schema
    # The rows that strays are:
    "", "$[#]", " job=", " token=", " key=", " bucket=", " slot_at=", " first=",
    *(f"{table} {column}=" for table, column in (
        ("runs", "job"), ("waiting", "job"), ("open_runs", "job"), ("ends", "job"),
        ("events", "id"), ("reservations", "id"), ("groups", "id"), ("keys", "scope"),
        ("slots", "series"), ("jobs", "seq"), ("labels", "label"), ("logs", "job"),
    )), "outlast_", "events", "documents", "schedules",  # numbers that no row bears any more
    "keys scope=active key=", "sequential", "parallel",
}  # fmt: skip
BUILT_FROM_FILES = {("migrate.py", "statement"), ("guarded_connection.py", "args")}
"""What may be executed though it is no constant: a migration, and a handler's own statements."""
SQL_WORDS = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|ATTACH|VALUES|WHERE)\b\s"
)


def _bare(text: str) -> str:
    """Without comments."""
    return re.sub(r"--.*", "", text)


def _literals(text: str) -> set[str]:
    return set(LITERAL.findall(_bare(text)))


def _compared(columns: re.Pattern[str], text: str) -> set[str]:
    return {word for found in columns.findall(_bare(text)) for word in LITERAL.findall(found)}


def _modules() -> list[Path]:
    """All but those of a store that has such a test of its own."""
    return sorted(path for path in STORE.rglob("*.py") if "postgres" not in path.parts)


def _calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node


def _executed(path: Path) -> Iterator[ast.expr]:
    """The first argument of everything that runs SQL."""
    for call in _calls(path):
        if getattr(call.func, "attr", "").startswith("execute") and call.args:
            yield call.args[0]


def _is_fixed(argument: ast.expr, file: str) -> bool:
    match argument:
        case ast.Constant(value=str()):
            return True
        case ast.Subscript(value=ast.Call(func=ast.Name(id="statements"))):
            return True
        case ast.Name(id=name) | ast.Starred(value=ast.Name(id=name)):
            return (file, name) in BUILT_FROM_FILES
    return False


def _put_together(path: Path) -> Iterator[str]:
    """Text with holes in it: f-strings, `%`, `+`, `.format` and `.join`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.JoinedStr(values=parts):
                yield "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod() | ast.Add()):
                yield text
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format" | "join")
            ):
                yield text


@pytest.mark.parametrize("file", sorted(SQL.glob("*.sql")), ids=lambda file: file.name)
def test_states_in_the_statements_are_states_of_the_core(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    assert _compared(STATE_COLUMN, text) <= set(State)
    assert _compared(STATUS_COLUMN, text) <= STATUSES


@pytest.mark.parametrize("file", sorted(SQL.glob("*.sql")), ids=lambda file: file.name)
def test_every_word_in_the_statements_is_known(file: Path) -> None:
    known = {
        *State,
        *STATUSES,
        *SlotOutcome,
        *Guard,
        *Delivery,
        *Ordering,
        *EventKind,
        *DanglingKind,
    }
    known |= {*GroupMode, *ClosePolicy, *OTHER_WORDS}

    assert _literals(file.read_text(encoding="utf-8")) - known == set()


def test_states_in_the_schema_are_states_of_the_core() -> None:
    for script in migrations().values():
        assert _compared(STATE_COLUMN, script) <= set(State)
        assert _compared(STATUS_COLUMN, script) <= STATUSES


def test_state_literals_are_found_at_all() -> None:
    everything = "\n".join(statements().values())

    assert {"queued", "scheduled", "retry_wait", "succeeded"} <= _compared(STATE_COLUMN, everything)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.name)
def test_sql_that_is_run_is_a_constant_or_a_named_statement(path: Path) -> None:
    loose = [ast.unparse(text) for text in _executed(path) if not _is_fixed(text, path.name)]

    assert loose == []


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.name)
def test_no_sql_is_put_together_from_parts(path: Path) -> None:
    suspicious = [text for text in _put_together(path) if SQL_WORDS.search(text)]

    assert suspicious == []


def test_every_value_in_a_statement_is_bound_by_name() -> None:
    for name, text in statements().items():
        assert "?" not in _bare(text), name
        assert "{" not in _bare(text), name


def test_every_statement_is_one_statement() -> None:
    for name, text in statements().items():
        body = LITERAL.sub("''", _bare(text)).strip().removesuffix(";")

        assert ";" not in body, name


def test_every_statement_is_used_and_every_name_exists() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in _modules())
    used = set(re.findall(r'"((?:[a-z_]+)\.(?:[a-z_]+))"', code))

    assert used >= set(statements())
    assert {name for name in used if name.split(".")[0] in _files()} <= set(statements())


def _files() -> set[str]:
    return {file.stem for file in SQL.glob("*.sql")}
