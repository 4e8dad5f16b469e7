"""Writes docs/api.md: every public name, in groups, with its signature and its docstring.

    python docs/build_api.py

GitHub shows this page. On the site, mkdocs calls `on_page_markdown`, and mkdocstrings makes the page, with links.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import tokengraft as tg

PAGE = Path(__file__).parent / "api.md"
GROUPS = {
    "Steps": "load save convert inspect count extend include add_special prune prune_order plan transplant "
    "transplant_model check check_serving evaluate compare report draft",
    "The complete pipeline": "adapt pipeline.estimate Target AdaptOptions pipeline.Sizes Adaptation "
    "pipeline.TargetResult pipeline.Estimate",
    "Tokenizers": "Tokenizer tokenizer.Token tokenizer.AddedToken tokenizer.MergeStructure tokenizer.Inspection",
    "Text and counts": "ReadOptions CountOptions counts.HoldOut PretokenCounts distributed.BatchCounter "
    "distributed.sum_partials",
    "Extending": "tokenizer.join_marks Limits learn.Parity learn.WordList tokenizer.PieceRules Extension "
    "learn.LearnedMerge learn.RefusedPair learn.IncludedWord learn.include_words learn.SpecialToken "
    "learn.preserve_cost learn.PreserveCost learn.extend_naively",
    "Pruning": "Protection PruneOrder pruning.Removal",
    "Checkpoints": "VocabPlan Transplant TransplantOptions pipeline.DraftVocabulary",
    "Checking and measuring": "Check verify.Finding Evaluation measure.Score measure.Comparison measure.curve "
    "measure.Curve measure.choose_size measure.SizeChoice measure.SizeOptions",
    "Training": "train training.TrainOptions training.Training training.TrainingSettings blend training.mix "
    "training.row_rates training.RowRates training.HeldOutBits",
    "Errors": "TokengraftError",
}
"""Public names: those of the package, and those of its subpackages."""
HEAD = """# Python reference

`import tokengraft as tg` has the steps and what they return. The rest is in the subpackages of the steps: `tg.learn`,
`tg.measure`, `tg.training`, `tg.pipeline`, `tg.counts`, `tg.tokenizer` and `tg.distributed`.
"""


SECTION = re.compile(r"^(Args|Returns|Raises|Examples):\n((?:[ ]+.*\n|\n)*)", re.M)
ENTRY = re.compile(r"^    (?=\S)(.+(?:\n     .+)*)", re.M)


def page() -> str:
    """The page, as it should be."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [f"### `tg.{name}`\n\n{described(named(name))}" for name in names.split()]
    return "\n".join(parts)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page for the site: a line for each name, by the module that defines it, as mkdocstrings finds it."""
    if page.file.src_uri != PAGE.name:
        return markdown
    names = {title: [named(name) for name in names.split()] for title, names in GROUPS.items()}
    lines = {title: [f"::: {each.__module__}.{each.__name__}\n" for each in found] for title, found in names.items()}
    return "\n".join([HEAD, *(line for title, found in lines.items() for line in (f"## {title}\n", *found))])


def described(public: Any) -> str:
    """Signature and docstring of a function; docstring, fields and methods of a class."""
    if not isinstance(public, type):
        node = source(public)
        return f"```python\n{signature(node)}\n```\n\n{plain(ast.get_docstring(node) or '')}"
    parts = [plain(inspect.getdoc(public) or "")]
    nodes = [source(each) for each in public.__mro__ if each.__module__.startswith("tokengraft")]
    for title, members in (("Fields", fields), ("Properties and methods", methods)):
        found = [line for node in nodes for line in members(node)]
        parts += [f"{title}:\n", *found, ""] if found else []
    return "\n".join(parts)


def source(public: Any) -> Any:
    """The definition of a class or a function."""
    return ast.parse(inspect.cleandoc("\n" + inspect.getsource(public))).body[0]


def signature(node: ast.FunctionDef) -> str:
    """A signature as it is written, without `self`; one argument per line if it is long."""
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix("cls").removeprefix(", ")
    result = f" -> {ast.unparse(node.returns)}".replace("'", "") if node.returns else ""
    if len(line := f"{node.name}({arguments}){result}") <= 100:
        return line
    inside = re.sub(r", (?=\*|\w+: )(?![^\[]*\])", ",\n    ", arguments)
    return f"{node.name}(\n    {inside},\n){result}"


def plain(docstring: str) -> str:
    """A docstring as Markdown: arguments as a list, examples as code, no list of errors."""

    def section(found: re.Match[str]) -> str:
        if found[1] == "Examples":
            code = inspect.cleandoc(found[2])
            return f"\n```pycon\n{code}\n```\n" if code.startswith(">>>") else f"{code}\n"
        entries = ENTRY.findall(found[2]) if found[1] in ("Args", "Returns") else []
        lines = (re.sub(r"\s+", " ", entry) for entry in entries)
        named = [re.sub(r"^([*\w]+):", r"- `\1`:", line) for line in lines]
        return "\n".join([*named, ""]) if named else ""

    return re.sub(r"\n{3,}", "\n\n", SECTION.sub(section, docstring + "\n")).rstrip("\n") + "\n"


def fields(node: ast.ClassDef) -> Iterator[str]:
    """The public fields of a class, with what is written below each."""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and not ast.unparse(field.target).startswith("_"):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            default = (
                "" if field.value is None or "field(" in ast.unparse(field.value) else f" = {ast.unparse(field.value)}"
            )
            about = re.sub(r"\s+", " ", str(text))
            yield f"- `{ast.unparse(field.target)}: {ast.unparse(field.annotation)}{default}`" + f": {about}" * bool(
                about
            )


def methods(node: ast.ClassDef) -> Iterator[str]:
    """The public methods and properties of a class, with the first line of their docstrings."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            decorators = " ".join(map(ast.unparse, method.decorator_list))
            name = method.name if "property" in decorators else re.sub(r"\n *", " ", signature(method))
            yield f"- `{name}`: {(ast.get_docstring(method) or '').partition(chr(10))[0]}"


def named(name: str) -> Any:
    """The value of a public name."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(f"tokengraft.{module}") if module else tg, last)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
