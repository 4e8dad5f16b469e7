"""The cases: each makes its inputs in a folder, and names commands to run on them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import builders
import checkpoints

import tokengraft as tg
from limits import inputs
from limits.processes import COMMAND


@dataclass(frozen=True)
class Step:
    """A command of a case."""

    label: str
    arguments: list[str]
    stdin: Path | None = None
    files: int | None = None
    """Files that may be open at once."""
    code: str = COMMAND


TRANSPLANT = """
import tokengraft as tg
from tokengraft.errors import TokengraftError
try:
    plan = tg.VocabPlan.load(sys.argv[1])
    plan.summary, plan.moved, repr(plan)
except TokengraftError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
"""
Case = Callable[[Path, float], Iterator[Step]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """Adds a case under the name of its function."""
    CASES[make.__name__] = make
    return make


def commands(source: str, text: str, out: Path, prefix: str, chosen: tuple[str, ...] = ()) -> Iterator[Step]:
    """The commands that take a tokenizer and a text, each with an output of its own."""
    given: dict[str, list[str]] = {
        "inspect": [source],
        "check": [source],
        "count": [source, text, "--documents", "lines"],
        "extend": [source, "--corpus", text, "--add", "5"],
        "prune": [source, "--corpus", text, "--remove", "5"],
        "transplant": [source, source, "--dry-run"],
        "evaluate": [f"a={source}", f"b={source}", "--text", f"t={text}"],
        "report": [source, source, "--text", f"t={text}"],
        "adapt": [source, "--target", f"t={text}", "--swap", "5"],
    }
    suffixes = {"count": ".parquet", "report": ".html"}
    writes = ("count", "extend", "prune", "report", "adapt")
    for name in chosen or given:
        path = out / f"{name}-{len(list(out.iterdir()))}{suffixes.get(name, '')}"
        more = ["--out", str(path)] if name in writes else []
        yield Step(f"{name} {prefix}", [name, *given[name], *more, "--quiet"])


def small_text(folder: Path) -> str:
    path = folder / "small.txt"
    path.write_text("\n".join(f"the cat {n} sat on the mat zz zz õhtu" for n in range(300)), encoding="utf-8")
    return str(path)


@case
def ids_near_2_32(folder: Path, _: float) -> Iterator[Step]:
    text = small_text(folder)
    high = 2**32 - 2
    source = inputs.tokenizer(folder / "high", inputs.with_high_id(high))
    yield from commands(source, text, folder, "tokenizer.json")
    document = builders.byte_level()
    document["added_tokens"].append(builders.added(high, "<|high|>"))
    document["model"]["vocab"]["<|high|>"] = high
    yield from commands(inputs.tokenizer(folder / "added", document), text, folder, "added token")
    base = inputs.tokenizer(folder / "base", builders.byte_level())
    for name, arguments in {
        "plan base high": ["transplant", base, source, "--dry-run", "--json"],
        "plan high base": ["transplant", source, base, "--dry-run", "--json"],
        "report base high": ["report", base, source, "--text", f"t={text}", "--out", str(folder / "r.html")],
        "check high --base base": ["check", source, "--base", base],
        "convert --to tiktoken": ["convert", source, "--to", "tiktoken", "--out", str(folder / "tt")],
        "convert --to tekken": ["convert", source, "--to", "tekken", "--out", str(folder / "tk")],
        "prune --ids keep": [
            *("prune", source, "--method", "last-id", "--remove", "3"),
            *("--ids", "keep", "--out", str(folder / "pk")),
        ],
    }.items():
        yield Step(name, arguments)
    model = folder / "model"
    checkpoints.checkpoint(model)
    yield Step("transplant to high", ["transplant", str(model), source, "--out", str(folder / "new")])
    checkpoints.set_config(model, vocab_size=high)
    yield Step("transplant, config vocab_size", ["transplant", str(model), base, "--out", str(folder / "new2")])
    for stack in ("transformers", "vllm", "llama.cpp", "ollama"):
        yield Step(f"check --for {stack}", ["check", source, "--for", stack])


@case
def ids_near_2_32_in_other_files(folder: Path, _: float) -> Iterator[Step]:
    text, high = small_text(folder), 2**32 - 2
    ranks = inputs.builders.ranks_of(builders.byte_level())
    tiktoken = folder / "tiktoken"
    tiktoken.mkdir()
    (tiktoken / "tokenizer.model").write_bytes(builders.tiktoken_file(ranks | {b"zzzz": high}))
    settings = {"pat_str": builders.LLAMA3_PATTERN, "special_tokens": {"<|end|>": 9000}}
    (tiktoken / "tiktoken_encoding.json").write_text(json.dumps(settings))
    yield from commands(str(tiktoken), text, folder, "tiktoken")
    tekken = folder / "tekken"
    tekken.mkdir()
    document = json.loads(builders.tekken_file([b"zz"], ["<unk>", "<s>"], builders.LLAMA3_PATTERN))
    document["vocab"][-1]["rank"] = high
    (tekken / "tekken.json").write_text(json.dumps(document))
    yield from commands(str(tekken), text, folder, "tekken, a rank", ("inspect",))
    document = json.loads(builders.tekken_file([b"zz"], ["<unk>", "<s>"], builders.LLAMA3_PATTERN))
    document["config"] |= {"default_vocab_size": high, "default_num_special_tokens": high - 300}
    (tekken / "tekken.json").write_text(json.dumps(document))
    yield from commands(str(tekken), text, folder, "tekken, sizes", ("inspect",))
    base = inputs.tokenizer(folder / "base", builders.byte_level())
    tok = tg.load(base)
    plan = tg.plan(tok, tok).as_dict()
    model = folder / "model"
    checkpoints.checkpoint(model)
    for number, changed in enumerate(({"rows_before": high}, {"removed": [high]}, {"sources": [high]})):
        path = folder / f"plan{number}.json"
        path.write_text(json.dumps(plan | changed))
        yield Step(f"plan file {changed}", [str(path), str(model)], code=TRANSPLANT)


@case
def long_pretokens(folder: Path, scale: float) -> Iterator[Step]:
    names = ("scanner, GPT-2", "scanner, Llama-3", "automata, o200k", "sentencepiece", "sentencepiece, metaspace")
    for kind, make in inputs.LONG_PRETOKENS.items():
        text = inputs.fill(folder / f"{kind}.txt".replace(" ", "-"), make(), int(100e6 * scale))
        for number, name in enumerate(names):
            source = inputs.tokenizer(folder / f"tok{number}", inputs.PIPELINES[name]())
            chosen = ("count", "extend", "prune", "evaluate", "report", "adapt") if number in (1, 3) else ("count",)
            yield from commands(source, text, folder, f"{name}, {kind}", chosen)


@case
def one_document_of_a_gigabyte(folder: Path, scale: float) -> Iterator[Step]:
    text = inputs.fill(folder / "text.txt", inputs.WORDS, int(1e9 * scale))
    for number, (name, make) in enumerate(inputs.PIPELINES.items()):
        source = inputs.tokenizer(folder / f"tok{number}", make())
        out = str(folder / f"{number}.parquet")
        arguments = ["count", source, text, "--documents", "files", "--memory", "1G", "--out", out, "--quiet"]
        yield Step(f"count, {name}", arguments)


@case
def a_million_tokens(folder: Path, scale: float) -> Iterator[Step]:
    text, n = small_text(folder), int(1e6 * scale)
    makers = {
        "tokens": lambda: inputs.many_tokens(n, merges=False),
        "tokens and merges": lambda: inputs.many_tokens(n, merges=True),
        "added tokens": lambda: inputs.many_added(n),
    }
    for number, (name, make) in enumerate(makers.items()):
        source = inputs.tokenizer(folder / f"tok{number}", make())
        yield from commands(source, text, folder, f"{n:,} {name}")


@case
def long_tokens(folder: Path, scale: float) -> Iterator[Step]:
    text, size = small_text(folder), int(1e6 * scale)
    source = inputs.tokenizer(folder / "tok", inputs.long_tokens(10, size))
    yield from commands(source, text, folder, f"10 tokens of {size:,} bytes")


@case
def many_files(folder: Path, scale: float) -> Iterator[Step]:
    n, texts = int(10_000 * scale), folder / "texts"
    texts.mkdir()
    source = inputs.tokenizer(folder / "tok", builders.byte_level())
    for number in range(n):
        (texts / f"{number:05}.txt").write_text(f"the cat {number}\nõhtu")
    limits = {"files": 256}
    for name, arguments in {
        "count a folder": [str(texts)],
        "count a glob": [str(texts / "*.txt")],
        "count a list": sorted(map(str, texts.iterdir())),
        "count --shard 1/10000": [str(texts), "--shard", f"1/{n}"],
        "count --documents lines": [str(texts), "--documents", "lines"],
    }.items():
        out = str(folder / f"{name}.parquet".replace("/", "-"))
        yield Step(name, ["count", source, *arguments, "--out", out, "--quiet"], **limits)
    yield Step("evaluate a folder", ["evaluate", source, "--text", f"t={texts}", "--quiet"], **limits)
    counts = folder / "counts"
    counts.mkdir()
    table = tg.count(tg.load(source), iter(["the cat sat"])).save(folder / "one.parquet").read_bytes()
    for number in range(n):
        (counts / f"{number:05}.parquet").write_bytes(table)
    merged = ["extend", source, "--counts", *sorted(map(str, counts.iterdir())), "--add", "1"]
    yield Step("extend --counts, all", [*merged, "--out", str(folder / "ext"), "--quiet"], **limits)


@case
def empty_documents(folder: Path, scale: float) -> Iterator[Step]:
    n, texts = int(10_000 * scale), folder / "texts"
    texts.mkdir()
    for number in range(n):
        (texts / f"{number:05}.txt").touch()
    (folder / "lines.txt").write_text("\n" * n + "the cat")
    source = inputs.tokenizer(folder / "tok", builders.byte_level())
    yield from commands(source, str(texts), folder, "empty files", ("count", "evaluate", "extend"))
    yield from commands(source, str(folder / "lines.txt"), folder, "empty lines", ("count", "evaluate", "report"))


@case
def many_row_groups(folder: Path, scale: float) -> Iterator[Step]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = int(10_000 * scale)
    table = pa.table({"text": [f"the cat {number} sat" for number in range(n)]})
    pq.write_table(table, folder / "groups.parquet", row_group_size=1)
    for name, rows in (("count", n), ("evaluate", n // 10)):
        pq.write_table(pa.table({"text": ["a" * int(1e6 * scale)] * rows}), folder / f"{name}.parquet")
    source = inputs.tokenizer(folder / "tok", builders.byte_level())
    yield from commands(source, str(folder / "groups.parquet"), folder, f"{n:,} row groups", ("count", "evaluate"))
    for name, size in (("count", "10 GB"), ("evaluate", "1 GB")):
        yield from commands(source, str(folder / f"{name}.parquet"), folder, f"{size} of one value", (name,))


@case
def many_tensors(folder: Path, scale: float) -> Iterator[Step]:
    base = inputs.tokenizer(folder / "base", builders.byte_level())
    for name, tensors, shards in (("tensors", 100_000, 1), ("shards", 10_000, 10_000)):
        model = folder / name
        many_tensors_in(model, int(tensors * scale), max(1, int(shards * scale)) if shards > 1 else 1)
        tok = tg.load(model)
        new = tg.extend(tok, tg.count(tok, iter(["zz zz qq qq"])), 2).apply(tok)
        source = str(tg.save(new, folder / f"new-{name}", verify=False))
        out = str(folder / f"out-{name}")
        yield Step(f"transplant, many {name}", ["transplant", str(model), source, "--out", out, "--quiet"], files=256)
        yield Step(f"transplant, many {name}, a dry run", ["transplant", str(model), base, "--dry-run", "--quiet"])


def many_tensors_in(folder: Path, n: int, shards: int) -> None:
    """Gives a checkpoint many small tensors, in one file or in several."""
    checkpoints.checkpoint(folder)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    opened = checkpoints.TensorFile.open(path).tensors.values()
    tensors = {
        old.name: {"dtype": old.dtype, "shape": list(old.shape), "data": raw[old.start : old.start + old.size]}
        for old in opened
    }
    tensors |= {f"model.layers.{at}.w": {"dtype": "BF16", "shape": [2, 2], "data": b"\1" * 8} for at in range(n)}
    path.unlink()
    checkpoints.write_shards(folder, tensors, shards)


@case
def huge_documents_compared(folder: Path, scale: float) -> Iterator[Step]:
    text = inputs.fill(folder / "text.txt", inputs.WORDS, int(33e6 * scale))
    document = builders.byte_level()
    source = inputs.tokenizer(folder / "tok", document)
    tok = tg.load(source)
    new = str(
        tg.save(tg.extend(tok, tg.count(tok, iter([inputs.WORDS] * 3)), 30).apply(tok), folder / "new", verify=False)
    )
    given = ["--text", f"t={text}", "--documents", "files", "--quiet"]
    yield Step("evaluate, one document", ["evaluate", source, new, *given])
    yield Step("report, one document", ["report", source, new, *given, "--out", str(folder / "r.html")])
    yield Step("examples, one document", ["evaluate", source, new, *given, "--examples"])


@case
def a_gigabyte_evaluated(folder: Path, scale: float) -> Iterator[Step]:
    text = inputs.fill(folder / "text.txt", inputs.WORDS * 5 + "\n", int(1e9 * scale))
    source = inputs.tokenizer(folder / "tok", builders.byte_level())
    tok = tg.load(source)
    new = str(
        tg.save(tg.extend(tok, tg.count(tok, iter([inputs.WORDS] * 3)), 30).apply(tok), folder / "new", verify=False)
    )
    yield Step("evaluate", ["evaluate", source, new, "--text", f"t={text}", "--quiet"])
    yield Step("report", ["report", source, new, "--text", f"t={text}", "--quiet", "--out", str(folder / "r.html")])
    yield Step("examples", ["evaluate", source, new, "--text", text, "--examples", "--quiet"])


@case
def bombs(folder: Path, scale: float) -> Iterator[Step]:
    size = int(1e9 * scale)
    text, source = small_text(folder), inputs.tokenizer(folder / "tok", builders.byte_level())
    zeros = inputs.gzip_of(folder / "zeros.txt.gz", b"\0", size)
    lines = inputs.gzip_of(folder / "lines.txt.gz", b"the cat sat\n", size)
    for name, path in {"zeros": zeros, "lines": lines}.items():
        for how in ("files", "lines"):
            out = str(folder / f"{name}-{how}.parquet")
            arguments = ["count", source, path, "--documents", how, "--memory", "500M", "--out", out, "--quiet"]
            arguments += ["--format", "text"]  # zeros are not refused
            yield Step(f"count, gzip of {name}, {how}", arguments)
    depth = int(1e6 * scale)
    for name, deep in {"lists": "[" * depth + "]" * depth, "objects": '{"a":' * depth + "1" + "}" * depth}.items():
        for file in ("tokenizer.json", "tokenizer_config.json", "config.json", "special_tokens_map.json"):
            model = folder / f"{name}-{file}"
            checkpoints.checkpoint(model)
            (model / file).write_text(deep)
            yield from commands(str(model), text, folder, f"deep {name} in {file}", ("inspect", "check", "adapt"))
        lines_path = folder / f"{name}.jsonl"
        lines_path.write_text(f'{{"text": "a b", "more": {deep}}}\n')
        yield from commands(source, str(lines_path), folder, f"deep {name} in JSON lines", ("count", "evaluate"))
    model = folder / "template"
    checkpoints.checkpoint(model)
    inputs.set_json(model / "tokenizer_config.json", chat_template="{{ x }}" * int(10e6 * scale))
    yield from commands(str(model), text, folder, "chat template of 70 MB", ("inspect", "check", "extend", "adapt"))
