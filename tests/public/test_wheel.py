"""The wheel has everything in it, and works where nothing else of ours is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    ]
    subprocess.run([sys.executable, *build, str(ROOT)], check=True, timeout=240)
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    ours = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    packed = set(zipfile.ZipFile(wheel).namelist())

    assert ours - packed == set()
    assert any(name.endswith("entry_points.txt") for name in packed)


@pytest.mark.slow
def test_wheel_takes_a_job_from_nothing_to_its_end(wheel: Path, tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    zipfile.ZipFile(wheel).extractall(site)
    home.mkdir()

    def outlast(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "outlast", *args],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    outlast("init")
    job_id = outlast("enqueue", "-a", "jobs:app", "greet", '{"name": "Ada"}').strip()
    outlast("worker", "jobs:app", "--burst")
    assert "succeeded" in outlast("show", "-a", "jobs:app", job_id)
    outlast("verify", "-a", "jobs:app")
