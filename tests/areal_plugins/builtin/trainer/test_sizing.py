import torch
from transformers import AutoConfig

from areal_plugins.builtin.trainer.sizing import token_budget

CPU = torch.device("cpu")


def config(**changes):
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    return AutoConfig.for_model("llama", **(shape | changes))


def test_a_small_model_takes_any_batch_at_once():
    small = config(hidden_size=64, intermediate_size=128, num_hidden_layers=2)
    assert token_budget(small, 4, False, CPU) == 32768


def test_a_larger_model_takes_less():
    assert 512 < token_budget(config(), 4, False, CPU) < 4096


def test_checkpointing_makes_room():
    assert token_budget(config(), 4, True, CPU) > 4 * token_budget(config(), 4, False, CPU)


def test_no_model_is_starved():
    assert token_budget(config(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80), 4, False, CPU) == 512
