"""List the requirements with the tests that prove them, the open ones and the waiting ones."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
STATES = ("proved", "not yet", "waiting")
WAITS_FOR = re.compile(
    "schedules|templates|reservations|moves and edits|queue limits|groups|worker process"
    "|boot recovery|command runs|command line|story studio|daily brief|companion|coin prices"
    "|cluster|governance|postgresql|dynamodb|etcd|http api|webhooks|dashboard|sentry|metrics"
    "|guarantees page|verify"
)
ROW = re.compile(r"\|\s*S\d+-")
CELL_END = re.compile(r"(?<!\\)\|")  # a pipe inside a cell is written \|
HEADING = re.compile(r"#{1,2} (S\d+(?:-[A-Z\d.]+)?):? (.+)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row of the tables."""

    id: str
    text: str
    check: str
    waits_for: str
    where: str

    @property
    def system(self) -> str:
        return self.id.partition("-")[0]

    @property
    def section(self) -> str:
        return self.id.rpartition(".")[0]

    @property
    def targets(self) -> list[str]:
        """The IDs this row is an alias of; none when it has a check of its own."""
        names = self.check.removeprefix("=") if self.check.startswith("=") else ""
        return [name.strip() for name in names.split(",") if name.strip()]


@dataclass(frozen=True, slots=True)
class Claim:
    """A test that says it proves an ID."""

    id: str
    test: str
    where: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests say about a row; an alias stands and waits with its targets."""

    row: Requirement
    state: str
    tests: list[str]
    waits_for: list[str]


Rows = dict[str, Requirement]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(argv: Sequence[str] | None = None) -> int:
    options = read_options(argv)
    problems: list[str] = []
    titles, rows = read_tables(options.root, problems)
    claims = read_markers(options.root, problems)
    problems += wrong_tables(rows) + wrong_claims(rows, claims)
    chosen = [verdict for verdict in judge(rows, claims) if is_chosen(verdict.row, options)]
    if not chosen:
        problems.append("no requirement is in that system and section; see docs/requirements")
    wanted = {"not yet"} if options.open else {"proved", "not yet", "waiting"}
    shown = [] if options.totals else [v for v in chosen if v.state in wanted]
    print(as_json(shown, chosen, problems) if options.json else as_text(shown, chosen, titles))
    print("".join(f"requirements: {problem}\n" for problem in problems), end="", file=sys.stderr)
    return 1 if problems else 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="requirements", description=__doc__)
    parser.add_argument("--system", help="only this system, for instance S1")
    parser.add_argument("--section", default="", help="only this one and those below: S1-2.1, S1-4")
    parser.add_argument(
        "--open", action="store_true", help="only requirements that are neither proved nor waiting"
    )
    parser.add_argument("--totals", action="store_true", help="only the totals")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="root folder of the project")
    return parser.parse_args(argv)


def is_chosen(row: Requirement, options: argparse.Namespace) -> bool:
    is_below = not options.section or f"{row.section}.".startswith(f"{options.section}.")
    return is_below and options.system in {None, row.system}


# The tables


def read_tables(root: Path, problems: list[str]) -> tuple[dict[str, str], Rows]:
    titles: dict[str, str] = {}
    rows: Rows = {}
    for where, line in lines_of(root, "docs/requirements", "s*.md"):
        if heading := HEADING.fullmatch(line):
            titles[heading[1]] = heading[2]
        elif ROW.match(line):
            read_row(line, where, rows, problems)
    return titles, rows


def lines_of(root: Path, folder: str, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted((root / folder).glob(pattern)):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(root).as_posix()}:{number}", line


def read_row(line: str, where: str, rows: Rows, problems: list[str]) -> None:
    cells = [cell.strip().replace(r"\|", "|") for cell in CELL_END.split(line)[1:-1]]
    if len(cells) != len(("ID", "Requirement", "Check", "Waits for")) or not all(cells[:3]):
        problems.append(f"{where}: a row is ID | Requirement | Check | Waits for; fix its cells")
    elif cells[0] in rows:
        problems.append(f"{where}: {cells[0]} is already at {rows[cells[0]].where}; drop one")
    else:
        name, text, check, waits_for = cells
        rows[name] = Requirement(name, text, check, waits_for, where)


def wrong_tables(rows: Rows) -> list[str]:
    return [
        f"{row.where}: {row.id} {wrong}" for row in rows.values() for wrong in faults(row, rows)
    ]


def faults(row: Requirement, rows: Rows) -> Iterator[str]:
    for target in row.targets:
        if target not in rows:
            yield f"is an alias of {target}, which is in no table; name one that is"
    if row.id in behind(row, rows):
        yield "is an alias that leads back to itself; give one row of the circle a check"
    if row.targets and row.waits_for:
        yield "is an alias and waits with its target; empty its own Waits for"
    if row.waits_for and not WAITS_FOR.fullmatch(row.waits_for):
        words = WAITS_FOR.pattern.replace("|", ", ")
        yield f'waits for "{row.waits_for}", which is none of: {words}'


def behind(row: Requirement, rows: Rows) -> list[str]:
    """Every ID an alias leads to, through other aliases too; ends even in a circle."""
    found: list[str] = []
    ahead = row.targets
    while ahead:
        target = ahead.pop(0)
        if target in rows and target not in found:
            found.append(target)
            ahead += rows[target].targets
    return found


# The markers, read from the syntax tree so that no test is imported


def read_markers(root: Path, problems: list[str]) -> list[Claim]:
    claims: list[Claim] = []
    for path in sorted((root / "tests" / "seeds").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            problems.append(f"{name}:{error.lineno}: {error.msg}; fix the syntax")
        else:
            claims += claims_in(tree.body, name, [])
    return claims


def claims_in(body: list[ast.stmt], name: str, marks: list[ast.expr]) -> Iterator[Claim]:
    marks = marks + [mark for node in body for mark in shared_marks(node)]
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from claims_in(node.body, f"{name}::{node.name}", marks + node.decorator_list)
        elif isinstance(node, Function) and node.name.startswith("test"):
            yield from claims_of(f"{name}::{node.name}", marks + node.decorator_list)


def shared_marks(node: ast.stmt) -> list[ast.expr]:
    """What `pytestmark = …` gives every test of a module or class."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return []
    names = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not any(isinstance(name, ast.Name) and name.id == "pytestmark" for name in names):
        return []
    return list(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else [node.value]


def claims_of(test: str, marks: list[ast.expr]) -> Iterator[Claim]:
    # A test that never runs, or is expected to fail, proves nothing.
    if {"skip", "xfail"} & {mark_name(mark) for mark in marks}:
        return
    for mark in marks:
        if isinstance(mark, ast.Call) and mark_name(mark) == "req":
            for argument in mark.args:
                is_text = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                name = ast.literal_eval(argument) if is_text else ast.unparse(argument)
                yield Claim(name, test, f"{test.partition('::')[0]}:{mark.lineno}")


def mark_name(node: ast.expr) -> str:
    """`req` for `pytest.mark.req(…)`, `skip` for `pytest.mark.skip`, nothing for the rest."""
    name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    return name.removeprefix("pytest.mark.") if name.startswith("pytest.mark.") else ""


def wrong_claims(rows: Rows, claims: list[Claim]) -> list[str]:
    proof = {claim.id: claim.test for claim in reversed(claims)}
    unknown = [
        f"{claim.where}: {claim.id} is in no table; fix the marker"
        for claim in claims
        if claim.id not in rows
    ]
    early = [
        f"{row.where}: {row.id} is proved by {proof[row.id]}; empty its Waits for"
        for row in rows.values()
        if row.waits_for and row.id in proof
    ]
    return list(dict.fromkeys(unknown + early))  # a module's marker claims once for each test


# The report


def judge(rows: Rows, claims: list[Claim]) -> list[Verdict]:
    tests: dict[str, dict[str, None]] = {}  # a dictionary keeps order and drops repeats
    for claim in claims:
        tests.setdefault(claim.id, {})[claim.test] = None
    proved = with_aliases(rows, set(tests))
    verdicts = []
    for row in rows.values():
        needs = [row, *(rows[name] for name in behind(row, rows))]
        waits = dict.fromkeys(need.waits_for for need in needs if need.id not in proved)
        phrases = [phrase for phrase in waits if phrase and row.id not in proved]
        state = "proved" if row.id in proved else "waiting" if phrases else "not yet"
        verdicts.append(Verdict(row, state, list(tests.get(row.id, ())), phrases))
    return verdicts


def with_aliases(rows: Rows, proved: set[str]) -> set[str]:
    """Add every alias whose targets are all proved, until there is none left to add."""
    aliases = {row.id: row.targets for row in rows.values() if row.targets}
    while (
        more := {name for name, targets in aliases.items() if proved.issuperset(targets)} - proved
    ):
        proved = proved | more
    return proved


def as_json(shown: list[Verdict], chosen: list[Verdict], problems: list[str]) -> str:
    totals = {name: counts(verdicts) for name, verdicts in by_system(chosen).items()}
    report = {
        "requirements": [
            {"id": verdict.row.id, "section": verdict.row.section, **asdict(verdict)}
            for verdict in shown
        ],
        "totals": totals,
        "problems": problems,
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def as_text(shown: list[Verdict], chosen: list[Verdict], titles: dict[str, str]) -> str:
    lines: list[str] = []
    section = ""
    for verdict in shown:
        if verdict.row.section != section:
            section = verdict.row.section
            lines += ["", f"{section}  {titles.get(section, '')}".rstrip()]
        lines += lines_for(verdict)
    lines.append("")
    for name, verdicts in by_system(chosen).items():
        figures = "  ".join(f"{state} {count:>3}" for state, count in counts(verdicts).items())
        lines.append(f"{name:<4} {figures}  of {len(verdicts):>3}  {titles.get(name, '')}".rstrip())
    return "\n".join(lines).lstrip("\n")


def lines_for(verdict: Verdict) -> list[str]:
    head = f"  {verdict.state:<8} {verdict.row.id:<10} "
    alias = f"(= {', '.join(verdict.row.targets)}) " if verdict.row.targets else ""
    waits = f"[{', '.join(verdict.waits_for)}] " if verdict.waits_for else ""
    text = shorten(waits + alias + verdict.row.text, WIDTH - len(head), placeholder=" …")
    first, *others = verdict.tests or [text]
    return [head + first, *(" " * len(head) + test for test in others)]


def by_system(verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    systems: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        systems.setdefault(verdict.row.system, []).append(verdict)
    return {**systems, "all": verdicts}


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    counter = Counter(verdict.state for verdict in verdicts)
    return {state: counter[state] for state in STATES}


if __name__ == "__main__":
    sys.exit(main())
