"""A tokenizer whose tokens are single characters, as files that `AutoTokenizer` loads.

It is a byte-level BPE without merges. Plainer models (a word list, say) do not survive: from
version 5 on transformers rebuilds a `qwen2` tokenizer as byte-level BPE, whatever its file says
(`models/auto/tokenization_auto.py`, MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS). One byte a
character is why the alphabet is ASCII.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from areal_plugins.builtin.models.size import SPECIAL

PAD, EOS = range(len(SPECIAL))


def write_tokenizer(directory: Path, alphabet: str, max_length: int, chat_template: str | None) -> None:
    """`tokenizer.json` and `tokenizer_config.json`; a text that spells a special token stays text."""
    build(alphabet).save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[PAD],
        "eos_token": SPECIAL[EOS],
        "bos_token": None,
        "unk_token": None,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        **({} if chat_template is None else {"chat_template": chat_template}),
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def build(alphabet: str) -> Tokenizer:
    """Special tokens first, then the alphabet in its order."""
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    names = [bytewise.pre_tokenize_str(character)[0][0] for character in alphabet]
    tokenizer = Tokenizer(models.BPE({name: token for token, name in enumerate([*SPECIAL, *names])}, merges=[]))
    tokenizer.pre_tokenizer = bytewise
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    return tokenizer
