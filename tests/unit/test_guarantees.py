"""Options for new tokens in `extend` and `adapt`: text to preserve, scripts, word lists, balance, chosen sizes."""

import json
import pickle
from contextlib import nullcontext

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.counts.count import count_with_hold_out


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("et", ESTONIAN), ("lv", LATVIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "words.txt").write_text("ibuprofen\nCOX-2\nkoerad\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(texts):
    checkpoint(texts / "model")
    return texts / "model"


@pytest.fixture
def piece_folder(texts):
    (texts / "pieces").mkdir()
    (texts / "pieces" / "tokenizer.model").write_bytes(builders.llama2_like())
    return texts / "pieces"


def extended(source, texts, capsys, *options, code=0):
    """The JSON result of `tokengraft extend`, or its error message."""
    command = ["extend", str(source), "--out", str(texts / "out"), "--force", "--quiet", "--json", *map(str, options)]
    assert cli.main(command) == code
    printed = capsys.readouterr()
    return json.loads(printed.out) if code == 0 else printed.err


@pytest.mark.parametrize("kind", ["model", "piece_folder"])
def test_preserved_text_keeps_its_ids(kind, request, texts, capsys):
    source = request.getfixturevalue(kind)
    base, et = tg.load(source), texts / "et.txt"
    kept = texts / "kept.txt"
    kept.write_text("\n".join(ESTONIAN[:3]), encoding="utf-8")
    free = extended(source, texts, capsys, "--corpus", et, "--add", 30)
    assert tg.load(texts / "out").encode(ESTONIAN[0]) != base.encode(ESTONIAN[0])
    found = extended(source, texts, capsys, "--corpus", et, "--add", 30, "--preserve", kept)
    assert found["refused"] > 0
    assert found["preserve_cost"]["share"] >= 0
    assert free["preserve_cost"] is None
    for line in ESTONIAN[:3]:
        assert tg.load(texts / "out").encode(line) == base.encode(line)


@pytest.mark.parametrize("limit", [("--max-bytes", "40"), ("--max-documents", "1"), ("--shard", "0/2")])
def test_limits_of_the_corpus_do_not_shorten_the_preserved_text(model, texts, capsys, limit):
    base, kept = tg.load(model), [texts / "kept-1.txt", texts / "kept-2.txt"]
    for path, text in zip(kept, ("kassid ja koerad " * 5, "istuvad põõsas"), strict=True):
        path.write_text(text, encoding="utf-8")
    corpus = [texts / "one.txt", texts / "other.txt"]
    for path in corpus:
        path.write_text("istuvad põõsas kassid ja koerad\n" * 9, encoding="utf-8")
    options = ["--corpus", *corpus, "--add", 9, "--min-count", 1, "--preserve", *kept, *limit]
    extended(model, texts, capsys, *options)
    for path in kept:
        assert tg.load(texts / "out").encode(path.read_text()) == base.encode(path.read_text())


def test_a_table_shows_what_was_asked_for(model, texts, capsys):
    command = ["extend", str(model), "--out", str(texts / "out"), "--quiet", "--add", "60", "--balance", "parity"]
    command += ["--corpus", f"et={texts / 'et.txt'}", f"lv={texts / 'lv.txt'}"]
    command += ["--include", str(texts / "words.txt"), "--preserve", str(texts / "en.txt")]
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    assert "'COX-2': the pre-tokenizer splits it into" in shown
    assert "forms of the words are tokens" in shown
    assert "learned for" in shown
    assert "candidates were refused" in shown


def test_words_become_tokens_in_running_text(model, texts, capsys):
    found = extended(model, texts, capsys, "--corpus", texts / "et.txt", "--add", 60, "--include", texts / "words.txt")
    new = tg.load(texts / "out")
    assert [word["word"] for word in found["included"] if word["token"] is None] == ["COX-2"]
    assert new.vocab["Ġibuprofen"] in new.encode("an ibuprofen a day")
    exact = extended(
        model,
        texts,
        capsys,
        *("--corpus", texts / "et.txt", "--add", 60, "--include", texts / "words.txt", "--include-exact"),
    )
    assert [word["token"] for word in exact["included"]] == ["ibuprofen", None, "koerad"]


def test_a_size_is_chosen(model, texts, capsys):
    options = ["--corpus", texts / "et.txt", "--documents", "lines", "--held-out", texts / "et.txt", "--add", "auto"]
    found = extended(model, texts, capsys, *options, "--max-add", 60, "--multiple", 4, "--min-support", 3)
    assert found["added"] == found["size"]["size"]
    assert found["added"] % 4 == 0
    assert found["size"]["reason"]
    listed = extended(
        *(model, texts, capsys, *options, "--max-add", 60, "--max-rare", 1, "--include", texts / "words.txt")
    )
    assert listed["added"] >= 6


def test_scripts_on_the_command_line(model, texts, capsys):
    mixed = texts / "mixed.txt"
    mixed.write_text("koer кот 12\n" * 50, encoding="utf-8")
    extended(model, texts, capsys, "--corpus", mixed, "--add", 10, "--scripts", "Cyrillic")
    new, base = tg.load(texts / "out"), tg.load(model)
    assert new.encode(" koer") == base.encode(" koer")
    assert len(new.encode(" кот")) < len(base.encode(" кот"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--add auto", "pass --held-out TEXT"),
        ("--add 5 --min-support 3", "--min-support has no effect"),
        ("--add 5 --held-out en.txt", "--held-out has no effect"),
        ("--add 5 --include-exact", "pass --include FILE"),
        ("--add 5 --balance parity", "needs several texts"),
        ("--add 5 --parity-text a=en.txt", "pass --balance parity"),
        ("--add 5 --max-share 0.5", "pass --balance parity"),
        ("--add 5 --include words.txt", "pass --add"),
        ("--add 5 --include empty.txt", "the word list is empty"),
        ("--add 5 --scripts Latinn", "names like it: Latin"),
        ("--add 5 --preserve empty.txt", "the preserved counts are empty"),
        ("--add 5 --preserve other.parquet", "another pipeline"),
        ("--add 5 --method scaffold --preserve en.txt", "--preserve is for continued training"),
        ("--add auto --method scaffold", "--add auto is for continued training"),
        ("--add five", "neither a whole number, like 16000 or 16k, nor `auto`"),
    ],
)
def test_bad_options_of_extend(model, texts, capsys, monkeypatch, options, message):
    monkeypatch.chdir(texts)
    (texts / "empty.txt").write_text("")
    other = tg.load(builders.write(texts / "other", builders.sentencepiece()))
    tg.count(other, iter(["cat"])).save(texts / "other.parquet")
    command = ["extend", str(model), "--corpus", "et.txt", "--out", "out", "--quiet", *options.split()]
    with pytest.raises(SystemExit) if message.startswith("neither") else nullcontext():
        assert cli.main(command) == 2
    assert message in capsys.readouterr().err
    assert not (texts / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--balance parity --corpus et.txt sub/et.txt", "two texts of --corpus are called 'et'"),
        ("--balance parity --corpus et=et.txt lv=lv.txt --weight 2", "--weight has no effect"),
        ("--balance parity --corpus et=et.txt lv=lv.txt --parity-text et=et.txt", "the parallel texts are 'et'"),
        ("--balance parity --corpus et=et.txt lv=lv.txt --max-share 2", "the largest share of one language is 2.0"),
        ("--balance parity --counts a=a.parquet b=b.parquet --documents lines", "--documents is for reading a corpus"),
    ],
)
def test_bad_options_of_parity(model, texts, capsys, monkeypatch, options, message):
    monkeypatch.chdir(texts)
    command = ["extend", str(model), "--add", "5", "--out", "out", "--quiet", *options.split()]
    assert cli.main(command) == 2
    assert message in capsys.readouterr().err


