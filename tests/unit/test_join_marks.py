"""`join_marks`: words with combining marks stay whole, other text is split as before, what is refused or warned of."""

import json
import shutil
import unicodedata
from dataclasses import replace
from importlib import import_module
from itertools import product

import builders
import pytest
import regex
from checkpoints import adapted, checkpoint, write_texts
from checks import one, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from limits.inputs import O200K
from rank_files import write_tekken

import tokengraft as tg
from tokengraft import _core, errors
from tokengraft.tokenizer.marks import cut_scripts, joined_like, joined_scripts, kept_marks
from tokengraft.tokenizer.rank_file import PATTERNS
from tokengraft.verify.joined_marks import marks_loaded

HINDI = [f"नमस्ते दुनिया। बिल्ली {n} बैठी है, हिन्दी में लिखी किताबें पढ़ती है" for n in "कखगघङचछजझञटठडढणतथदधन" * 12]
SHAPES = {
    "ByteLevel": lambda: None,
    "GPT-2": lambda: PATTERNS["gpt2"],
    "Llama-3": lambda: builders.LLAMA3_PATTERN,
    "Qwen-2": lambda: PATTERNS["qwen2"],
}
LETTERS = "ab कखगहिन्दी नमस्ते।\u0930\u093c மொழி ไทยที่ עִבְ ç\u0301\u200c\u200d'!?12\n\t\u1cd0\U00011f00\U0001e000"


def shaped(folder, pattern):
    document = builders.byte_level()
    if pattern:
        document["pre_tokenizer"] = builders.split_by(pattern)
    return tg.load(builders.write(folder, document))


@pytest.fixture(scope="module", params=SHAPES)
def cutting(request, tmp_path_factory):
    return shaped(tmp_path_factory.mktemp("cutting"), SHAPES[request.param]())


@pytest.fixture(scope="module")
def hindi(cutting):
    return cutting, tg.tokenizer.join_marks(cutting, ["Devanagari"])


@settings(max_examples=200)
@given(text=st.text(st.sampled_from(LETTERS) | st.characters(codec="utf-8"), max_size=40))
def test_text_without_marks_of_the_scripts_is_split_as_before(hindi, text):
    before, joined = hindi
    marks = {*_core.marks(["Devanagari"])}
    other = "".join(character for character in text if character not in marks)
    assert joined.pretokenize(other) == before.pretokenize(other)
    assert joined.encode(other) == before.encode(other)


@settings(max_examples=200)
@given(text=st.text(st.sampled_from(LETTERS), max_size=40))
def test_pretokens_are_those_of_tokenizers_and_ids_too(hindi, text):
    _, joined = hindi
    upstream = joined.to_tokenizers()
    shown = [piece for piece, _ in upstream.pre_tokenizer.pre_tokenize_str(text)]
    assert joined.pretokenize(text) == shown
    assert joined.encode(text) == upstream.encode(text, add_special_tokens=False).ids


def test_words_are_whole_where_letters_marks_and_joiners_follow_each_other(hindi):
    before, joined = hindi
    word, more = "हिन्दी", "क्\u200dष"
    assert len(before.pretokenize(word)) in (4, 6)  # with a mark before the letters, or alone
    assert len(joined.pretokenize(word)) == len(joined.pretokenize(more)) == 1
    for text in ("िक", "!ि", "1ि", "தமிழ்"):  # the mark follows no letter, or is of another script
        assert joined.pretokenize(text) == before.pretokenize(text)
    assert len(joined.pretokenize("मि\u200c")) == 1
    assert len(joined.pretokenize("मि\u200c\u200c")) == 2


@pytest.mark.parametrize("script", ["Devanagari", "Arabic", "Thai", "Hebrew", "Tamil"])
def test_marks_of_a_script_are_its_combining_marks_by_the_extensions_too(script):
    pattern = regex.compile(rf"(?=\p{{scx={script}}})\p{{M}}")
    # `regex`, the core and Python may have tables of different versions of Unicode.
    assigned = [chr(point) for point in range(0x110000) if unicodedata.category(chr(point)) != "Cn"]
    found = {*_core.marks([script])}
    assert [c for c in assigned if c in found] == [c for c in assigned if pattern.match(c)]


