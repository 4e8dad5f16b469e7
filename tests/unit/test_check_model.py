"""`check` of a model folder: rows that are missing or untrained, tied tables, and ids in configs."""

import json

import builders
import pytest
from checkpoints import checkpoint, set_config, tables

import tokengraft as tg
from tokengraft import cli


def damaged(folder):
    """A model whose tokenizer got tokens by hand, and no rows."""
    checkpoint(folder, config={"tie_word_embeddings": False})
    document = json.loads((folder / "tokenizer.json").read_bytes())
    last = max(entry["id"] for entry in document["added_tokens"])
    document["added_tokens"] += [builders.added(last + 1, "<a>"), builders.added(last + 2, "<b>")]
    builders.write(folder, document)
    return folder


def test_tokens_without_a_row_are_found_and_a_transplant_to_the_model_itself_gives_them_rows(tmp_path, tokengraft):
    folder = damaged(tmp_path / "model")
    found = tokengraft("check", folder, code=1).out
    assert "tokens without a row: 2 have none" in found
    assert "tokengraft transplant MODEL MODEL" in found
    assert "tokens without a row: 2 have none" in tokengraft("inspect", folder).out
    tg.transplant(folder, folder, tmp_path / "out", options=tg.TransplantOptions(init="fvt"))
    assert "rows, ids in configs and tied tables fit the tokenizer" in tokengraft("check", tmp_path / "out").out
    before, after, tokenizer = tables(folder), tables(tmp_path / "out"), tg.load(tmp_path / "out")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = after[name]
        assert len(rows) == tokenizer.n_rows
        assert (rows[: len(before[name])] == before[name]).all()


def test_tables_that_are_said_to_be_tied_and_differ_are_found(tmp_path, capsys):
    checkpoint(tmp_path / "model")
    set_config(tmp_path / "model", tie_word_embeddings=True)
    assert cli.main(["check", str(tmp_path / "model")]) == 1
    assert "`tie_word_embeddings` is true, and `lm_head.weight` is not the embedding" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "said"), [(0.0, "all zero"), (0.5, "all equal")])
def test_rows_that_no_text_has_trained_are_found(tmp_path, capsys, value, said):
    from safetensors.numpy import load_file, save_file

    base = checkpoint(tmp_path / "model", rows=400, dtype="F32")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][base.n_rows :] = value
    save_file(tensors, path, {"format": "pt"})
    assert cli.main(["check", str(tmp_path / "model")]) == 0
    assert f"the rows beyond the tokens, {base.n_rows} to 399, are {said}: untrained" in capsys.readouterr().out


def test_an_id_in_a_config_without_a_token_and_a_text_of_two_tokens_are_found(tmp_path, capsys):
    base = checkpoint(tmp_path / "model", rows=400)
    set_config(tmp_path / "model", pad_token_id=399)
    document = json.loads((tmp_path / "model" / "tokenizer.json").read_bytes())
    document["added_tokens"].append(builders.added(base.n_rows, " cat", special=False))
    builders.write(tmp_path / "model", document)
    cli.main(["check", str(tmp_path / "model")])
    found = capsys.readouterr().out
    assert "`pad_token_id` in config.json is 399" in found
    assert "1 have the text of an ordinary token, which is never found now" in found
