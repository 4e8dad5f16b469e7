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
    "frozen",
    "output.json_file",
    "output.partial",
    "output.rename",
    "output.atomic",
    "output.result_file",
    "output",
    "tokenizer.alphabet",
    "tokenizer.kind",
    "tokenizer.merge_tree",
    "tokenizer.sentencepiece",
    "tokenizer.rewrite",
    "tokenizer.settings",
    "tokenizer.upstream",
    "tokenizer.tokenizer",
    "tokenizer.edit",
    "tokenizer.edit_result",
    "tokenizer.inspect",
    "tokenizer",
    "formats.huggingface",
    "formats.sentencepiece",
    "formats.files",
    "formats.sources",
    "formats",
    "corpus.options",
    "corpus.blocks",
    "corpus.open",
    "corpus.totals",
    "corpus.read",
    "corpus",
    "counts.fingerprint",
    "counts.pretoken_counts",
    "counts.count",
    "counts",
    "extend.extension",
    "extend.continued",
    "extend.naive",
    "extend",
    "prune.leaves",
    "prune.order",
    "prune.remaining",
    "prune.removable",
    "prune.methods",
    "prune",
    "plan",
    "checkpoint.behaviour",
    "checkpoint.byte_ranges",
    "checkpoint.ids",
    "checkpoint.other_tables",
    "checkpoint.padding",
    "checkpoint.rows.interface",
    "checkpoint.rows.fvt",
    "checkpoint.rows.fvt_norm",
    "checkpoint.rows.mean",
    "checkpoint.rows.mean_cov",
    "checkpoint.rows.random",
    "checkpoint.rows.weighted",
    "checkpoint.rows",
    "checkpoint.tensors",
    "checkpoint.copy_file",
    "checkpoint.layout",
    "checkpoint.table",
    "checkpoint.compare_files",
    "checkpoint.result",
    "checkpoint.tokenizer_files",
    "checkpoint.model_files",
    "checkpoint.weights",
    "checkpoint.in_memory",
    "checkpoint.transplant",
    "checkpoint",
    "check.finding",
    "check.settings_file",
    "check.against_base",
    "check.verify",
    "check.invariants",
    "check.check",
    "check.save",
    "check",
    "evaluate.evaluation",
    "evaluate.metrics",
    "evaluate.segments",
    "evaluate.curve",
    "evaluate.measure",
    "evaluate.compare",
    "evaluate",
    "adapt.mix",
    "adapt.options",
    "adapt.cache",
    "adapt.protect",
    "adapt.result",
    "adapt.vocabulary",
    "report.data",
    "report.page",
    "report",
    "adapt.write",
    "adapt.checks",
    "adapt.estimate",
    "adapt.measure",
    "adapt.adapt",
    "adapt",
    "",
    "cli.display",
    "cli.progress",
    "cli.options",
    "cli.adapt",
    "cli.check",
    "cli.compare",
    "cli.count",
    "cli.curve",
    "cli.evaluate",
    "cli.extend",
    "cli.inspect",
    "cli.plan",
    "cli.prune",
    "cli.streams",
    "cli.transplant",
    "cli.main",
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
            modules = [f"{inside}.{alias.name}".removeprefix(".") for alias in node.names]
            # Other packages re-export functions that have the name of a module.
            named = [name for name in modules if name in LAYERS] if inside in ("", "cli", "check") else []
            yield from named or [inside]


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
    code = f"import sys, tokengraft, tokengraft.cli.main; print(*({heavy} & set(sys.modules)))"
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
    errors.OptionError: lambda _: tg.CountOptions(workers=0),
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