def test_an_adaptation_preserves_the_text_to_keep(model, texts):
    options = tg.AdaptOptions(preserve_keep=True)
    found = tg.adapt(model, target=texts / "et.txt", keep=texts / "en.txt", swap=30, out=texts / "out", options=options)
    finding = next(finding for finding in found.check.findings if finding.name == "preserved text")
    assert finding.outcome == "pass"
    for line in ENGLISH:
        assert found.tokenizer.encode(line.split()[0]) == found.base.encode(line.split()[0])


def test_an_adaptation_takes_every_option_together(model, texts):
    options = tg.AdaptOptions(
        preserve=texts / "en.txt",
        include=tg.WordList(("ibuprofen",)),
        balance="parity",
        max_share=0.5,
        limits=tg.Limits(scripts=["Latin"]),
        size=tg.SizeOptions(max_rare=1, min_support=1, multiple=2),
        max_add=60,
    )
    target = {"et": texts / "et.txt", "lv": texts / "lv.txt"}
    found = tg.adapt(model, target=target, add="auto", out=texts / "out", options=options)
    assert found.choice.size == len(found.extension)
    assert set(found.extension.languages) >= {"et", "lv"}
    assert found.tokenizer.vocab["ibuprofen"]
    assert found.as_dict()["size"]["reason"] == found.choice.reason
    for line in ENGLISH:
        assert found.tokenizer.encode(line) == found.base.encode(line)


