"""Rates of their own for rows: against an optimizer with several groups, and sharded tables."""

import os

import pytest

from tokengraft import errors

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("accelerate")
import tiny_models  # noqa: E402

from tokengraft.training import RowRates, row_rates  # noqa: E402


@pytest.fixture
def model(tmp_path):
    """A model with more rows than its tokenizer needs."""
    tiny_models.tiny_llama(tmp_path / "model", tied=True, vocab_size=427)
    return tiny_models.model_in(tmp_path / "model")


def two_groups(model, ids, new, old):
    """An oracle: new rows are parameters of their own, in a group with a rate of its own; so are the tables."""
    tables = {id(m.weight): m for m in (model.get_input_embeddings(), model.get_output_embeddings())}
    rows = [torch.nn.Parameter(module.weight.detach()[ids].clone()) for module in tables.values()]
    others = [weight for weight in model.parameters() if id(weight) not in tables]
    whole = [module.weight for module in tables.values()]
    groups = [{"params": others}, {"params": whole, "lr": 1e-2 * old}, {"params": rows, "lr": 1e-2 * new}]
    return torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1), [*zip(whole, rows, strict=True)]


@pytest.mark.parametrize("old", [1.0, 0.1, 0.0])
@pytest.mark.parametrize("tied", [True, False])
def test_rows_take_the_steps_of_groups_with_rates_of_their_own(tmp_path, tied, old):
    tiny_models.tiny_llama(tmp_path / "adapted", tied=tied)
    ids, factor = [297, 300, 326], 4.0
    batches = torch.randint(0, 390, (5, 2, 16), generator=torch.Generator().manual_seed(1))
    ours, theirs = (tiny_models.model_in(tmp_path / "adapted").double() for _ in range(2))  # Adam amplifies rounding
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-2, weight_decay=0.1)
    row_rates(optimizer, ours, ids, factor, old)
    oracle, tables = two_groups(theirs, ids, factor, old)
    for batch in batches:
        for model, stepper in ((ours, optimizer), (theirs, oracle)):
            model(input_ids=batch, labels=batch).loss.backward()
            for table, rows in tables if model is theirs else ():
                rows.grad = table.grad[ids].clone()
            stepper.step()
            stepper.zero_grad()
            for table, rows in tables if model is theirs else ():
                table.data[ids] = rows.data
    for name, value in ours.state_dict().items():
        assert torch.allclose(value, theirs.state_dict()[name], atol=1e-9), name
    before = tiny_models.model_in(tmp_path / "adapted").get_input_embeddings().weight
    after = ours.get_input_embeddings().weight.float()
    assert not torch.allclose(after[ids], before[ids], atol=1e-3)
    assert torch.equal(after[:297], before[:297]) == (old == 0)


def test_the_callback_registers_the_hook_once_training_begins(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    callback = RowRates([400], 3.0, 0.5)
    callback.on_train_begin(None, None, None, model=model, optimizer=optimizer)
    before = model.get_input_embeddings().weight.detach().clone()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    change = before - model.get_input_embeddings().weight.detach()
    assert change[400].mean() == pytest.approx(0.3, abs=1e-5)
    assert change[399].mean() == pytest.approx(0.05, abs=1e-5)
    callback.on_train_end(None, None, None)
    optimizer.step()
    again = before - change - model.get_input_embeddings().weight.detach()
    assert again[400].mean() == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize("how", ["other optimizer", "flat", "zero"])
def test_rates_of_rows_of_a_sharded_table_are_refused(model, how):
    table = model.get_input_embeddings().weight
    others = [weight for weight in model.parameters() if weight is not table]
    optimizer = torch.optim.AdamW(others if how == "other optimizer" else model.parameters())
    if how == "flat":  # as FSDP 1 does it
        table.data = table.data.reshape(-1)
    if how == "zero":  # as DeepSpeed does it
        table.ds_id = 1
    with pytest.raises(errors.OptionError, match="sharded"):
        row_rates(optimizer, model, [400], 4.0)
    assert row_rates(optimizer, model, [400], 1, 1) == []
    assert row_rates(optimizer, model, [], 4.0, 1) == []


def test_a_tensor_of_fsdp_2_is_refused(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (1,))
        embedding = model.get_input_embeddings()
        embedding.weight = torch.nn.Parameter(distribute_tensor(embedding.weight.detach(), mesh))
        with pytest.raises(errors.OptionError, match="sharded"):
            row_rates(torch.optim.AdamW(model.parameters()), model, [400], 4.0)
    finally:
        torch.distributed.destroy_process_group()
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
            del os.environ[name]
