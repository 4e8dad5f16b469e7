"""Partial counts: tables that any engine can add up, and what is refused."""

import random
from decimal import Decimal

import builders
import pyarrow as pa
import pytest

import tokengraft as tg
from tokengraft import errors
from tokengraft.distributed import RESERVED, partial_tables

TEXTS = ["tere õhtust, kass!\n", "the cat  sat<|start|>on 12345 mats\n\nit's", "猫 ja kass", "", "a\r\nb ÿ ÿÿ\xad þ"]

SCHEMA = pa.schema([pa.field("pretoken", pa.large_binary(), False), pa.field("count", pa.int64(), False)])


def partial_table(counts):
    return pa.concat_tables(partial_tables([counts.table], counts))


def strange_texts(rng):
    """Texts of random characters, most of them where byte-level alphabets and UTF-8 lead bytes are."""
    ranges = [(0, 0x180), (0x80, 0x100), (0x7F0, 0x810), (0xFFF0, 0xFFFF), (0x10000, 0x10FFFF), (0xE000, 0xF900)]
    for _ in range(40):
        yield "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(40)))


@pytest.mark.parametrize("count", [tg.count, builders.count_through_upstream])
def test_no_pretoken_begins_with_the_byte_of_the_other_keys(tiny_folder, count):
    tok = tg.load(tiny_folder)
    texts = [*TEXTS, *strange_texts(random.Random(5)), *map(chr, range(0xD800)), *map(chr, range(0xE000, 0x10000))]
    texts += [b"\xff\xfe abc \xffpipeline \xff+<|start|>".decode(errors="replace")]
    counts = count(tok, iter(texts))
    assert not any(RESERVED in pretoken for pretoken, _ in counts.top(len(counts)))
    assert tg.distributed.sum_partials([partial_table(counts)], tok) == counts


def test_a_pipeline_that_makes_such_a_pretoken_is_refused(tmp_path):
    """`ÿ` after bytes were spelled is the byte 0xFF itself."""
    document = builders.byte_level()
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    replace = {"type": "Replace", "pattern": {"String": "x"}, "content": "ÿ"}
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}, replace]}
    document["pre_tokenizer"] = to_bytes | {"type": "Split", "pattern": {"String": "|"}, "behavior": "Isolated"}
    document["pre_tokenizer"] |= {"invert": False}
    tok = tg.load(builders.write(tmp_path, document))
    counts = tg.count(tok, iter(["x is counted"]))
    assert counts.top(1)[0][0].startswith(RESERVED)
    with pytest.raises(errors.CountsError, match="not UTF-8"):
        partial_table(counts)


def test_parts_added_up_by_anyone_are_the_whole(tiny_folder, tmp_path):
    tok = tg.load(tiny_folder)
    texts = [*TEXTS, "<s> and <|end|><|start|>", *builders.TEXT[:4]] * 3
    whole = tg.count(tok, iter(texts))
    tables = [partial_table(tg.count(tok, iter(texts[start : start + 5]))) for start in range(0, len(texts), 5)]
    assert all(table.schema.equals(SCHEMA) for table in tables)
    joined = pa.concat_tables(tables)
    summed = joined.group_by("pretoken").aggregate([("count", "sum")])
    order = list(range(len(joined)))
    random.Random(1).shuffle(order)
    expected = whole.save(tmp_path / "whole.parquet").read_bytes()
    for number, given in enumerate([tables, [summed], summed.to_batches(7), [joined.take(order)], joined.to_batches()]):
        counts = tg.distributed.sum_partials(given, tok, memory=1)
        assert counts == whole
        assert counts.save(tmp_path / f"{number}.parquet").read_bytes() == expected


def test_rare_pretokens_are_left_out_of_the_sum(tokenizer):
    table = partial_table(tg.count(tokenizer, iter(TEXTS)))
    options = tg.CountOptions(min_count=3)
    assert tg.distributed.sum_partials([table, table], tokenizer, min_count=3) == tg.count(
        tokenizer, iter(TEXTS * 2), count_options=options
    )