def test_a_swap_of_a_chosen_size_changes_no_shape(model, texts):
    options = tg.AdaptOptions(size=tg.SizeOptions(max_rare=1, min_support=1), max_add=30)
    found = tg.adapt(
        model, target=texts / "et.txt", keep=texts / "en.txt", swap="auto", out=texts / "out", options=options
    )
    assert found.plan.summary.added == found.plan.summary.removed == found.choice.size
    assert found.tokenizer.n_rows == found.base.n_rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preserve_keep": True, "add": 5}, "without text to keep"),
        ({"balance": "parity", "add": 5}, "needs several targets"),
        ({"balance": "evenly", "add": 5}, "there is no balance 'evenly'"),
        ({"parity_text": {"en": "en.txt"}, "add": 5}, "--parity-text is for --balance parity"),
        ({"max_share": 0.5, "add": 5}, "--max-share is for --balance parity"),
        ({"include": tg.WordList(("a",)), "remove": 5}, "none are learned"),
        ({"limits": tg.Limits(scripts=["Latin"]), "remove": 5}, "none are learned"),
    ],
)
def test_options_of_an_adaptation_that_have_no_effect_are_refused(model, texts, options, message):
    sizes = {name: options[name] for name in ("add", "remove") if name in options}
    others = tg.AdaptOptions(**{name: value for name, value in options.items() if name not in sizes})
    with pytest.raises(errors.OptionError, match=message):
        tg.adapt(model, target=texts / "et.txt", out=texts / "out", options=others, **sizes)


def test_weights_and_parity_exclude_each_other(model, texts):
    target = {"et": tg.Target(texts / "et.txt", 2), "lv": texts / "lv.txt"}
    with pytest.raises(errors.OptionError, match="'et' has a weight"):
        tg.adapt(model, target=target, add=5, out=texts / "out", options=tg.AdaptOptions(balance="parity"))


def test_pruning_more_than_the_preserved_text_allows_is_refused(model, texts):
    options = tg.AdaptOptions(preserve=[texts / "en.txt", texts / "et.txt", texts / "lv.txt"])
    base = tg.load(model)
    with pytest.raises(errors.OptionError, match="can be pruned"):
        tg.adapt(*(model,), target=texts / "et.txt", remove=len(base.tokens) - 300, out=texts / "out", options=options)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 1)])
