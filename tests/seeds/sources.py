"""Reads our own source: which statement writes which table, and which verb runs it."""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import outlast
from outlast.store.sqlite.statements import statements

SOURCE: Final = Path(outlast.__file__).parent
OPERATIONS: Final = SOURCE / "store" / "sqlite" / "operations"
WRITES: Final = re.compile(
    r"\b(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|UPDATE(?: OR \w+)?|DELETE FROM)\s+(outlast_\w+)",
    re.IGNORECASE,
)


@cache
def shipped_modules() -> Sequence[tuple[str, ast.Module]]:
    """Every module that works in production, by its path."""
    named = [(path.relative_to(SOURCE).as_posix(), path) for path in sorted(SOURCE.rglob("*.py"))]
    return tuple(
        (name, ast.parse(path.read_text(encoding="utf-8")))
        for name, path in named
        if not name.startswith("testing/")
    )


def texts(tree: ast.AST) -> set[str]:
    """Every text in that code."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


@cache
def written_by() -> Mapping[str, set[str]]:
    """The tables that each statement writes, for those that write any of ours."""
    found = {name: set(WRITES.findall(text)) for name, text in statements().items()}
    return {name: tables for name, tables in found.items() if tables}


@cache
def run_by_verb() -> Mapping[str, set[str]]:
    """The statements that each public verb runs, itself or through its helpers."""
    functions = {
        node.name: node
        for path in OPERATIONS.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {
        name: {
            text
            for each in _reached(name, functions)
            for text in texts(functions[each])
            if text in statements()
        }
        for name in functions
        if not name.startswith("_")
    }


def _reached(
    start: str, functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
) -> set[str]:
    reached, ahead = set[str](), [start]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            calls = (node for node in ast.walk(functions[name]) if isinstance(node, ast.Name))
            ahead += [call.id for call in calls if call.id in functions]
    return reached
