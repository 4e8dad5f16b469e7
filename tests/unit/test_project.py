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
    "arguments",
    "representation",
    "log",
    "frozen",
    "output.json_file",
    "output.uninterrupted",
    "output.partial",
    "output.rename",
    "output.atomic",
    "output.result_file",
    "output",
    "tokenizer.alphabet",
    "tokenizer.content_hash",
    "tokenizer.kind",
    "tokenizer.merge_tree",
    "tokenizer.sentencepiece",
    "tokenizer.families",
    "tokenizer.rank_file",
    "tokenizer.rewrite",
    "tokenizer.settings",
    "tokenizer.added",
    "tokenizer.upstream",
    "tokenizer.tokenizer",
    "tokenizer.edit",
    "tokenizer.edit_result",
    "tokenizer.inspect",
    "tokenizer.llama_cpp",
    "tokenizer",
    "formats.huggingface",
    "formats.sentencepiece",
    "formats.ranks",
    "formats.files",
    "formats.sources",
    "formats.priority",
    "formats.pieces",
    "formats.convert",
    "formats",
    "corpus.options",
    "corpus.files",
    "corpus.remote",
    "corpus.strings",
    "corpus.shards",
    "corpus.block",
    "corpus.arrow",
    "corpus.blocks",
    "corpus.input",
    "corpus.ranges",
    "corpus.open",
    "corpus.totals",
    "corpus.read",
    "corpus",
    "counts.fingerprint",
    "counts.pretoken_counts",
    "counts.partial",
    "counts.options",
    "counts.threads",
    "counts.engines.units",
    "counts.engines.ray",
    "counts.engines",
    "counts.count",
    "counts.batches",
    "counts.llama_cpp",
    "counts",
    "extend.extension",
    "extend.limits",
    "extend.parity",
    "extend.forms",
    "extend.word_merges",
    "extend.include",
    "extend.continued",
    "extend.cost",
    "extend.naive",
    "extend",
    "prune.leaves",
    "prune.order",
    "prune.remaining",
    "prune.removable",
    "prune.methods",
    "prune",
    "token_facts",
    "similar",
    "plan",
    "checkpoint.behaviour",
    "checkpoint.byte_ranges",
    "checkpoint.ids",
    "checkpoint.other_tables",
    "checkpoint.padding",
    "checkpoint.rows.interface",
    "checkpoint.rows.rescale",
    "checkpoint.rows.fvt",
    "checkpoint.rows.fvt_norm",
    "checkpoint.rows.fvt_script_norm",
    "checkpoint.rows.length_weighted",
    "checkpoint.rows.first_piece",
    "checkpoint.rows.last_piece",
    "checkpoint.rows.context",
    "checkpoint.rows.mean",
    "checkpoint.rows.mean_cov",
    "checkpoint.rows.random",
    "checkpoint.rows.weighted",
    "checkpoint.rows",
    "checkpoint.unused",
    "checkpoint.q8_0",
    "checkpoint.tensors",
    "checkpoint.copy_file",
    "checkpoint.layout",
    "checkpoint.table",
    "checkpoint.compare_files",
    "checkpoint.result",
    "checkpoint.tokenizer_files",
    "checkpoint.model_files",
    "checkpoint.weights",
    "checkpoint.gguf_file",
    "checkpoint.gguf_vocabulary",
    "checkpoint.gguf_base",
    "checkpoint.gguf_scores",
    "checkpoint.gguf_keys",
    "checkpoint.gguf",
    "checkpoint.memory_tables",
    "checkpoint.in_memory",
    "checkpoint.transplant",
    "checkpoint",
    "check.finding",
    "check.settings_file",
    "check.against_base",
    "check.transformers_loader",
    "check.rank_libraries",
    "check.verify",
    "check.prove",
    "check.invariants",
    "check.check",
    "check.save",
    "check.serving.stacks",
    "check.serving.auto_tokenizer",
    "check.serving.model_folder",
    "check.serving.model",
    "check.serving.transformers",
    "check.serving.vllm",
    "check.serving.llama_cpp",
    "check.serving.ollama",
    "check.serving.tiktoken",
    "check.serving.mistral_common",
    "check.serving.sentencepiece",
    "check.serving.check_serving",
    "check.serving",
    "check",
    "evaluate.evaluation",
    "evaluate.metrics",
    "evaluate.segments",
    "evaluate.documents",
    "evaluate.rate",
    "evaluate.support",
    "evaluate.curve",
    "evaluate.curves",
    "evaluate.size",
    "evaluate.measure",
    "evaluate.compare",
    "evaluate",
    "train.models",
    "train.chunks",
    "train.sequences",
    "train.score",
    "train.short_training",
    "train.probe_result",
    "train.probe",
    "train.snippets",
    "train.row_model",
    "train.learn_rows",
    "train.write_rows",
    "train.distill_result",
    "train.same_model",
    "train.distill",
    "train",
    "adapt.mix",
    "adapt.options",
    "adapt.cache",
    "adapt.inputs",
    "adapt.record",
    "adapt.protect",
    "adapt.result",
    "adapt.work",
    "adapt.distilled",
    "adapt.training",
    "adapt.vocabulary",
    "report.content",
    "report.pack",
    "report.examples",
    "report.samples",
    "report.data",
    "report.page",
    "report.adaptation",
    "report.report",
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
    "cli.interrupt",
    "cli.command_line",
    "cli.options",
    "cli.reading",
    "cli.rows",
    "cli.texts",
    "cli.learning",
    "cli.stacks",
    "cli.hardware",
    "cli.extended",
    "cli.report",
    "cli.report_option",
    "cli.adapted",
    "cli.adapt",
    "cli.check",
    "cli.compare",
    "cli.convert",
    "cli.count",
    "cli.curve",
    "cli.distill",
    "cli.evaluate",
    "cli.extend",
    "cli.inspect",
    "cli.plan",
    "cli.probe",
    "cli.prune",
    "cli.streams",
    "cli.transplant",
    "cli.main",
    "cli.completion",
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
            named = (
                [name for name in modules if name in LAYERS] if inside in ("", "cli", "check", "check.serving") else []
            )
            yield from named or [inside]


