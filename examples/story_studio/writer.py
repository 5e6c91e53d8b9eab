"""The program that a story job runs: it writes the story and logs its steps on stdout."""

import argparse
import sys
from pathlib import Path

NO_NOTES = 3
"""Exit code if there are no notes on the topic."""


def main() -> int:
    asked = _arguments()
    facts = [f"This is the first story about {asked.title}."]
    if asked.notes is not None:
        facts = _read(asked.notes)
    if not facts:
        print(f"there are no notes called {asked.notes.stem}; research them first")
        return NO_NOTES
    _write(asked.text, asked.title, [facts[page % len(facts)] for page in range(asked.pages)])
    return 0


def _read(notes: Path) -> list[str]:
    print(f"reading {notes.name}")
    return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []


def _write(text: Path, title: str, pages: list[str]) -> None:
    """Write the story atomically: a killed program leaves no partial file."""
    text.parent.mkdir(exist_ok=True)
    draft = text.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as paper:
        paper.write(f"{title}\n")
        for number, page in enumerate(pages, 1):
            paper.write(f"\n{number}. {page}\n")
            print(f"page {number} of {len(pages)}")
    draft.replace(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write a story.")
    parser.add_argument("title")
    parser.add_argument("text", type=Path, help="the file to write")
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--notes", type=Path, help="what it is about, a fact in each line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
