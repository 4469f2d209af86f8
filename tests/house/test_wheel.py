"""The wheel carries what zeroplan needs to run elsewhere, and nothing else."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

HOME = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What lies in a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(build, cwd=HOME, capture_output=True, check=True)
    (wheel,) = folder.glob("zeroplan-*.whl")
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_it(names: set[str]) -> None:
    files = {
        path.relative_to(HOME).as_posix()
        for path in (HOME / "zeroplan").rglob("*.*")
        if path.suffix != ".pyc"
    }
    assert "zeroplan/py.typed" in files
    assert files <= names


def test_the_hardware_profiles_are_in_it(names: set[str]) -> None:
    files = {
        path.relative_to(HOME).as_posix() for path in (HOME / "hardware_profiles").rglob("*.toml")
    }
    assert files
    assert {f"zeroplan/{file}" for file in files} <= names


def test_nothing_but_the_package_and_its_description_is_in_it(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"zeroplan"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_how_to_cite_and_the_version_of_the_profiles_are_in_it(names: set[str]) -> None:
    assert {"zeroplan/data/CITATION.cff", "zeroplan/hardware_profiles/CHANGELOG.md"} <= names
