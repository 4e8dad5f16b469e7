"""What `inspect` finds."""

import builders

import tokengraft as tg
from tokengraft.tokenizer.inspect import IdRange


def inspected(tmp_path, document):
    return tg.inspect(tg.load(builders.write(tmp_path, document)))


def test_ids_are_laid_out_in_runs_with_the_holes_between(tmp_path):
    vocab = {"a": 0, "b": 1, "ab": 5, "<s>": 3}
    document = builders.byte_level()
    document["model"] |= {"vocab": vocab, "merges": [["a", "b"]]}
    document["added_tokens"] = [builders.added(3, "<s>")]
    found = inspected(tmp_path, document)
    assert found.id_layout == (
        IdRange(0, 1, "learned"),
        IdRange(2, 2, "unused"),
        IdRange(3, 3, "added"),
        IdRange(4, 4, "unused"),
        IdRange(5, 5, "learned"),
    )
    assert (found.holes, found.rows, found.tokens) == (2, 6, 4)
    assert found.missing_bytes == 254 - 13  # 13 bytes are in no UTF-8 text


def test_an_unreachable_token_is_usable_whole_only_where_merges_are_skipped(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"] |= {"zq": 900, "Ã": document["model"]["vocab"]["Ã"]}
    assert inspected(tmp_path / "off", document).unreachable_examples == ("zq",)
    assert inspected(tmp_path / "off", document).usable_whole == 0
    document["model"]["ignore_merges"] = True
    found = inspected(tmp_path / "on", document)
    assert (found.unreachable, found.usable_whole) == (1, 1)


def test_a_token_that_spans_pretokens_is_not_usable_whole(tmp_path):
    document = builders.byte_level(ignore_merges=True)
    document["model"]["vocab"] |= {"zĠq": 900}
    found = inspected(tmp_path, document)
    assert (found.unreachable, found.usable_whole) == (1, 0)


def test_byte_tokens_are_atomic_and_not_unreachable(tmp_path):
    found = inspected(tmp_path, builders.sentencepiece())
    assert found.atomic >= 256
    assert found.unreachable == 0
    assert (found.not_utf8, found.missing_bytes) == (128, 0)


def test_added_tokens_are_outside_the_self_tokenization_test(tmp_path):
    document = builders.specials_first()
    tokenizer = tg.load(builders.write(tmp_path, document))
    added = {token.id for token in tokenizer.added}
    assert not added & set(tokenizer.structure.unreachable)


def test_listed_ids_that_loaders_ignore_are_reported(tmp_path):
    document = builders.byte_level()
    document["added_tokens"][0]["id"] = 7777
    size = len(document["model"]["vocab"])
    assert inspected(tmp_path, document).ignored_ids == (("<|start|>", 7777, size),)
