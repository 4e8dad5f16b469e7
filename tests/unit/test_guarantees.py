"""Options for new tokens in `extend` and `adapt`: text to preserve, scripts, word lists, balance, chosen sizes."""

import json
import pickle
from contextlib import nullcontext

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, adapted, write_texts

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.counts.count import count_with_hold_out
from tokengraft.learn.preserve import preserved_text

RUSSIAN = [f"кошки и собаки {n} бегут по улице" for n in range(400)]
MIXED = [*ENGLISH, "кошки и собаки бегут по улице", "the cat κόσμε sat"]
"""English with a line of Russian, which has less than 1 % of the letters, and a word of Greek."""
pytestmark = pytest.mark.usefixtures("transformers_running")
PLAIN = tg.AdaptOptions(report=False)


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path, words=["ibuprofen", "COX-2", "koerad"], ru=RUSSIAN, mixed=MIXED)


@pytest.fixture
def piece_folder(texts):
    (texts / "pieces").mkdir()
    (texts / "pieces" / "tokenizer.model").write_bytes(builders.llama2_like())
    return texts / "pieces"


def extended(source, texts, tokengraft, *options, code=0):
    """The JSON result of `tokengraft extend`, or its error message."""
    command = ["extend", str(source), "--out", str(texts / "out"), "--force", "--quiet", "--json", *map(str, options)]
    printed = tokengraft(*command, code=code)
    return json.loads(printed.out) if code == 0 else printed.err


@pytest.mark.parametrize("kind", ["model", "piece_folder"])
def test_a_few_words_of_the_target_in_preserved_text_forbid_little_and_are_named(kind, request, texts, tokengraft):
    source = request.getfixturevalue(kind)
    base, options = tg.load(source), ["--corpus", texts / "ru.txt", "--add", 60]
    found = extended(
        source, texts, tokengraft, *options, "--preserve", texts / "mixed.txt", "--extension", texts / "e.json"
    )
    new, cost = tg.load(texts / "out"), found["preserve_cost"]
    assert cost["base"] - cost["preserved"] > 0.9 * (cost["base"] - cost["free"])
    assert found["not_preserved"]["scripts"] == ["Cyrillic"]
    assert tg.Extension.load(texts / "e.json").provenance["not_preserved"] == found["not_preserved"]
    for line in (*ENGLISH, MIXED[-1]):
        assert new.encode(line) == base.encode(line)
    assert new.encode(MIXED[-2]) != base.encode(MIXED[-2])


@pytest.mark.parametrize("kind", ["model", "piece_folder"])
def test_check_agrees_with_extend_about_what_is_preserved(kind, request, texts, tokengraft):
    source, mixed = request.getfixturevalue(kind), texts / "mixed.txt"
    free = extended(source, texts, tokengraft, "--corpus", texts / "ru.txt", "--add", 60)
    assert free["preserve_cost"] is None
    extended(source, texts, tokengraft, "--corpus", texts / "ru.txt", "--add", 60, "--preserve", mixed)
    command = ["check", str(texts / "out"), "--base", str(source), "--json", "--preserve", str(mixed)]
    findings = {one["name"]: one for one in tokengraft(*command).json["findings"]}
    assert findings["preserved text"]["outcome"] == "pass"
    assert findings["preserved text, rare scripts"]["outcome"] == "note"
    assert "they are in Cyrillic, each with" in findings["preserved text, rare scripts"]["detail"]
    tokengraft(*command, "--preserve-exactly", code=1)
    exact = ["--preserve", mixed, "--preserve-exactly"]
    assert extended(source, texts, tokengraft, "--corpus", texts / "ru.txt", "--add", 60, *exact)["refused"] > 0
    tokengraft(*command, "--preserve-exactly")


def test_check_fails_if_a_word_in_the_script_of_the_preserved_text_changed(model, texts, tokengraft):
    extended(model, texts, tokengraft, "--corpus", texts / "en.txt", "--add", 10)
    tokengraft("check", texts / "out", "--base", model, "--preserve", texts / "mixed.txt", code=1)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("cat " * 99 + "кот", None),  # 3 of 300 letters
        ("cat " * 99 + "ко", "ко"),
        ("cat " * 99 + "catк", None),  # 1 of 301 letters, in a pretoken that has 4
        ("1234 " * 99 + "ко", None),  # all letters
        ("cat " * 99 + "λ", None),  # no script of the target
    ],
)
def test_words_in_a_script_of_the_target_are_preserved_if_they_have_a_hundredth_of_the_letters(model, text, left_out):
    base = tg.load(model)
    found = preserved_text([tg.count(base, iter([text]))], [tg.count(base, iter(RUSSIAN))])
    assert (found.left_out.top(9) if found.left_out else None) == (left_out and [(f" {left_out}".encode(), 1)])