def test_names_and_order_of_scripts_do_not_matter_and_joining_again_changes_nothing(cutting):
    both = tg.tokenizer.join_marks(cutting, ["Thai", "deva"])
    assert both == tg.tokenizer.join_marks(cutting, {"Devanagari": 1, "THAI": 2})
    assert tg.tokenizer.join_marks(both, ["Devanagari", "Thai"]) == both
    assert joined_scripts(both) == ["Devanagari", "Thai"]
    assert joined_like(cutting, both) == both
    assert joined_like(cutting, cutting) == cutting
    assert joined_scripts(cutting) == []
    with pytest.raises(errors.UnsupportedTokenizerError, match="marks of other scripts in words already"):
        tg.tokenizer.join_marks(both, ["Devanagari"])


def test_saved_and_loaded_it_is_the_same_and_transformers_reads_the_file_as_it_is(cutting, tmp_path):
    others = {"tokenizer_config.json": json.dumps({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 7})}
    source = builders.write(tmp_path / "source", json.loads(cutting.to_tokenizers().to_str()), **others)
    joined = tg.tokenizer.join_marks(tg.load(source), ["Devanagari"])
    out = tg.save(joined, tmp_path / "out")
    assert tg.load(out) == joined
    config = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert config == {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 7}


@pytest.mark.parametrize(("scripts", "message"), [
    (["Klingon"], "no Unicode script 'Klingon'"), (["Ogham"], "Ogham has no combining marks"), ([], "no script has"),
])  # fmt: skip
def test_scripts_that_do_not_exist_or_have_no_marks_are_refused(base, scripts, message):
    with pytest.raises(errors.OptionError, match=message):
        tg.tokenizer.join_marks(base, scripts)


def test_tokenizers_that_keep_marks_in_words_or_have_no_pattern_are_refused(tmp_path, llama2):
    keeping = shaped(tmp_path / "o200k", O200K)
    spaced = builders.byte_level()
    spaced["pre_tokenizer"]["add_prefix_space"] = True
    for tokenizer in (keeping, llama2, tg.load(builders.write(tmp_path / "spaced", spaced))):
        with pytest.raises(errors.UnsupportedTokenizerError, match=r"no split pattern"):
            tg.tokenizer.join_marks(tokenizer, ["Devanagari"])
    with pytest.raises(errors.UnsupportedTokenizerError, match="in the code of the programs that read it"):
        tg.tokenizer.join_marks(tg.load(write_tekken(tmp_path / "tekken")), ["Devanagari"])


# Learning.


def test_new_tokens_have_marks_inside_and_fewer_are_needed(cutting):
    joined = tg.tokenizer.join_marks(cutting, ["Devanagari"])
    cut, whole = (tg.extend(one, tg.count(one, iter(HINDI)), 40).apply(one) for one in (cutting, joined))
    assert len(whole.encode(HINDI[0])) < len(cut.encode(HINDI[0]))
    checked = tg.check(whole, cutting)
    assert checked.passed
    assert outcome(checked, "combining marks").outcome == "note"
    assert "Devanagari" in outcome(checked, "combining marks").detail
    assert not [found for found in tg.check(cut, cutting).findings if found.name == "combining marks"]


