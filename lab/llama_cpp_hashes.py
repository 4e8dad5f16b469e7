"""Writes src/tokengraft/tokenizer/llama_cpp.json from llama.cpp's own converter.

    python lab/llama_cpp_hashes.py LLAMA_CPP --source TEXT

LLAMA_CPP is a source folder of llama.cpp: a checkout, or `vendor/llama.cpp` in the source distribution of
`llama-cpp-python`. TEXT names where it is from, with the version. The converter is parsed, not executed.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parents[1] / "src" / "tokengraft" / "tokenizer" / "llama_cpp.json"
PLACES = ("conversion/base.py", "convert_hf_to_gguf.py")
"""The files that may have `get_vocab_base_pre`, newest layout first."""


def converter(folder: Path) -> tuple[str, ast.FunctionDef]:
    """The file of the converter that recognises pre-tokenizers, and the function that does it."""
    for place in PLACES:
        if (folder / place).is_file():
            tree = ast.parse((folder / place).read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and node.name == "get_vocab_base_pre":
                    return place, node
    raise SystemExit(f"{folder} has no get_vocab_base_pre in {' or '.join(PLACES)}")


def check_text(function: ast.FunctionDef) -> str:
    """The text that is assigned to `chktxt`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "chktxt":
            text: str = ast.literal_eval(node.value)
            return text
    raise SystemExit("get_vocab_base_pre assigns no chktxt")


def hashes(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Every pair of `if chkhsh == "HASH": res = "TYPE"`."""
    for node in function.body:
        if isinstance(node, ast.If) and ast.unparse(node.test).startswith("chkhsh == "):
            assert isinstance(node.test, ast.Compare)
            (assignment,) = node.body
            assert isinstance(assignment, ast.Assign)
            yield ast.literal_eval(node.test.comparators[0]), ast.literal_eval(assignment.value)


def skipping(folder: Path) -> list[str]:
    """The types of pre-tokenizer for which llama.cpp skips merges (`ignore_merges`)."""
    text = (folder / "src" / "llama-vocab.cpp").read_text(encoding="utf-8")
    branches = [part for part in re.split(r"\belse if\b", text) if "tokenizer_pre ==" in part]
    skip = [part for part in branches if re.search(r"ignore_merges\s*=\s*true", part)]
    return sorted({name for part in skip for name in re.findall(r'tokenizer_pre == "([^"]+)"', part)})


def main() -> None:
    """Reads the arguments and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="LLAMA_CPP")
    parser.add_argument("--source", required=True, metavar="TEXT")
    options = parser.parse_args()
    file, function = converter(options.folder)
    table = {
        "source": options.source,
        "file": file,
        "check_text": check_text(function),
        "skipping": skipping(options.folder),
        "types": dict(hashes(function)),
    }
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(f"{len(table['types'])} hashes, {len({*table['types'].values()})} types")


if __name__ == "__main__":
    main()