def test_preserving_that_leaves_less_than_a_tenth_of_the_gain_is_refused_unless_asked_for(model, texts, tokengraft):
    options = ["--corpus", texts / "et.txt", "--add", 30, "--preserve", texts / "et.txt"]
    message = extended(model, texts, tokengraft, *options, code=2)
    assert "bytes per token of the training text increase by 0.0% with the preserved text, and by" in message
    assert "--preserve-exactly" in message
    assert not (texts / "out").exists()
    found = extended(model, texts, tokengraft, *options, "--preserve-exactly")
    assert found["added"] == 0
    assert "were refused" in found["warnings"][0]


@pytest.mark.parametrize("limit", [("--max-bytes", "40"), ("--max-bytes", "400")])
def test_limits_of_the_corpus_do_not_shorten_the_preserved_text(model, texts, tokengraft, limit):
    base, kept = tg.load(model), [texts / "kept-1.txt", texts / "kept-2.txt"]
    for path, text in zip(kept, ("kassid ja koerad " * 5, "istuvad põõsas"), strict=True):
        path.write_text(text, encoding="utf-8")
    corpus = [texts / "one.txt", texts / "other.txt"]
    for path in corpus:
        path.write_text("istuvad põõsas kassid ja koerad\n" * 9, encoding="utf-8")
    options = ["--corpus", *corpus, "--add", 9, "--min-count", 1, "--preserve", *kept, "--preserve-exactly", *limit]
    extended(model, texts, tokengraft, *options)
    for path in kept:
        assert tg.load(texts / "out").encode(path.read_text()) == base.encode(path.read_text())


def test_a_table_shows_what_was_asked_for(model, texts, tokengraft):
    command = ["extend", str(model), "--out", str(texts / "out"), "--quiet", "--add", "60", "--balance", "parity"]
    command += ["--corpus", f"et={texts / 'et.txt'}", f"lv={texts / 'lv.txt'}"]
    command += ["--include", str(texts / "words.txt"), "--preserve", str(texts / "en.txt")]
    shown = tokengraft(*command).out
    assert "'COX-2': the pre-tokenizer splits it into" in shown
    assert "most have two: after a space, and at the start of a text" in shown
    assert "learned for" in shown
    assert "candidates that occur in the preserved text" in shown


def test_words_become_tokens_in_running_text(model, texts, tokengraft):
    marked = (texts / "words.txt").read_text(encoding="utf-8")
    (texts / "words.txt").write_text(marked, encoding="utf-8-sig")  # a byte order mark is no part of the first word
    options = ["--corpus", texts / "et.txt", "--add", 60, "--include", texts / "words.txt"]
    found = extended(model, texts, tokengraft, *options)
    new = tg.load(texts / "out")
    assert found["included"][0]["token"] == "Ġibuprofen"
    assert [word["word"] for word in found["included"] if word["token"] is None] == ["COX-2"]
    assert new.vocab["Ġibuprofen"] in new.encode("an ibuprofen a day")


def test_a_size_is_chosen(model, texts, tokengraft):
    options = ["--corpus", texts / "et.txt", "--documents", "lines", "--held-out", texts / "et.txt", "--add", "auto"]
    options += ["--max-add", 60, "--training-text", "1GB"]
    found = extended(model, texts, tokengraft, *options)
    assert found["added"] == found["size"]["size"] > 0
    assert found["size"]["reason"]
    assert extended(model, texts, tokengraft, *options, "--include", texts / "words.txt")["added"] >= 6


def test_scripts_on_the_command_line(model, texts, tokengraft):
    mixed = texts / "two.txt"
    mixed.write_text("koer кот 12\n" * 50, encoding="utf-8")
    extended(model, texts, tokengraft, "--corpus", mixed, "--add", 10, "--scripts", "Cyrillic")
    new, base = tg.load(texts / "out"), tg.load(model)
    assert new.encode(" koer") == base.encode(" koer")
    assert len(new.encode(" кот")) < len(base.encode(" кот"))