def test_no_parts_are_the_counts_of_no_text(tokenizer):
    assert tg.distributed.sum_partials([], tokenizer) == tg.count(tokenizer, set())
    empty = partial_table(tg.count(tokenizer, set()))
    assert tg.distributed.sum_partials([empty, empty], tokenizer) == tg.count(tokenizer, set())


def test_weighted_counts_and_counts_without_rare_pretokens_are_refused(tokenizer):
    counts = tg.count(tokenizer, iter(TEXTS))
    filtered = tg.count(tokenizer, iter(TEXTS), count_options=tg.CountOptions(min_count=2))
    for changed in (counts.scale(2), filtered):
        with pytest.raises(errors.CountsError, match="rows are missing or doubled"):
            tg.distributed.sum_partials(partial_table(changed), tokenizer)


def without(table, prefix):
    kept = table.filter([not key.as_py().startswith(prefix) for key in table["pretoken"]])
    assert len(kept) < len(table)
    return kept


def with_counts(table, column):
    return pa.table({"pretoken": table.column("pretoken"), "count": column})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.slice(1), "rows are missing or doubled"),
        (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "rows are missing or doubled"),
        (lambda t: t.filter([not k.as_py().startswith(b"\xffpipeline") for k in t["pretoken"]]), "rows are missing"),
        (lambda t: t.filter([not k.as_py().startswith(b"\xff") for k in t["pretoken"]]), "rows are missing"),
        (lambda t: without(t, b"\xffchecksum"), "rows are missing or doubled"),
        (lambda t: pa.concat_tables([t, pa.table([[b"\xffdocuments"], [5]], t.schema)]), "missing or doubled"),
        (lambda t: pa.concat_tables([t, pa.table([[b"\xffother"], [1]], t.schema)]), "does not have|do not have"),
        (lambda t: t.append_column("more", t["count"]), "the columns"),
        (lambda t: with_counts(t, t["count"].cast(pa.float64())), "the types"),
        (lambda t: with_counts(t, pa.array([None] * len(t), pa.int64())), "without a pretoken or count"),
        (lambda t: with_counts(t, pa.array([-1] * len(t))), "negative"),
        (lambda t: with_counts(t, pa.array([2**63 - 1] * len(t))), "more than 64 bits"),
        (lambda t: with_counts(t, pa.array([2**64 - 1] * len(t), pa.uint64())), "out of range"),
        (lambda t: t.to_pydict(), "this is a dict"),
    ],
)
def test_what_is_no_complete_sum_is_refused(tokenizer, change, match):
    table = partial_table(tg.count(tokenizer, iter(TEXTS)))
    with pytest.raises(errors.CountsError, match=match):
        tg.distributed.sum_partials([change(table)], tokenizer)


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64(), pa.decimal128(38, 0)])
def test_engines_may_give_other_types_and_names_to_sums(tokenizer, kind):
    counts = tg.count(tokenizer, iter(TEXTS))
    table = partial_table(counts)
    values = [Decimal(n.as_py()) if pa.types.is_decimal(kind) else n.as_py() for n in table["count"]]
    for pretoken in (pa.binary(), pa.binary_view()):
        given = pa.table({"sum(count)": pa.array(values, kind), "pretoken": table["pretoken"].cast(pretoken)})
        assert tg.distributed.sum_partials([given], tokenizer) == counts


def test_another_pipeline_or_normalization_is_refused(tokenizer, tmp_path):
    table = partial_table(tg.count(tokenizer, iter(TEXTS)))
    other = tg.load(builders.write(tmp_path, builders.sentencepiece()))
    for tok, options in ((other, None), (tokenizer, tg.ReadOptions(normalize="nfkc"))):
        with pytest.raises(errors.CountsError, match="another pipeline"):
            tg.distributed.sum_partials([table], tok, read_options=options)
