"""Both tokenizers run in the page: the ids are those of the `tokenizers` library, or the page refuses to split text."""

import random

import builders
import pytest
from builders import LLAMA3_PATTERN

import tokengraft as tg
from tokengraft.page.content import Content, ReportText, samples
from tokengraft.page.report import report_page
from tokengraft.tokenizer.rank_file import PATTERNS

WORDS = [
    *("the cat", " sat", "on", "kass istub", "põõsas ", "Õ", "ﬁ", "猫が", "한국어", "각", "ไทย", "हिन्दी", "اللغة"),
    *("🙂👩‍👩‍👧", "é", "e\u0301\u0323"),
]
WORDS += [
    *("I'LL", "'ſ", "don'T", "x" * 40, "ab" * 30, "1234", "٣٤", "½", "...", "?!\n", "\r\n", "\n\n", "\t", " ", "  "),
    *("   \n", "\u3000", "\xa0", "\x85", "\ufeff", "\u200d"),
]
WORDS += [
    *("<s>", "</s>", "<0x41>", "▁", "<|end|>", "<unk>", "\x00", "\u0378", "\U0001e900", "\U00011f00\U00011f41"),
    *("\u1e9b\u0323", "\u0958", "\u0344"),
]


def texts_for(tokenizer, seed):
    """Texts of joined tokens, of words and white space, and of any characters."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    tokens = [token.bytes for token in tokenizer.tokens]
    added = [token.content for token in tokenizer.added][:50]
    texts = ["", " ", "a", *added]
    texts += [b"".join(rng.choices(tokens, k=rng.randint(1, 12))).decode(errors="replace") for _ in range(150)]
    texts += ["".join(rng.choices([*WORDS, *added], k=rng.randint(1, 10))) for _ in range(150)]
    ranges = [
        (0x20, 0x7F),
        (0x80, 0x250),
        (0x300, 0x370),
        (0x370, 0x3000),
        (0xAC00, 0xD7A4),
        (0x1100, 0x1200),
        (0xE000, 0x20000),
    ]
    characters = [(chr(rng.randrange(*rng.choice(ranges))) for _ in range(20)) for _ in range(150)]
    return [*texts, *("".join(group) for group in characters)]


def extended(base):
    counts = tg.count(base, iter(["the cat sat on the mat, kass istub matil " * 3] * 20))
    return tg.extend(base, counts, 6).apply(base)


def require_same_ids(page, base, new, seed=5):
    texts = texts_for(base, seed)
    encode = "([side, texts]) => texts.map(text => tokengraft.reader.idsOf(side, text))"
    for side, tokenizer in (("base", base), ("new", new)):
        upstream = tokenizer.to_tokenizers()
        wanted = [upstream.encode(text, add_special_tokens=False).ids for text in texts]
        found = page.evaluate(encode, [side, texts])
        wrong = [text for text, ours, theirs in zip(texts, found, wanted, strict=True) if ours != theirs]
        assert wrong == []


def require_same_pieces(page, base, new):
    """The pieces that the page shows are those of the plan."""
    plan = tg.plan(base, new)
    added = {i: list(source) for i, source in enumerate(plan.sources) if isinstance(source, tuple)}
    pieces = """() => { const t = tokengraft.table, added = t.rows.filter(row => t.status(row) === "new");
        return added.map(row => [t.id(row), t.pieces(row).map(place => t.base.ids[place])]); }"""
    assert dict(page.evaluate(pieces)) == added


def opened_report(opened, tmp_path, base, new):
    text = ReportText("text", "the whole text", documents=("the cat sat on the mat", "kass istub põõsas"))
    scores = tg.evaluate({"base": base, "new": new}, {"text": text.source})
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "page.html").write_text(report_page(Content("two", base, new, tg.plan(base, new), (text,), scores)))
    return opened(tmp_path / "page.html")


@pytest.mark.parametrize("shape", sorted(builders.TINY))
def test_the_page_encodes_every_shape_as_tokenizers_does(opened, tmp_path, shape):
    base = tg.load(builders.write(tmp_path / "base", builders.TINY[shape]()))
    new = extended(base)
    page = opened_report(opened, tmp_path, base, new)
    assert page.locator("#own").is_visible()
    require_same_ids(page, base, new)
    require_same_pieces(page, base, new)


def split(pattern, behavior="Isolated", *, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": [*steps]}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}
QWEN = LLAMA3_PATTERN.replace("{1,3}", "")
NEMO = next(pattern for pattern in PATTERNS.values() if r"\p{Lu}" in pattern and "(?i:" not in pattern)
BYTE_LEVEL = {
    "llama-3": (None, sequence(split({"Regex": LLAMA3_PATTERN}), BYTES)),
    "qwen": ({"type": "NFC"}, sequence(split({"Regex": QWEN}), BYTES)),
    "nemo": (None, sequence(split({"Regex": NEMO}), BYTES)),
    "nfkc": ({"type": "NFKC"}, sequence(split({"Regex": QWEN}), BYTES)),
    "smollm": (None, sequence(DIGITS, BYTES | {"use_regex": True})),
    "prefix": (None, BYTES | {"add_prefix_space": True, "use_regex": True}),
    "after-bytes": (None, sequence(BYTES | {"use_regex": True}, split({"Regex": "[aĠÃ]+"}))),
    "removed": (None, sequence(split({"Regex": r"\s+"}, "Removed"), BYTES)),
    "inverted": (None, sequence(split({"Regex": r"\p{L}+"}, "MergedWithNext", invert=True), BYTES)),
    "contiguous": (None, sequence({"type": "Punctuation", "behavior": "Contiguous"}, BYTES)),
}


@pytest.mark.parametrize(
    ("name", "ignore_merges"), [("llama-3", True), *((name, False) for name in sorted(BYTE_LEVEL))]
)
def test_the_page_runs_byte_level_pipelines_as_tokenizers_does(opened, tmp_path, name, ignore_merges):
    normalizer, pre_tokenizer = BYTE_LEVEL[name]
    document = builders.byte_level(ignore_merges=ignore_merges) | {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
    }
    base = tg.load(builders.write(tmp_path / "base", document))
    new = extended(base)
    require_same_ids(opened_report(opened, tmp_path, base, new), base, new)


@pytest.mark.parametrize("name", ["llama-3", "qwen", "smollm"])
def test_the_page_runs_both_pipelines_where_marks_were_joined(opened, tmp_path, name):
    normalizer, pre_tokenizer = BYTE_LEVEL[name]
    document = builders.byte_level() | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    base = tg.load(builders.write(tmp_path / "base", document))
    joined = tg.tokenizer.join_marks(base, ["Devanagari", "Thai", "Kawi"])
    counts = tg.count(joined, iter(["हिन्दी की किताब ที่นี่ \U00011f04\U00011f34\U00011f36 the cat"] * 20))
    new = tg.extend(joined, counts, 30).apply(joined)
    page = opened_report(opened, tmp_path, base, new)
    assert page.locator("#own").is_visible()
    require_same_ids(page, base, new)
    require_same_pieces(page, base, new)


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
TEXT = {
    "llama-2": ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]}, None),
    "gemma": (REPLACE, split({"String": " "}, "MergedWithPrevious")),
    "metaspace": (None, METASPACE),
    "nfkc": ({"type": "Sequence", "normalizers": [{"type": "NFKC"}, REPLACE]}, None),
}


@pytest.mark.parametrize("name", sorted(TEXT))
def test_the_page_runs_sentencepiece_pipelines_as_tokenizers_does(opened, tmp_path, name):
    normalizer, pre_tokenizer = TEXT[name]
    document = builders.sentencepiece() | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    document["added_tokens"].append(
        builders.added(len(document["model"]["vocab"]), "<|end|>", lstrip=True, rstrip=True)
    )
    base = tg.load(builders.write(tmp_path / "base", document))
    new = extended(base)
    page = opened_report(opened, tmp_path, base, new)
    require_same_ids(page, base, new)
    require_same_pieces(page, base, new)


def test_two_kinds_of_tokenizers_have_the_pieces_of_the_plan(opened, tmp_path):
    text = tg.load(builders.write(tmp_path / "text", builders.sentencepiece()))
    data = tg.load(builders.write(tmp_path / "bytes", builders.byte_level()))
    for name, base, new in (("a", text, data), ("b", data, text)):
        page = opened_report(opened, tmp_path / name, base, new)
        require_same_ids(page, base, new)
        require_same_pieces(page, base, new)


def test_a_pipeline_that_has_no_exact_translation_has_no_box_and_the_page_says_why(opened, tmp_path):
    behind = {"pre_tokenizer": sequence(split({"Regex": "(?<=a) "}), BYTES)}
    base = tg.load(builders.write(tmp_path / "base", builders.byte_level() | behind))
    page = opened_report(opened, tmp_path, base, extended(base))
    assert page.locator("#own").is_hidden()
    assert "no exact translation" in page.locator("#reader-note").inner_text()
    assert page.locator("#before .token").count() > 0  # documents were split when the page was made
    assert "your own text" not in page.locator("#sample").inner_text()


def with_model(document, *, merges=(), **model):
    """A tokenizer.json with more merges and other settings of the model. The products are new tokens."""
    vocab = document["model"]["vocab"]
    for left, right in merges:
        vocab[left + right] = max(vocab.values()) + 1
    document["model"] |= model | {"merges": [*document["model"]["merges"], *map(list, merges)]}
    return document


MERGES_OF_FALLBACK = {
    "bytes": with_model(builders.sentencepiece(), merges=[("<0xE7>", "<0x8C>")]),
    "unknown": with_model(builders.sentencepiece(byte_fallback=False), merges=[("<unk>", "a")]),
}


@pytest.mark.parametrize("name", sorted(MERGES_OF_FALLBACK))
def test_a_model_that_merges_what_stands_for_unknown_characters_has_no_box(opened, tmp_path, name):
    base = tg.load(builders.write(tmp_path / "base", MERGES_OF_FALLBACK[name]))
    page = opened_report(opened, tmp_path, base, base)
    assert page.locator("#own").is_hidden()
    assert "characters that the vocabulary lacks" in page.locator("#reader-note").inner_text()


def test_a_token_without_text_is_no_unknown_token(opened, tmp_path):
    document = with_model(builders.sentencepiece(byte_fallback=False), merges=(), unk_token=None)
    document["model"]["vocab"][""] = 990
    base = tg.load(builders.write(tmp_path / "base", document))
    require_same_ids(opened_report(opened, tmp_path, base, base), base, base)


def test_a_page_whose_documents_are_split_differently_has_no_box(opened, tmp_path, monkeypatch):
    base = tg.load(builders.write(tmp_path / "base", builders.byte_level()))
    new = extended(base)

    def with_wrong_ids(*args):
        for sample in samples(*args):
            yield sample | {side: [*sample[side], 5] for side in ("base", "new")}

    monkeypatch.setattr("tokengraft.page.report.samples", with_wrong_ids)
    page = opened_report(opened, tmp_path, base, new)
    assert page.locator("#own").is_hidden()
    assert "split differently" in page.locator("#reader-note").inner_text()


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["llama2", "qwen2_5"])
def test_the_page_encodes_real_tokenizers_as_tokenizers_does(opened, tmp_path, shared_data, name):
    base = tg.load(next(path for path in shared_data.rglob(name) if path.is_dir()))
    new = extended(base)
    page = opened_report(opened, tmp_path, base, new)
    require_same_ids(page, base, new)
    require_same_pieces(page, base, new)