def test_every_module_has_its_layer():
    assert sorted(map(module_name, PACKAGE.rglob("*.py"))) == sorted(set(LAYERS) - {"_core"})


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=module_name)
def test_a_module_imports_only_from_the_layers_above_it(path):
    own = LAYERS.index(module_name(path))
    below = [name for name in imports(path) if LAYERS.index(name) >= own]
    assert not below, f"{module_name(path)} imports {below}, which stand below it in LAYERS"


def test_the_lazy_imports_are_those_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        (node.module.removeprefix("tokengraft."), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tokengraft")
        for alias in node.names
    }
    assert {(module, name) for name, module in tg._MODULE_OF.items()} == seen
    assert sorted(tg._MODULE_OF) == sorted(tg.__all__)
    assert all(name in dir(tg) for name in tg.__all__)


def test_a_public_name_is_itself_whatever_is_imported_first():
    """Importing a module of a package sets the package as an attribute, and some functions have the same name."""
    names = [name for name in tg.__all__ if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()]
    assert {"check", "extend", "plan"} <= set(names)
    modules = [f"tokengraft.{name}" for name in LAYERS if name and name != "__main__"]
    before = f"import tokengraft as tg; from tokengraft import {names[0]}; [getattr(tg, name) for name in {names[1:3]}]"
    after = f"print(*(type(getattr(tg, name)).__name__ for name in {tg.__all__}))"
    code = f"{before}\nimport {', '.join(modules)}\n{after}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "module" not in done.stdout.split()


def test_every_module_can_be_imported_first():
    """Public names are imported when they are used, in any order, so no module may rely on another being imported."""
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [module for module in sys.modules if module.startswith("tokengraft") and module[-5:] != "_core"]:
        del sys.modules[loaded]
    importlib.import_module(f"tokengraft.{name}")
"""
    names = [name for name in LAYERS if name not in ("_core", "", "__main__")]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tg.nothing


def test_importing_tokengraft_imports_nothing_heavy():
    heavy = {
        "numpy",
        "torch",
        "transformers",
        "tokenizers",
        "fsspec",
        "gguf",
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


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("inspect", ["numpy", "pyarrow", "rich", "tokengraft.checkpoint", "tokengraft.counts.count"]),
        ("count", ["numpy", "pyarrow", "rich", "tokengraft.checkpoint", "tokengraft.evaluate"]),
        ("extend", ["pyarrow", "rich", "tokengraft.report", "tokengraft.checkpoint.transplant"]),
        ("transplant", ["pyarrow", "rich", "torch", "tokengraft.report", "tokengraft.extend"]),
    ],
)
def test_a_command_imports_only_what_it_needs(command, unneeded):
    code = f"import sys, tokengraft.cli.{command}; print([name for name in {unneeded} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
