"""Names and words a newcomer can read: checked over the sources and the docs."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "outlast"
MODULES = sorted([*PACKAGE.rglob("*.py"), ROOT / "src" / "pytest_outlast.py"])
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

PERSONS = re.compile(
    r"\b(?:whoever|whomever|whom|nobody|somebody|anybody|everybody|someone|anyone)\b", re.IGNORECASE
)
"""Processes, rows and transactions are not persons."""
MOST_PER_THOUSAND = 0.2
LONGEST_MODULE = 400
RIDDLES = frozenset(
    """
    alone aside around at_once board book borrow bundles byhand care complaint concerns crew
    deserted desk dossier drafts ear executing exchange family finding finishing following
    foreign footing found frame gather handed held hints holders keeper kept kin known leash
    leavings life lines lives making meeting moving notes pages patience place places
    placing plan pulse quick_start refuted reserving rhythm ruling seen session setting
    shape shelf slotting standing stock sweeping taking_over telling tell texts tidy
    together twins unit upkeep value verdict voice where work wreck writing
    """.split()  # noqa: SIM905 - a list of words
)
"""Module names that say nothing about what is inside."""


def test_processes_are_not_called_persons_in_sources_and_docs() -> None:
    words = [word for path in [*MODULES, *PAGES] for word in re.findall(r"\w+", _prose(path))]
    persons = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in [*MODULES, *sorted(PACKAGE.rglob("*.sql")), *PAGES]
        for found in PERSONS.findall(_prose(path))
    ]

    assert len(persons) * 1000 / len(words) <= MOST_PER_THOUSAND, "\n".join(persons)


def test_class_names_are_unique_in_the_package() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE.parent)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_modules_are_short() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {str(path): number for path, number in lines.items() if number > LONGEST_MODULE} == {}


def test_module_names_say_what_is_inside() -> None:
    assert [str(path) for path in MODULES if path.stem in RIDDLES] == []


def _prose(path: Path) -> str:
    """Return what a person reads: comments and strings of a module, all of any other file."""
    text = path.read_text(encoding="utf-8")
    return "\n".join(_spoken(text)) if path.suffix == ".py" else text


def _spoken(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield from re.findall(r"#.*", source)