def test_bad_options_of_extend(model, texts, capsys, monkeypatch):
    monkeypatch.chdir(texts)
    (texts / "empty.txt").write_text("")
    other = tg.load(builders.write(texts / "other", builders.sentencepiece()))
    tg.count(other, iter(["cat"])).save(texts / "other.parquet")
    one, two = "--corpus et.txt", "--balance parity --corpus et=et.txt lv=lv.txt"
    for options, message in (
        (f"{one} --add auto", "pass --held-out TEXT"),
        (f"{one} --add auto --held-out et.txt --max-add 0", "max-add"),
        (f"{one} --add 5 --held-out en.txt", "--held-out has no effect"),
        (f"{one} --add 5 --preserve-exactly", "--preserve-exactly has no effect"),
        (f"{one} --add 5 --balance parity", "needs several texts"),
        (f"{one} --add 5 --parity-text a=en.txt", "pass --balance parity"),
        (f"{one} --add 5 --include words.txt", "pass --add"),
        (f"{one} --add 5 --include empty.txt", "the word list is empty"),
        (f"{one} --add 5 --scripts Latinn", "names like it: Latin"),
        (f"{one} --add 5 --preserve empty.txt", "the preserved counts are empty"),
        (f"{one} --add 5 --preserve other.parquet", "another pipeline"),
        (f"{one} --add 5 --method scaffold --preserve en.txt", "--preserve is for continued training"),
        (f"{one} --add auto --method scaffold", "--add auto is for continued training"),
        (f"{one} --add five", "is not a whole number; pass one like 16000 or 16k, or `auto`"),
        ("--add 5 --balance parity --corpus et.txt sub/et.txt", "two texts of --corpus are called 'et'"),
        (f"{two} --add 5 --weight 2", "--weight and --balance parity do not go together"),
        (f"{two} --add 5 --parity-text et=et.txt", "the parallel texts are 'et'"),
        (f"{two} --add 5 --max-share 2", "the largest share of one language is 2.0"),
        (
            "--add 5 --balance parity --counts a=other.parquet b=other.parquet --documents lines",
            "--documents has no effect without --corpus",
        ),
    ):
        with pytest.raises(SystemExit) if message.startswith("is not a whole") else nullcontext():
            assert cli.main(["extend", str(model), "--out", "out", "--quiet", *options.split()]) == 2
        assert message in capsys.readouterr().err
        assert not (texts / "out").exists()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("sizes", [{"add": 60}, {"swap": 40}, {"add": "auto"}])
def test_an_adaptation_names_the_words_that_it_does_not_preserve_and_the_cost(texts, sizes):
    options = {"target": "ru.txt", "keep": "mixed.txt", "size": tg.measure.SizeOptions(multiple=4), **sizes}
    found = adapted(texts, preserve_keep=True, **options)
    free = adapted(texts, out="free", **options)
    assert found.evaluation["new", "target"].gain > 0.8 * free.evaluation["new", "target"].gain
    assert found.as_dict()["not_preserved"]["scripts"] == ["Cyrillic"]
    assert found.cost.share == pytest.approx(_tokens(found) / _tokens(free) - 1, abs=0.01)
    finding = next(finding for finding in found.check.findings if finding.name == "preserved text")
    assert finding.outcome == "pass"
    for line in (*ENGLISH[:99], MIXED[-1]):
        assert found.tokenizer.encode(line.split()[1]) == found.base.encode(line.split()[1])


def _tokens(found):
    return sum(len(found.tokenizer.encode(line)) for line in RUSSIAN)


@pytest.mark.usefixtures("model")
def test_a_repeated_adaptation_preserves_the_same(texts):
    found = adapted(texts, target="ru.txt", add=60, preserve=texts / "mixed.txt", preserve_exactly=True)
    assert any("with the preserved text" in warning for warning in found.warnings)
    assert found.as_dict()["not_preserved"] is None
    recipe = str(texts / "out" / "adaptation.json")
    assert cli.main(["adapt", "--recipe", recipe, "--out", str(texts / "again"), "--quiet"]) == 0
    assert tg.load(texts / "again") == found.tokenizer