def test_counts_belong_to_one_way_of_splitting(base):
    joined = tg.tokenizer.join_marks(base, ["Devanagari"])
    with pytest.raises(errors.CountsError, match="another pipeline"):
        tg.extend(base, tg.count(joined, iter(HINDI)), 5)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A model and texts, as the working directory."""
    checkpoint(write_texts(tmp_path, hi=HINDI) / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_extend_by_counts_and_by_text_give_the_same(place, tokengraft):
    join = ("--join-marks", "Devanagari")
    text = ("--documents", "lines")
    tokengraft("count", "model", "hi.txt", *text, *join, "--out", "hi.parquet")
    tokengraft("extend", "model", "--counts", "hi.parquet", "--add", 30, *join, "--out", "counted")
    tokengraft("extend", "model", "--corpus", "hi.txt", *text, "--add", 30, *join, "--out", "read")
    assert (place / "counted" / "tokenizer.json").read_bytes() == (place / "read" / "tokenizer.json").read_bytes()
    refused = tokengraft("extend", "model", "--counts", "hi.parquet", "--add", 30, "--out", "none", code=2)
    assert "another pipeline" in refused.err
    refused = tokengraft("extend", "model", "--include", "hi.txt", *join, "--out", "none", code=2)
    assert "--join-marks" in refused.err
    assert not (place / "none").exists()


@pytest.mark.usefixtures("transformers_running")
def test_adapt_joins_warns_without_and_keeps_other_text(place, tokengraft):
    asked = ("adapt", "model", "--target", "hi.txt", "--keep", "en.txt", "--test", "et=et.txt")
    cut = tokengraft(*asked, "--add", 30, "--preserve-keep", "--out", "cut")
    assert "--join-marks Devanagari keeps words whole" in cut.err
    whole = tokengraft(*asked, "--add", 30, "--preserve-keep", "--join-marks", "Devanagari", "--out", "whole")
    assert "--join-marks" not in whole.err
    base, tokenizers = tg.load("model"), [tg.load(name) for name in ("cut", "whole")]
    first, second = (sum(len(new.encode(line)) for line in HINDI) for new in tokenizers)
    assert second < first
    for line in (place / "en.txt").read_text("utf-8").splitlines():
        assert tokenizers[1].encode(line) == base.encode(line)
    record = json.loads((place / "whole" / "adaptation.json").read_text("utf-8"))
    assert record["request"]["options"]["join_marks"] == ["Devanagari"]
    # What is compared is the source as it is: the gain of the page and of the record are against cut words.
    before = sum(len(base.encode(line)) for line in (place / "et.txt").read_text("utf-8").splitlines())
    assert before == sum(len(tokenizers[1].encode(line)) for line in (place / "et.txt").read_text("utf-8").splitlines())
    tokengraft("adapt", "--recipe", "whole/adaptation.json", "--out", "again")
    assert (place / "again" / "tokenizer.json").read_bytes() == (place / "whole" / "tokenizer.json").read_bytes()
    checked = tokengraft("check", "whole", "--base", "model", "--preserve", "en.txt", "--documents", "lines")
    assert "words in Devanagari are not cut" in checked.out


@pytest.mark.usefixtures("transformers_running")
def test_a_swap_joins_marks_without_the_hash_and_the_two_do_not_go_together(place):
    done = adapted(place, target=place / "hi.txt", swap=20, join_marks=("Devanagari",))
    assert done.check.passed
    assert joined_scripts(done.tokenizer) == ["Devanagari"]
    shutil.rmtree(place / "out", ignore_errors=True)
    with pytest.raises(errors.OptionError, match="do not go together"):
        adapted(place, target=place / "hi.txt", swap=20, join_marks=("Devanagari",), keep_llama_cpp_hash=True)


def test_programs_with_the_pattern_in_their_code_cannot_use_it(place):
    joined = tg.tokenizer.join_marks(tg.load("model"), ["Devanagari"])
    shutil.copytree("model", "served")
    tg.save(joined, "files")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (place / "files" / name).exists():
            shutil.copy(place / "files" / name, place / "served" / name)
    for stack in ("llama.cpp", "ollama"):
        assert one("served", stack, "combining marks").outcome == "fail"
        names = [found.name for found in tg.check_serving("model", stack).findings]
        assert not [name for name in names if "combining marks" in name]
    (place / "served" / "config.json").write_text('{"model_type": "llama"}')  # that of the checkpoint is invalid
    assert one("served", "vllm", "AutoTokenizer").outcome == "pass"


@pytest.fixture
def qwen(tmp_path):
    """Makes a folder of a model type with Qwen's pipeline, and what `extend` is asked for."""
    pytest.importorskip("transformers")
    (tmp_path / "hi.txt").write_text("\n".join(HINDI), encoding="utf-8")
    document = builders.byte_level() | {"pre_tokenizer": builders.split_by(PATTERNS["qwen2"])}
    document["normalizer"] = {"type": "NFC"}

    def make(model_type, **others):
        config = {"config.json": json.dumps({"model_type": model_type})} if model_type else {}
        return builders.write(tmp_path / str(model_type), document, **config, **others)

    return make


