import asyncio

from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.builtin.engine.stop import StopStrings


def decode(tokens) -> str:
    """Tokens are bytes of UTF-8."""
    return bytes(tokens).decode("utf-8", errors="replace")


def first_end(tokens: bytes, stops: list[str]) -> int | None:
    """After how many tokens the whole text, decoded at once, first holds a stop string."""
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[:end])
        if not text.endswith("\ufffd") and any(stop in text for stop in stops):
            return end
    return None


text = st.text(alphabet="ab\n é€😀", max_size=30)


@given(text, st.lists(st.text(alphabet="ab\n é€😀", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_string_is_found_at_the_token_that_completes_it(answer, stops):
    tokens = answer.encode()
    watch = StopStrings(stops, decode)
    hits = [end for end, token in enumerate(tokens, start=1) if watch.complete(token)]
    assert (hits or [None])[0] == first_end(tokens, stops)


def test_tokens_whose_text_depends_on_their_neighbours_are_told_apart():
    words = ["Hello", " world", "!"]

    def join(tokens) -> str:
        return "".join(words[t] for t in tokens).lstrip()

    watch = StopStrings(["o w"], join)
    assert [watch.complete(t) for t in range(3)] == [False, True, False]


@given(text, st.lists(st.text(alphabet="ab\n é€😀", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_text_before_the_stop_string_is_told(answer, stops):
    watch = StopStrings(stops, decode)
    for end, token in enumerate(answer.encode(), start=1):
        if watch.complete(token):
            assert watch.end == min(i for stop in stops if (i := decode(answer.encode()[:end]).find(stop)) >= 0)
            return


def test_a_stop_string_that_was_passed_over_is_not_found_again():
    watch = StopStrings(["b", "xyz"], decode)
    assert [watch.complete(t) for t in b"abcdb"] == [False, True, False, False, True]
    assert watch.end == 4


def test_an_answer_ends_with_its_stop_string_which_its_text_leaves_out(speaker, tools):
    _, directory = speaker
    letters = tuple("abcdefghijklmnopqrstuvwxyz")

    async def main():
        async with tools.serve(directory) as engine:
            request = tools.request([40], n=8, max_new_tokens=100, temperature=1.5, stop=letters)
            return await tools.collect(engine, request)

    tokenizer = tools.byte_tokenizer()
    stopped = [a for a in asyncio.run(main()) if a.finish == "stop"]
    assert stopped
    for answer in stopped:
        whole = tokenizer.decode(answer.tokens)
        assert whole[-1] in letters
        assert answer.text == whole[:-1]
        assert not set(answer.text) & set(letters)


def test_a_stop_string_counts_from_the_shortest_length_on(speaker, tools):
    everything = tuple(map(chr, range(32, 127)))

    async def main():
        async with tools.serve(speaker[1]) as engine:
            request = tools.request([40], n=8, max_new_tokens=90, min_new_tokens=9, temperature=1.5, stop=everything)
            return await tools.collect(engine, request)

    tokenizer = tools.byte_tokenizer()
    for answer in asyncio.run(main()):
        assert len(answer.tokens) >= 9
        assert answer.finish == "stop"
        assert answer.text == tokenizer.decode(answer.tokens)[:-1]


def test_a_special_token_ends_an_answer_when_its_text_is_a_stop_string(speaker, tools):
    async def main():
        async with tools.serve(speaker[1]) as engine:
            request = tools.request([40], n=8, max_new_tokens=120, temperature=3.0, stop=("<pad>",))
            return await tools.collect(engine, request)

    stopped = [a for a in asyncio.run(main()) if a.finish == "stop"]
    assert stopped
    assert all(a.tokens[-1] == 0 for a in stopped)


def test_text_leaves_out_special_tokens_and_the_token_that_ended_it(speaker, tools):
    async def main():
        async with tools.serve(speaker[1]) as engine:
            request = tools.request([40], n=6, max_new_tokens=40, temperature=2.0, stop_token_ids=(70, 80, 90))
            return await tools.collect(engine, request)

    tokenizer = tools.byte_tokenizer()
    for answer in asyncio.run(main()):
        shown = answer.tokens[:-1] if answer.finish == "stop" else answer.tokens
        assert answer.text == tokenizer.decode(shown, skip_special_tokens=True)
        assert "</s>" not in answer.text
