"""Laws of the project itself: layers, light imports, one version, errors that are tested."""

import ast
import functools
import inspect
import os
import pickle
import re
import subprocess
import sys
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from importlib.metadata import requires, version
from pathlib import Path

import builders
import checkpoints
import pytest

import tokengraft as tg
from tokengraft import errors
from tokengraft.options.commands import COMMANDS
from tokengraft.options.table import TABLE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tokengraft"
FOLDERS = [
    "_core",
    "errors",
    "output",
    "representation",
    "progress",
    "tokenizer",
    "vocab_plan",
    "formats",
    "corpus",
    "counts",
    "distributed",
    "learn",
    "pruning",
    "checkpoint",
    "measure",
    "verify",
    "page",
    "training",
    "options",
    "pipeline",
    "cli",
    "__main__",
]
"""Folders and single modules of the package. Each imports only from those before it."""


def modules():
    """The modules of the package, with their files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"), path


def test_folders_import_only_from_the_folders_before_them():
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if module != "__init__" else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tokengraft":
                names = [
                    f"{node.module}.{alias.name}".split(".")[1] for alias in node.names if alias.name != "__version__"
                ]
                later = [name for name in names if FOLDERS.index(name) > FOLDERS.index(module.split(".")[0])]
                assert not later, f"{module} imports {later}"


def test_the_lazy_imports_are_those_that_type_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        (node.module.removeprefix("tokengraft."), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tokengraft")
        for alias in node.names
    }
    assert {(module, name) for name, module in tg._MODULE_OF.items()} == seen
    assert {name for name in tg.__all__ if not inspect.ismodule(getattr(tg, name))} == {*tg._MODULE_OF}
    assert len([name for name in dir(tg) if not name.startswith("_")]) <= 46
    assert [name for name in dir(tg) if not name.startswith("__") or name in tg.__all__] == sorted(tg.__all__)


def test_no_folder_has_the_name_of_a_public_function():
    functions = {name for name in tg.__all__ if inspect.isfunction(getattr(tg, name))}
    assert not functions & {module.split(".")[0] for module, _ in modules()}


def test_every_module_with_a_public_name_can_be_imported_first(tmp_path):
    """Public names are imported when they are used, in any order, so no module may rely on another being imported."""
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [module for module in sys.modules if module.startswith("tokengraft") and module[-5:] != "_core"]:
        del sys.modules[loaded]
    importlib.import_module(f"tokengraft.{name}")
"""
    names = sorted({*tg._MODULE_OF.values(), *(name for name in tg.__all__ if inspect.ismodule(getattr(tg, name)))})
    compiled_once = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=compiled_once)
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


def word_level(folder):
    (folder / "tokenizer.json").write_text('{"model": {"type": "WordLevel", "vocab": {}}}')
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
    errors.UnsupportedTokenizerError: word_level,
    errors.InvalidTokenizerError: merge_without_product,
    errors.CorpusError: missing_text,
    errors.CountsError: bad_counts,
    errors.CheckpointError: damaged_weights,
    errors.OptionError: lambda _: tg.CountOptions(workers=0),
    errors.OutputError: existing_output,
}
"""A mistake for each error, made in an empty folder."""


OURS = [error for error in errors.TokengraftError.__subclasses__() if error.__module__.startswith("tokengraft.")]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_a_mistake_ends_in_the_error_that_is_meant_for_it(tmp_path, error):
    with pytest.raises(errors.TokengraftError) as caught:
        CAUSES[error](tmp_path)
    assert caught.type is error
    assert caught.value.hint


def test_an_error_reads_as_message_and_hint():
    error = errors.TokengraftError("812 found, 8,000 asked", hint="give more text")
    assert str(error) == "812 found, 8,000 asked\nhint: give more text"


def test_an_error_names_arguments_in_python_and_options_on_the_command_line():
    def made():
        hint = f"pass {errors.option('add', 8000)}, {errors.option('ids', 'keep')} or {errors.option('out', 'PATH')}"
        return errors.OptionError(f"{errors.option('max_add')} is `a --b`", hint=hint)

    assert str(made()) == "`max_add` is `a --b`\nhint: pass `add=8000`, `ids='keep'` or `out=PATH`"
    with errors.on_command_line():
        error = made()
    assert str(error) == "--max-add is `a --b`\nhint: pass --add 8000, --ids keep or --out PATH"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_command_that_fails_names_options_and_a_function_names_arguments(tmp_path, tokengraft):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    with pytest.raises(errors.OptionError) as caught:
        tg.adapt(folder, target="et.txt", swap=5, add=5, out=tmp_path / "out")
    assert "--" not in str(caught.value)
    arguments = ["adapt", str(folder), "--target", "et.txt", "--swap", "5", "--add", "5", "--out", str(tmp_path / "o")]
    shown = tokengraft(*arguments, code=2).err
    assert "error: --swap 5 was given together with --add 5" in shown
    assert "hint: pass --swap N alone" in shown