def test_the_support_of_a_chosen_size_counts_occurrences_in_all_targets(model, texts, sizes):
    (texts / "et.txt").write_text("\n".join(ESTONIAN * sizes[0]), encoding="utf-8")
    target = {"et": tg.Target(texts / "et.txt", 2), "lv": tg.Target(texts / "lv.txt", "1/3")}
    options = tg.AdaptOptions(size=tg.SizeOptions(max_rare=0.2, min_support=150), max_add=200)
    found = tg.adapt(model, target=target, add="auto", out=texts / "out", options=options)
    assert "fewer than 150 times" in found.choice.reason
    first, second = (part.counts for part in _parts(found.base, target, options))
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
    base = tg.load(model)
    tg.count(base, texts / "en.txt").save(texts / "en.parquet")
    (texts / "kept.txt").write_text(ESTONIAN[0], encoding="utf-8")
    for number, preserve in enumerate(
        ([texts / "en.parquet"], texts / "en.parquet", [texts / "kept.txt", texts / "en.parquet"])
    ):
        options = tg.AdaptOptions(preserve=preserve)
        found = tg.adapt(model, target=texts / "et.txt", add=20, out=texts / f"out{number}", options=options)
        text = [*ENGLISH, *ESTONIAN[: number // 2]]
        assert [found.tokenizer.encode(line) for line in text] == [base.encode(line) for line in text]


@pytest.mark.parametrize("command", ["extend", "adapt"])
def test_a_largest_size_below_one_is_refused(model, texts, capsys, command):
    text = ["--corpus", texts / "et.txt", "--held-out", texts / "et.txt"]
    options = text if command == "extend" else ["--target", texts / "et.txt"]
    options = [command, model, *options, "--add", "auto", "--max-add", 0, "--out", texts / "out", "--quiet"]
    assert cli.main(list(map(str, options))) == 2
    assert "max-add" in capsys.readouterr().err


def test_a_chosen_swap_is_no_larger_than_what_can_be_pruned(model, texts):
    options = tg.AdaptOptions(size=tg.SizeOptions(max_rare=1, min_support=1), preserve=texts / "en.txt")
    found = tg.adapt(model, target=texts / "et.txt", swap="auto", out=texts / "out", options=options)
    assert 0 < found.plan.summary.added == found.plan.summary.removed == found.choice.size
    assert found.tokenizer.n_rows == found.base.n_rows


def test_the_cost_of_preserved_text_is_known_if_it_forbids_words_of_a_full_list(model, texts, capsys):
    (texts / "kept.txt").write_text("ibuprofen an ibuprofen\n", encoding="utf-8")
    words = texts / "two.txt"
    words.write_text("ibuprofen\nkoerad\n", encoding="utf-8")
    options = ["--corpus", texts / "et.txt", "--include", words, "--preserve", texts / "kept.txt", "--add"]
    n = next(n for n in range(1, 20) if _fits(model, texts, n))
    found = extended(model, texts, capsys, *options, n)
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


def test_options_for_reading_apply_to_held_out_text(model, texts, capsys):
    for name in ("et", "held"):
        lines = (json.dumps({"body": line}) for line in ESTONIAN)
        (texts / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tg.count(tg.load(model), texts / "et.txt").save(texts / "et.parquet")
    options = ["--add", "auto", "--held-out", texts / "held.jsonl", "--max-add", 60, "--min-support", 3]
    field = ["--text-field", "body"]
    one = extended(model, texts, capsys, "--corpus", texts / "et.jsonl", *options, *field)
    other = extended(model, texts, capsys, "--counts", texts / "et.parquet", *options, *field)
    assert one["size"]["size"] == other["size"]["size"] > 0
    refused = ("--counts", texts / "et.parquet", *options, *field, "--max-bytes", 100)
    assert "--max-bytes is for reading a corpus" in extended(model, texts, capsys, *refused, code=2)


def test_a_largest_share_that_the_languages_cannot_keep_is_refused(model, texts):
    base = tg.load(model)
    counts = {name: tg.count(base, texts / f"{name}.txt") for name in ("et", "lv", "en")}
    assert tg.Parity(counts, max_share=0.34)
    with pytest.raises(errors.OptionError, match="3 languages with it get less") as refused:
        tg.Parity(counts, max_share=0.33)
    assert refused.value.hint.endswith("--max-share 0.34")
    options = tg.AdaptOptions(balance="parity", max_share=0.4)
    target = {"et": texts / "et.txt", "lv": texts / "lv.txt"}
    with pytest.raises(errors.OptionError, match="2 languages with it get less"):
        tg.estimate(model, target=target, add=5, out=texts / "out", options=options)


def test_a_list_that_needs_more_tokens_says_which_characters_are_missing(piece_folder):
    base = tg.load(piece_folder)
    counts = tg.count(base, iter(["кот ходит дома", "tere"]))
    with pytest.raises(errors.OptionError, match="missing characters of the text") as refused:
        tg.extend(base, counts, 3, include=["ibuprofen"], character_coverage=1)
    assert "--character-coverage" in refused.value.hint
    assert pickle.loads(pickle.dumps(refused.value)).message == refused.value.message


def test_an_adaptation_preserves_files_as_a_whole_and_by_line(model, texts):
    lines = (json.dumps({"text": f"koer {n}\n\n\n\n\n\n\n\nkass\n\n\n\n"}) for n in range(300))
    (texts / "breaks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = "põdrad\n\n\n\n\n\n\n\nkoerad\n\n\n\nkassid\n"
    (texts / "source.txt").write_text(source, encoding="utf-8")
    free = tg.adapt(model, target=texts / "breaks.jsonl", add=6, out=texts / "free")
    assert free.tokenizer.encode(source) != free.base.encode(source)
    options = tg.AdaptOptions(preserve=texts / "source.txt")
    found = tg.adapt(model, target=texts / "breaks.jsonl", add=6, out=texts / "out", options=options)
    for text in (source, *source.split("\n")):
        assert found.tokenizer.encode(text) == found.base.encode(text)


def test_a_byte_order_mark_is_no_part_of_the_first_word(model, texts, capsys):
    (texts / "marked.txt").write_text("ibuprofen\nkoerad\n", encoding="utf-8-sig")
    options = ["--corpus", texts / "et.txt", "--add", 60, "--include", texts / "marked.txt"]
    assert extended(model, texts, capsys, *options)["included"][0]["token"] == "Ġibuprofen"