def joined_and_extended(source):
    joined = tg.tokenizer.join_marks(tg.load(source), ["Devanagari"])
    return tg.extend(joined, tg.count(joined, iter(HINDI)), 30).apply(joined)


@pytest.mark.usefixtures("transformers_running")
def test_models_whose_class_in_transformers_has_a_pattern_of_its_own_are_refused(qwen, tmp_path, tokengraft):
    source = qwen("qwen2")
    text, join = tmp_path / "hi.txt", ("--join-marks", "Devanagari")
    for asked in (("extend", source, "--corpus", text), ("adapt", source, "--target", text, "--keep", text)):
        refused = tokengraft(*asked, "--add", 30, *join, "--out", tmp_path / "out", code=2)
        assert "cuts words at 80 of 80 marks" in refused.err
        assert "leave out --join-marks" in refused.err
        assert not (tmp_path / "out").exists()
    tokengraft("extend", source, "--corpus", text, "--add", 30, "--out", tmp_path / "out")
    (finding,) = marks_loaded(joined_and_extended(source), source)
    assert finding.outcome == "fail"


@pytest.mark.usefixtures("transformers_running")
@pytest.mark.parametrize("model_type", ["qwen3", "llama", "gpt2", "gpt_neox"])
def test_models_whose_settings_name_the_class_are_read_as_they_are(qwen, tmp_path, tokengraft, model_type):
    source = qwen(model_type)
    asked = ("--corpus", tmp_path / "hi.txt", "--add", 30, "--join-marks", "Devanagari", "--out", tmp_path / "out")
    assert "not checked" not in tokengraft("extend", source, *asked).err
    (finding,) = marks_loaded(tg.load(tmp_path / "out"), source)
    assert finding.outcome == "pass"
    assert [*marks_loaded(tg.load(source), source)] == []


@pytest.mark.usefixtures("without_libraries")
def test_what_could_not_be_checked_is_a_warning(qwen, tmp_path, tokengraft, monkeypatch):
    monkeypatch.setattr(import_module("tokengraft.verify.joined_marks"), "transformers_installed", lambda: False)
    asked = ("--corpus", tmp_path / "hi.txt", "--add", 30, "--join-marks", "Devanagari", "--out", tmp_path / "out")
    assert "not checked: transformers is not installed" in tokengraft("extend", qwen("qwen3"), *asked).err


@pytest.mark.usefixtures("transformers_running")
def test_transplant_refuses_a_joined_tokenizer_for_such_a_model(place, tokengraft):
    new = tg.save(joined_and_extended("model"), place / "new")
    tokengraft("transplant", "model", new, "--out", "fine")
    config = json.loads((place / "model" / "config.json").read_text())
    (place / "model" / "config.json").write_text(json.dumps(config | {"model_type": "qwen2"}))
    assert "split pattern of its own" in tokengraft("transplant", "model", new, "--out", "none", code=2).err
    assert not (place / "none").exists()


def test_code_of_the_folder_is_refused(qwen):
    settings = json.dumps({"auto_map": {"AutoTokenizer": [None, "own.Tokenizer"]}})
    with pytest.raises(errors.UnsupportedTokenizerError, match="auto_map"):
        tg.tokenizer.join_marks(tg.load(qwen(None, **{"tokenizer_config.json": settings})), ["Devanagari"])


