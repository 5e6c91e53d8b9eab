"""Every Python block of the pages for users passes mypy --strict, pyright and a linter."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pages import ROOT

FOLDERS = ("learn", "howto", "operate", "reference")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md"))),
]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"# (\w+)\.py\n")
PUBLIC = {
    "outlast", "outlast.encryption", "outlast.sentry", "outlast.telemetry", "outlast.testing",
    "outlast.verify",
}  # fmt: skip
"""What a page may import from; everything else may change in any release."""

AROUND = """
from outlast import Outlast

app = Outlast("sqlite:///jobs.db")


@app.job(queue="story")
async def story(chapter: int) -> int:
    return chapter


async def main() -> None:
    async with app, app.worker(queues=["story"]):
"""
"""The app in which the blocks of an operator's page are read."""

UNTYPED = ["asyncpg"]
"""Drivers without type information."""


def modules() -> dict[str, str]:
    """The text of every block, by a module name that no other page has."""
    found: dict[str, str] = {}
    for page in PAGES:
        blocks = BLOCK.findall(page.read_text())
        names = [named[1] if (named := NAMED.match(text)) else None for text in blocks]
        prefix = re.sub(r"\W", "_", page.stem.lower())
        for number, (name, text) in enumerate(zip(names, blocks, strict=True)):
            is_fragment = re.search(r"^(await|async with|\w+ = await) ", text, re.MULTILINE)
            body = AROUND + textwrap.indent(text, " " * 8) if is_fragment else text
            local = "|".join(other for other in names if other)
            if local:  # the modules of one page import each other
                body = re.sub(rf"(?m)^from ({local}) import", rf"from {prefix}_\1 import", body)
            found[f"{prefix}_{name or number}"] = body
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    for name, text in modules().items():
        (made / f"{name}.py").write_text(text)
    return made


def test_a_page_imports_public_modules_only() -> None:
    found = {
        (page.name, module)
        for page in PAGES
        for module in re.findall(r"(?:from|import)\s+(outlast[\w.]*)", page.read_text())
    }

    assert {module for _, module in found} >= {"outlast", "outlast.testing"}
    assert {(page, module) for page, module in found if module not in PUBLIC} == set()


def test_public_modules_say_what_they_export() -> None:
    for name in PUBLIC - {"outlast.sentry", "outlast.verify"}:
        module = __import__(name, fromlist=["*"])
        assert sorted(module.__all__) == list(module.__all__)
        assert [each for each in module.__all__ if not hasattr(module, each)] == []


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_block_passes_mypy_strict(folder: Path) -> None:
    settings = folder / "mypy.ini"
    sections = [f"[mypy-{name}.*]\nignore_missing_imports = True" for name in UNTYPED]
    settings.write_text("\n".join(["[mypy]\nstrict = True", *sections]))
    cache = ROOT / ".mypy_cache" / "pages"

    done = _run(
        folder,
        *("mypy", f"--config-file={settings}", f"--cache-dir={cache}", "--no-error-summary", "."),
    )

    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_block_passes_pyright(folder: Path) -> None:
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))

    done = _run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)

    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(modules())
    found = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    assert [(Path(each["file"]).name, each["message"]) for each in found] == []


def test_no_block_has_an_unused_or_unknown_name(folder: Path) -> None:
    done = _run(
        folder,
        "ruff",
        "check",
        "--isolated",
        "--select=F",
        "--ignore=F841",
        "--output-format=concise",
        ".",
    )

    assert done.returncode == 0, done.stdout


def test_there_are_blocks_of_every_kind() -> None:
    found = modules()

    assert len(found) > 25
    assert {"readme_0", "quickstart_first", "test_your_jobs_test_orders", "queues_0"} <= set(found)


def _run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1400,  # most of it is SQLAlchemy, once: then mypy has it in its cache
        check=False,
    )