@pytest.mark.usefixtures("model")
def test_renumbered_ids_of_preserved_text_are_a_warning(texts):
    for number, size in enumerate([{"remove": 20}, {"remove": 20, "add": 5}, {"remove": 20, "add": 20}]):
        found = adapted(texts, out=f"out{number}", **size, preserve=texts / "en.txt")
        moved = [warning for warning in found.warnings if warning.startswith("preserved text")]
        ids = [found.tokenizer.encode(line) == found.base.encode(line) for line in ENGLISH]
        assert len(moved) == (not all(ids))
        assert number > 0 or moved
        assert all("ids were renumbered without holes" in warning for warning in moved)


def test_the_command_says_whether_preserved_text_keeps_its_tokens_or_its_ids_too(model, texts, tokengraft):
    for sizes, same in ((["--remove", "60", "--add", "5"], "tokens"), (["--swap", "5"], "ids")):
        command = ["adapt", model, "--target", texts / "et.txt", "--preserve", texts / "en.txt", *sizes, "--no-report"]
        printed = tokengraft(*command, "--out", texts / f"out-{same}", "--quiet")
        assert f"all pretokens of the preserved text have the same {same}\n" in printed.out
        assert "than without preserved text: a gain of" in printed.out
        assert ("ids were renumbered without holes; only --swap" in printed.err) == (same == "tokens")


@pytest.mark.usefixtures("model")
def test_an_adaptation_takes_every_option_together(texts):
    found = adapted(
        texts,
        target={"et": texts / "et.txt", "lv": texts / "lv.txt"},
        add="auto",
        preserve=texts / "en.txt",
        include=tg.learn.WordList(("ibuprofen",)),
        balance="parity",
        max_share=0.5,
        limits=tg.Limits(scripts=["Latin"]),
        size=tg.measure.SizeOptions(max_rare=1, min_support=1, multiple=2),
        max_add=60,
    )
    assert found.choice.size == len(found.extension)
    assert set(found.extension.languages) >= {"et", "lv"}
    assert found.tokenizer.vocab["ibuprofen"]
    assert found.as_dict()["size"]["reason"] == found.choice.reason
    for line in ENGLISH:
        assert found.tokenizer.encode(line) == found.base.encode(line)


@pytest.mark.usefixtures("model")
def test_a_chosen_swap_changes_no_shape_and_is_no_larger_than_what_can_be_pruned(texts):
    size = tg.measure.SizeOptions(max_rare=1, min_support=1)
    found = adapted(texts, swap="auto", size=size, preserve=texts / "en.txt")
    assert 0 < found.plan.summary.added == found.plan.summary.removed == found.choice.size
    assert found.tokenizer.n_rows == found.base.n_rows


def test_pruning_more_than_the_preserved_text_allows_is_refused(model, texts):
    preserve = [texts / f"{name}.txt" for name in ("en", "et", "lv")]
    with pytest.raises(errors.OptionError, match="can be pruned"):
        adapted(texts, remove=len(tg.load(model).tokens) - 300, preserve=preserve)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("copies", [1, 3])
def test_the_support_of_a_chosen_size_counts_occurrences_in_all_targets(texts, copies):
    (texts / "et.txt").write_text("\n".join(ESTONIAN * copies), encoding="utf-8")
    target = {"et": tg.Target(texts / "et.txt", 2), "lv": tg.Target(texts / "lv.txt", "1/3")}
    size = tg.measure.SizeOptions(max_rare=0.2, min_support=150)
    found = adapted(texts, target=target, add="auto", size=size, max_add=200)
    assert "fewer than 150 times" in found.choice.reason
    first, second = (part.counts for part in _parts(found.base, target, PLAIN))
    for point in found.choice.curve.points[1:]:
        if point.tokens <= len(found.extension):
            assert point.below_100 == _rare(found, first + second, point.tokens, 100)
    assert _rare(found, first + second, len(found.extension), 150) <= 0.2


def _rare(found, counts, size, below):
    """The share of the first new tokens that occur less often in the text."""
    cut = found.extension[:size]
    new = cut.apply(found.base)
    occurring = counts.tokens(new)
    return sum(occurring.get(new.ids[token], 0) < below for token in cut.tokens) / size


def _parts(base, target, options):
    """The counts of the targets without their held-out documents."""
    for one in target.values():
        yield count_with_hold_out(
            base,
            one.corpus,
            read_options=options.read_options,
            count_options=options.count_options,
            hold_out=options.hold_out,
        )


