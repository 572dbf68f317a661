"""What is built and installed: the wheel, the sdist, the page inside them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hatch_build import PageBuildHook
from tests.surroundings import CHECKOUT

BUILD = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The names of the files in a wheel (whole paths) and in an sdist (below its folder)."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([*BUILD, str(out), str(CHECKOUT)], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as packed:
        return set(archive.namelist()), {name.partition("/")[2] for name in packed.getnames()}


def committed(folder: str) -> set[str]:
    """The files below `folder` that git holds."""
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout
    return {name for name in listed.splitlines() if (CHECKOUT / name).is_file()}


@pytest.mark.xdist_group("build")
def test_the_wheel_holds_every_file_of_the_package(built: tuple[set[str], set[str]]) -> None:
    wheel, _ = built
    wanted = {name.removeprefix("src/") for name in committed("src/turnkeeper")}
    assert wanted - wheel == set()
    assert "turnkeeper/py.typed" in wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


@pytest.mark.xdist_group("build")
def test_the_sdist_holds_what_a_wheel_is_built_from(built: tuple[set[str], set[str]]) -> None:
    _, sdist = built
    wanted = committed("src") | {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    assert wanted - sdist == set()


@pytest.mark.xdist_group("build")
def test_the_built_page_is_in_both(built: tuple[set[str], set[str]]) -> None:
    static = CHECKOUT / "src" / "turnkeeper" / "server" / "static"
    if not (static / "index.html").exists():
        assert not (CHECKOUT / "web" / "package.json").exists(), "`make web` first"
        pytest.skip("this checkout has no page yet")
    page = {path.relative_to(CHECKOUT / "src").as_posix() for path in static.rglob("*") if path.is_file()}
    wheel, sdist = built
    assert page - wheel == set()
    assert {f"src/{name}" for name in page} - sdist == set()


def hook(root: Path) -> PageBuildHook:
    """The build hook as hatchling makes it, for a checkout at `root`."""
    return PageBuildHook(str(root), {}, None, None, str(root), "wheel")  # type: ignore[arg-type]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a page to build."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "package.json").write_text("{}")
    return tmp_path


def test_without_npm_the_build_says_the_two_commands(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(RuntimeError, match="cd web && npm ci && npm run build"):
        hook(checkout).initialize("standard", {})


def test_with_npm_a_missing_page_is_built(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = checkout / "npm"
    npm.write_text(f'#!{shutil.which("sh")}\necho "$1" >> ../said\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(checkout))
    hook(checkout).initialize("standard", {})
    assert (checkout / "said").read_text().split() == ["ci", "run"]


@pytest.mark.parametrize("version", ["editable", "standard"])
def test_nothing_is_built_for_an_editable_install_or_when_the_page_is_there(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    if version == "standard":
        static = checkout / "src" / "turnkeeper" / "server" / "static"
        static.mkdir(parents=True)
        (static / "index.html").write_text("<!doctype html>")
    hook(checkout).initialize(version, {})