# What is preserved, and what the gain is measured against.


def test_words_whose_ids_change_by_joining_are_not_preserved_and_named(place, tokengraft):
    document = builders.with_tokens(builders.byte_level() | {"added_tokens": []}, "ह", "ि")
    letter, mark = ("".join(builders.CHARACTERS[byte] for byte in text.encode()) for text in "हि")
    document["model"]["vocab"][letter + mark] = max(document["model"]["vocab"].values()) + 1
    document["model"]["merges"].append([letter, mark])  # which the source cannot use: it cuts between the two
    source = builders.write(place / "source", document)
    base, joined = tg.load(source), tg.tokenizer.join_marks(tg.load(source), ["Devanagari"])
    assert base.encode("हिन") != joined.encode("हिन")
    (place / "keep.txt").write_text("हिन the cat\n" * 30, encoding="utf-8")
    asked = (
        "extend",
        source,
        "--corpus",
        "hi.txt",
        "--add",
        20,
        "--join-marks",
        "Devanagari",
        "--preserve",
        "keep.txt",
    )
    refused = tokengraft(*asked, "--preserve-exactly", "--out", "exact", code=2)
    assert "words of the preserved text are not cut at combining marks any more" in refused.err
    shown = tokengraft(*asked, "--out", "new")
    assert "words that are not cut at combining marks any more" in shown.out
    assert "all other pretokens" in shown.out
    check = ("check", "new", "--base", source, "--preserve", "keep.txt")
    assert "words that the base cuts at combining marks" in tokengraft(*check).out
    assert "words that the base cuts" in tokengraft(*check, "--preserve-exactly", code=1).out
    with pytest.raises(errors.InvalidTokenizerError, match="words that the base cuts"):
        tg.check(tg.load("new"), base, preserve=tg.count(joined, "keep.txt")).raise_for_failures()


def test_a_class_of_another_version_of_unicode_is_still_a_joined_one(base):
    joined = tg.tokenizer.join_marks(base, ["Devanagari"])
    older = replace(joined, rest=joined.rest.replace("\\\\uA8FF]", "]"))
    assert kept_marks(older) == kept_marks(joined).replace("\ua8ff", "")
    assert joined_scripts(older) != []
    assert outcome(tg.check(older), "combining marks").outcome == "note"


@pytest.mark.parametrize("pattern", [
    r"[[:alpha:]\p{L}+]+|\p{N}+|\p{L}+", r"(?x) \p{L}+ # \p{L}+", r"(?<=\s)\p{L}+|\S", r"\p{L}+{2}|.", r"\p{L}++|.",
])  # fmt: skip
def test_patterns_that_cannot_be_changed_by_their_text_are_refused(tmp_path, pattern):
    with pytest.raises(tg.TokengraftError, match=r"pattern|cuts words"):
        tg.tokenizer.join_marks(shaped(tmp_path / "own", pattern), ["Devanagari"])


def test_a_pipeline_that_cuts_words_in_another_step_is_refused(tmp_path):
    document = builders.byte_level() | {"pre_tokenizer": builders.split_by(builders.LLAMA3_PATTERN)}
    marks = {"type": "Split", "pattern": {"Regex": r"\p{M}"}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"]["pretokenizers"].insert(1, marks)
    with pytest.raises(errors.UnsupportedTokenizerError, match="another step of the pipeline cuts words"):
        tg.tokenizer.join_marks(tg.load(builders.write(tmp_path / "cut", document)), ["Devanagari"])


def test_scripts_that_are_cut_are_found_where_joining_helps(cutting, tmp_path, llama2):
    text = "हिन्दी ภาษาไทยที่ English"
    assert cut_scripts(cutting, text) == ["Devanagari", "Thai"]
    joined = tg.tokenizer.join_marks(cutting, ["Devanagari", "Thai"])
    for tokenizer, other in product((joined, llama2, shaped(tmp_path / "k", O200K)), (text, "English")):
        assert cut_scripts(tokenizer, other) == []