def test_an_adaptation_preserves_files_of_counts_and_text_together(model, texts):
    tg.count(tg.load(model), texts / "en.txt").save(texts / "en.parquet")
    (texts / "kept.txt").write_text(ESTONIAN[0], encoding="utf-8")
    for preserve, kept in ((texts / "en.parquet", []), ([texts / "kept.txt", texts / "en.parquet"], ESTONIAN[:1])):
        found = adapted(texts, out=f"out{len(kept)}", add=20, preserve=preserve, preserve_exactly=True)
        for line in [*ENGLISH, *kept]:
            assert found.tokenizer.encode(line) == found.base.encode(line)


def test_the_cost_of_preserved_text_is_known_if_it_forbids_words_of_a_full_list(model, texts, tokengraft):
    (texts / "kept.txt").write_text("ibuprofen an ibuprofen\n", encoding="utf-8")
    words = texts / "two.txt"
    words.write_text("ibuprofen\nkoerad\n", encoding="utf-8")
    options = ["--corpus", texts / "et.txt", "--include", words, "--preserve", texts / "kept.txt", "--add"]
    n = next(n for n in range(1, 20) if _fits(model, texts, n))
    found = extended(model, texts, tokengraft, *options, n)
    assert found["added"] == n
    assert found["preserve_cost"]["free"] > 0


def _fits(model, texts, n):
    base = tg.load(model)
    counts, kept = tg.count(base, texts / "et.txt"), tg.count(base, texts / "kept.txt")
    try:
        tg.extend(base, counts, n, include=["ibuprofen", "koerad"], preserve=kept)
    except errors.OptionError:
        return False
    with pytest.raises(errors.OptionError, match="the word list needs"):
        tg.extend(base, counts, n, include=["ibuprofen", "koerad"])
    return True


def test_options_for_reading_apply_to_held_out_text(model, texts, tokengraft):
    for name in ("et", "held"):
        lines = (json.dumps({"body": line}) for line in ESTONIAN)
        (texts / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tg.count(tg.load(model), texts / "et.txt").save(texts / "et.parquet")
    options = ["--add", "auto", "--held-out", texts / "held.jsonl", "--max-add", 60, "--training-text", "1GB"]
    field = ["--text-field", "body"]
    one = extended(model, texts, tokengraft, "--corpus", texts / "et.jsonl", *options, *field)
    other = extended(model, texts, tokengraft, "--counts", texts / "et.parquet", *options, *field)
    assert one["size"]["size"] == other["size"]["size"] > 0
    refused = ("--counts", texts / "et.parquet", *options, *field, "--max-bytes", 100)
    assert "--max-bytes has no effect without --corpus" in extended(model, texts, tokengraft, *refused, code=2)


def test_a_largest_share_that_the_languages_cannot_keep_is_refused(model, texts):
    base = tg.load(model)
    counts = {name: tg.count(base, texts / f"{name}.txt") for name in ("et", "lv", "en")}
    assert tg.learn.Parity(counts, max_share=0.34)
    with pytest.raises(errors.OptionError, match="3 languages with it get less") as refused:
        tg.learn.Parity(counts, max_share=0.33)
    assert refused.value.hint.endswith("`max_share=0.34`")


def test_a_list_that_needs_more_tokens_says_which_characters_are_missing(piece_folder):
    base = tg.load(piece_folder)
    counts = tg.count(base, iter(["кот ходит дома", "tere"]))
    with pytest.raises(errors.OptionError, match="missing characters of the text") as refused:
        tg.extend(base, counts, 3, include=["ibuprofen"], character_coverage=1)
    assert "--character-coverage" in refused.value.hint
    assert pickle.loads(pickle.dumps(refused.value)).message == refused.value.message


@pytest.mark.usefixtures("model")
def test_an_adaptation_preserves_files_as_a_whole_and_by_line(texts):
    lines = (json.dumps({"text": f"koer {n}\n\n\n\n\n\n\n\nkass\n\n\n\n"}) for n in range(300))
    (texts / "breaks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = "põdrad\n\n\n\n\n\n\n\nkoerad\n\n\n\nkassid\n"
    (texts / "source.txt").write_text(source, encoding="utf-8")
    free = adapted(texts, out="free", target="breaks.jsonl", add=6)
    assert free.tokenizer.encode(source) != free.base.encode(source)
    exact = {"preserve": texts / "source.txt", "preserve_exactly": True}
    found = adapted(texts, target="breaks.jsonl", add=6, **exact)
    for text in (source, *source.split("\n")):
        assert found.tokenizer.encode(text) == found.base.encode(text)
