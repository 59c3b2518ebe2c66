from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from areal_plugins.builtin import fast_tokenizer

CHARACTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def made(cls: type[PreTrainedTokenizerFast] = PreTrainedTokenizerFast, **options: Any) -> PreTrainedTokenizerFast:
    """Bytes as tokens; encoding adds an end token unless told not to, and the file asks for truncation and padding."""
    bare = Tokenizer(models.BPE({c: i for i, c in enumerate([*CHARACTERS, "</s>"])}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 256)])
    bare.enable_truncation(4)
    bare.enable_padding(length=6)
    return cls(tokenizer_object=bare, eos_token="</s>", pad_token="</s>", **options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40) | st.just("a</s>b, it 's so ."))
@pytest.mark.parametrize("options", [{}, {"split_special_tokens": True}, {"clean_up_tokenization_spaces": True}])
def test_both_ways_are_those_of_transformers(options: dict[str, bool], text: str) -> None:
    slow, fast = made(**options), made(**options)
    ids = fast_tokenizer.encoder(fast)(text)
    assert ids == slow.encode(text, add_special_tokens=False)
    decode = fast_tokenizer.decoder(fast)
    assert decode(ids, skip_special_tokens=True) == slow.decode(ids, skip_special_tokens=True)


def test_a_class_with_ways_of_its_own_is_heard() -> None:
    class Shouting(PreTrainedTokenizerFast):
        def _encode_plus(self, text: str, *args: Any, **kwargs: Any) -> Any:
            return super()._encode_plus(text.upper(), *args, **kwargs)

        def _decode(self, *args: Any, **kwargs: Any) -> str:
            return super()._decode(*args, **kwargs) + "!"

    tokenizer = made(Shouting)
    ids = fast_tokenizer.encoder(tokenizer)("hey")
    assert fast_tokenizer.decoder(tokenizer)(ids) == "HEY!"