FLAGS_OF_COMMANDS = (
    *("cli", "options/commands.py", "options/option.py", "options/table.py"),  # only commands show these
    *("verify/model_folder.py", "verify/check_serving.py"),  # the next command, and options of other programs
)
FLAGS_OF_RECORDS = {
    *(
        "checkpoint/blend.py",
        "checkpoint/gguf_vocabulary.py",
        "checkpoint/model_job.py",
        "checkpoint/adapter_transplant.py",
    ),
    *("errors.py", "learn/include.py", "measure/compare.py", "pipeline/edit.py"),
    *("pipeline/prepare.py", "pipeline/result.py", "pipeline/vocabulary.py", "pipeline/write.py"),
    *("pruning/order.py", "training/callbacks.py", "training/train.py"),
}
"""Modules with warnings and commands that cards and records have. They name flags, whoever reads them."""


@functools.cache
def library_modules():
    """Every module that words errors for Python and for commands, parsed, with its path."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    named = {name: path for name, path in paths.items() if not name.startswith(FLAGS_OF_COMMANDS)}
    return [(name, ast.parse(path.read_text(encoding="utf-8"))) for name, path in named.items()]


def is_error(node):
    """Whether a message inside this node is one of an error."""
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return (
        isinstance(node, ast.Raise) or getattr(node, "arg", "") == "hint" or re.search("Error$|require|refuse", called)
    )


def flags_in(tree):
    """The texts that name an option as a flag, and whether each is part of an error. Docstrings are left out."""
    nodes = [*ast.walk(tree)]
    of_errors = {id(part) for node in nodes if is_error(node) for part in ast.walk(node)}
    seen = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if id(node) not in seen and isinstance(node, ast.JoinedStr | ast.Constant):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "value" for part in parts)
            if options_in(text) and not text.startswith("tokengraft "):
                yield text, id(node) in of_errors
        seen |= {*map(id, parts)}


def argument_names():
    """The names of all arguments and fields of the Python API."""
    modules = [tg, *(value for name in tg.__all__ if inspect.ismodule(value := getattr(tg, name)))]
    public = [getattr(module, name) for module in modules for name in module.__all__]
    classes = [value for value in public if inspect.isclass(value)]
    methods = [getattr(method, "__func__", method) for value in classes for method in vars(value).values()]
    functions = [value for value in (*public, *methods) if inspect.isfunction(value)]
    fields = {field.name for value in classes if is_dataclass(value) for field in dataclass_fields(value)}
    return fields | {name for function in functions for name in inspect.signature(function).parameters}


def options_in(text):
    """The options that a text names outside commands, which are in backticks."""
    return [*filter(None, re.findall(r"`(?!--)[^`]*`|(?:^|[\s(`])(--[a-z][a-z-]+)`?", text))]


def test_every_error_names_options_for_the_reader():
    found = [(name, *flag) for name, tree in library_modules() for flag in flags_in(tree)]
    assert [flag for flag in found if flag[2] or flag[0] not in FLAGS_OF_RECORDS] == []
    assert {name for name, *_ in found} == FLAGS_OF_RECORDS


@pytest.mark.parametrize(
    "error",
    [
        "raise OptionError('--add is 0', hint='pass a number')",
        "return CountsError('none', hint=f'lower {option}, or `--min-count` 2')",
        "require(n > 0, f'--{name} is {n}', 'correct it')",
    ],
)
def test_a_flag_in_an_error_is_found(error):
    assert [of_error for _, of_error in flags_in(ast.parse(error))] == [True]


def test_every_option_that_an_error_names_is_an_argument_in_python():
    names = argument_names() | {option.name for option in TABLE}
    calls = [node for _, tree in library_modules() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "option"]
    named = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert len(named) > 50
    arguments = {errors.option(name).strip("`").partition("=")[0].rpartition(".")[2] for name in named}
    assert arguments <= names


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("inspect", ["numpy", "pyarrow", "rich", "tokengraft.checkpoint", "tokengraft.counts.count"]),
        ("count", ["numpy", "pyarrow", "rich", "tokengraft.checkpoint", "tokengraft.measure"]),
        ("extend", ["pyarrow", "rich", "tokengraft.page", "tokengraft.checkpoint.transplant"]),
        ("transplant", ["pyarrow", "rich", "torch", "tokengraft.page", "tokengraft.learn"]),
    ],
)
def test_a_command_imports_only_what_it_needs(command, unneeded):
    module = COMMANDS[command].module
    code = f"import sys, tokengraft.cli.{module}; print([name for name in {unneeded} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
