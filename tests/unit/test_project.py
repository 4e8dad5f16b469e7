"""Laws of the project itself: layers, light imports, one version, errors that are tested."""

import ast
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import builders
import checkpoints
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
    "streams",
    "rename",
    "partial",
    "atomic",
    "artefact",
    "kind",
    "piecemodel",
    "corpus.totals",
    "corpus.options",
    "corpus.blocks",
    "corpus.open",
    "corpus.read",
    "corpus",
    "settings",
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
    "counting",
    "edit",
    "extend.extension",
    "extend.continued",
    "extend.naive",
    "extend",
    "prune.removable",
    "prune.order",
    "prune.leaves",
    "prune.remaining",
    "prune.methods",
    "prune",
    "plan",
    "checkpoint.tensors",
    "checkpoint.ids",
    "checkpoint.other_tables",
    "checkpoint.layout",
    "checkpoint.tokenizer_files",
    "checkpoint.model_files",
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
    "checkpoint.behaviour",
    "checkpoint.transplant",
    "checkpoint.memory",
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


def bad_json(folder):
    (folder / "tokenizer.json").write_text("{")
    tg.load(folder)


def unigram(folder):
    (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    tg.load(folder)


def merge_without_product(folder):
    broken = builders.byte_level()
    broken["model"]["merges"].append(["ÿ", "ÿ"])
    tg.load(builders.write(folder, broken))


def damaged_weights(folder):
    checkpoints.checkpoint(folder)
    (folder / "model.safetensors").write_bytes(b"")
    tg.transplant(folder, folder, None)


def bad_counts(folder):
    (folder / "counts.parquet").write_bytes(b"")
    tg.PretokenCounts.load(folder / "counts.parquet")


def missing_text(folder):
    tg.count(tg.load(builders.write(folder, builders.byte_level())), folder / "missing.txt")


def existing_output(folder):
    tg.save(tg.load(builders.write(folder, builders.byte_level())), folder)


CAUSES = {
    errors.SourceNotFoundError: tg.load,
    errors.UnreadableFileError: bad_json,
    errors.UnsupportedTokenizerError: unigram,
    errors.InvalidTokenizerError: merge_without_product,
    errors.CorpusError: missing_text,
    errors.CountsError: bad_counts,
    errors.CheckpointError: damaged_weights,
    errors.OptionError: lambda _: tg.Effort(workers=0),
    errors.OutputError: existing_output,
}
"""A mistake for each error, made in an empty folder."""


@pytest.mark.parametrize("error", errors.TokengraftError.__subclasses__(), ids=lambda error: error.__name__)
def test_a_mistake_ends_in_the_error_that_is_meant_for_it(tmp_path, error):
    with pytest.raises(errors.TokengraftError) as caught:
        CAUSES[error](tmp_path)
    assert caught.type is error
    assert caught.value.hint


def test_an_error_reads_as_message_and_hint():
    error = errors.TokengraftError("812 found, 8,000 asked", hint="pass --add 812")
    assert str(error) == "812 found, 8,000 asked\nhint: pass --add 812"
