"""Laws of the project itself: layers, light imports, one version, errors that are tested."""

import ast
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest

import tokengraft as tg
from tokengraft import errors

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tokengraft"
LAYERS = [
    "_core",
    "errors",
    "alphabet",
    "structure",
    "jsonfile",
    "atomic",
    "artefact",
    "kind",
    "piecemodel",
    "rewrite",
    "tokenizer",
    "formats.huggingface",
    "formats.sentencepiece",
    "formats.files",
    "formats.sources",
    "formats",
    "inspection",
    "fingerprint",
    "counts",
    "corpus",
    "counting",
    "edit",
    "extend.extension",
    "extend.continued",
    "extend.naive",
    "extend",
    "prune.removable",
    "prune.order",
    "prune.leaves",
    "prune.methods",
    "prune",
    "plan",
    "checkpoint.tensors",
    "checkpoint.layout",
    "checkpoint.ids",
    "checkpoint.rows.interface",
    "checkpoint.rows.fvt",
    "checkpoint.rows.fvt_norm",
    "checkpoint.rows.weighted",
    "checkpoint.rows.mean",
    "checkpoint.rows.mean_cov",
    "checkpoint.rows.random",
    "checkpoint.rows",
    "checkpoint.table",
    "checkpoint.proof",
    "checkpoint.transplant",
    "checkpoint.memory",
    "checkpoint.behaviour",
    "checkpoint",
    "verify",
    "check",
    "evaluate.metrics",
    "evaluate.evaluation",
    "evaluate.segments",
    "evaluate.measure",
    "evaluate",
    "curve",
    "comparison",
    "adapt._shim",
    "adapt.options",
    "adapt.result",
    "report.facts",
    "report.page",
    "report",
    "adapt.mix",
    "adapt.protect",
    "adapt.cache",
    "adapt.write",
    "adapt.checks",
    "adapt.vocabulary",
    "adapt.measure",
    "adapt.estimate",
    "adapt.adapt",
    "adapt",
    "show",
    "progress",
    "",
    "commands.options",
    "commands.inspect",
    "commands.count",
    "commands.extend",
    "commands.prune",
    "commands.plan",
    "commands.transplant",
    "commands.check",
    "commands.evaluate",
    "commands.compare",
    "commands.curve",
    "commands.adapt",
    "commands",
    "cli",
    "__main__",
]


def module_name(path):
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix("__init__").removesuffix(".")


def imports(path):
    """The modules of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tokengraft":
            inside = node.module.removeprefix("tokengraft").removeprefix(".")
            yield from ([alias.name for alias in node.names if alias.name in LAYERS] if not inside else []) or [inside]


def test_every_module_has_its_layer():
    assert sorted(map(module_name, PACKAGE.rglob("*.py"))) == sorted(set(LAYERS) - {"_core"})


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_name)
def test_a_module_imports_only_from_the_layers_above_it(path):
    own = LAYERS.index(module_name(path))
    below = [name for name in imports(path) if LAYERS.index(name) >= own]
    assert not below, f"{module_name(path)} imports {below}, which stand below it in LAYERS"


def test_importing_tokengraft_imports_nothing_heavy():
    heavy = {
        "torch",
        "transformers",
        "tokenizers",
        "huggingface_hub",
        "ray",
        "pyarrow",
        "rich",
        "sentencepiece",
    }
    code = f"import sys, tokengraft, tokengraft.cli; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_core_install_is_light():
    assert [r for r in requires("tokengraft") or [] if "extra ==" not in r] == [
        "numpy>=1.26",
        "pyarrow>=15",
        "rich>=13",
    ]


def test_there_is_one_version():
    assert tg.__version__ == version("tokengraft")
    assert f"## {tg.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_error_class_is_raised_in_a_test():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in classes if f"errors.{name}" not in source} == set()


def test_an_error_reads_as_message_and_hint():
    error = errors.TokengraftError("812 found, 8,000 asked", hint="pass --add 812")
    assert str(error) == "812 found, 8,000 asked\nhint: pass --add 812"
