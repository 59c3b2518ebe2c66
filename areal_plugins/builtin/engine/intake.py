"""Requests as they arrive: checked against the model, and turned into groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import frozen

from areal_core.data import Completion, GenerateRequest
from areal_plugins import InputError, PromptTooLong
from areal_plugins.builtin.engine.groups import Group
from areal_plugins.builtin.engine.loading import Text
from areal_plugins.builtin.engine.stop import StopStrings


@frozen(eq=False)
class Intake:
    """What requests are checked against; `longest`: most tokens of a prompt and its answer."""

    text: Text
    end_ids: tuple[int, ...]
    vocabulary: int
    longest: int

    def group(self, request: GenerateRequest, deliver: Callable[[Completion], None]) -> Group:
        """The request as the scheduler takes it.

        Raises:
            PromptTooLong: it leaves no room for a token.
            InputError: it cannot be served; names the request.

        """
        where = f"request {request.id}"
        for problem, way_out in self._problems(request):
            raise InputError(where, problem, way_out)
        if len(request.tokens) >= self.longest:
            problem = f"the prompt of {len(request.tokens)} tokens leaves no room in {self.longest}"
            raise PromptTooLong(where, problem, "shorten it, or raise max_model_len or kv_tokens of the engine")
        stops = request.sampling.stop
        return Group(
            request=request,
            limit=min(len(request.tokens) + request.sampling.max_new_tokens, self.longest),
            stop_ids=self._stop_ids(request),
            watch=partial(StopStrings, stops, self.text.decode) if stops else lambda: None,
            deliver=deliver,
        )

    def _problems(self, request: GenerateRequest) -> Iterator[tuple[str, str]]:
        sampling, prompt = request.sampling, request.tokens
        if request.n < 1 or sampling.max_new_tokens < 1:
            yield "it asks for no token", "n and max_new_tokens are at least 1"
        if sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
            yield f"no distribution is meant by {sampling}", "temperature and top_k >= 0, 0 < top_p <= 1"
        if request.begun and len(request.begun) != request.n:
            yield f"{len(request.begun)} of its {request.n} completions are begun", "all of them are, or none"
        if len(prompt) == 0:
            yield "the prompt is empty", ""
        elif prompt.min() < 0 or prompt.max() >= self.vocabulary:
            yield f"the prompt holds a token outside the vocabulary of {self.vocabulary}", "use the model's tokenizer"
        if sampling.stop and (self.text.tokenizer is None or "" in sampling.stop):
            yield "stop strings need a tokenizer beside the model, and are not empty", "use stop_token_ids"

    def _stop_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        """Ids that end an answer; a stop string that is a special token is one, for text leaves it out."""
        sampling = request.sampling
        special = (self.text.special_id(stop) for stop in sampling.stop)
        ends = () if sampling.ignore_eos else self.end_ids
        return tuple(sorted({*ends, *sampling.stop_token_ids, *(i for i in special if i is not None)}))
