"""The `torch` engine beside transformers `generate`: 64 requests whose answers differ tenfold in length.

Both decode greedily, in float32, with the same threads, in turn. `generate` runs its batch until the
longest answer is whole; useful tokens are those that were asked for. Answers must be the same token by
token, except where the two best logits are closer than rounding (1e-4).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from _report import finish, median, table
from attrs import frozen

from areal_plugins.builtin.engine import TorchEngineOptions
from areal_plugins.builtin.engine.engine import TorchEngine
from areal_plugins.data import GenerateRequest, Sampling, WeightVersion
from areal_plugins.protocols import EngineContext, Place

TARGET = 2.0
CLOSE = 1e-4
SPREAD = 10


@frozen(eq=False)
class Ask:
    """A prompt [P] int64, and how many tokens its answer has."""

    prompt: np.ndarray
    length: int


def asks(count: int, longest: int, vocabulary: int, seed: int) -> list[Ask]:
    """Prompts of 8 to 24 random tokens; lengths log-uniform from a tenth of `longest` up to it."""
    random = np.random.default_rng(seed)
    lengths = np.exp(random.uniform(np.log(longest / SPREAD), np.log(longest), size=count)).round().astype(int)
    return [Ask(random.integers(0, vocabulary, size=random.integers(8, 25)), int(length)) for length in lengths]


def smollm2_shape(directory: Path) -> Path:
    """A model of SmolLM2-135M's shape with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    return directory


class Engine:
    """Ours, all requests at once."""

    def __init__(self, directory: Path, rows: int, threads: int) -> None:
        place = Place(threads=threads)
        context = EngineContext(directory, "float32", place, 0, rows, True, directory)
        self._engine = TorchEngine(TorchEngineOptions(), context)

    async def start(self) -> None:
        await self._engine.start(WeightVersion())

    async def close(self) -> None:
        await self._engine.close()

    async def answers(self, batch: Sequence[Ask]) -> list[np.ndarray]:
        return list(await asyncio.gather(*(self._answer(i, ask) for i, ask in enumerate(batch))))

    async def _answer(self, index: int, ask: Ask) -> np.ndarray:
        sampling = Sampling(temperature=0, max_new_tokens=ask.length, ignore_eos=True)
        request = GenerateRequest(str(index), ask.prompt.astype(np.int32), sampling)
        return next(iter([completion.tokens async for completion in self._engine.generate(request)]))


class Generate:
    """transformers, one left-padded batch."""

    def __init__(self, directory: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def answers(self, batch: Sequence[Ask]) -> list[np.ndarray]:
        widest, longest = max(len(ask.prompt) for ask in batch), max(ask.length for ask in batch)
        tokens, mask = (torch.zeros(len(batch), widest, dtype=torch.int64) for _ in range(2))
        for row, ask in enumerate(batch):
            tokens[row, widest - len(ask.prompt) :] = torch.from_numpy(ask.prompt)
            mask[row, widest - len(ask.prompt) :] = 1
        sizes = {"max_new_tokens": longest, "min_new_tokens": longest}
        ends = {"eos_token_id": None, "pad_token_id": 0}
        out = self._model.generate(tokens, attention_mask=mask, do_sample=False, **sizes, **ends)
        return [row[widest : widest + ask.length].numpy() for row, ask in zip(out, batch, strict=True)]

    def gap(self, prompt: np.ndarray, answer: np.ndarray) -> float:
        """How far apart the two best logits after `answer` are."""
        tokens = torch.from_numpy(np.concatenate([prompt, answer]))[None]
        with torch.inference_mode():
            best = self._model(tokens, logits_to_keep=1).logits[0, -1].topk(2).values
        return float(best[0] - best[1])


def differences(batch: Sequence[Ask], ours: list[np.ndarray], theirs: list[np.ndarray], plain: Generate) -> list[float]:
    """The gap between the two best logits where each pair of answers first differs."""
    found = []
    for ask, a, b in zip(batch, ours, theirs, strict=True):
        where = np.flatnonzero(a != b)
        if where.size:
            found.append(plain.gap(ask.prompt, a[: where[0]]))
    return found


@frozen
class Taken:
    """Seconds on the clock, and of processor time: other programs disturb the first more."""

    seconds: float
    cpu: float


async def timed(work: Callable[[], Any]) -> tuple[Taken, Any]:
    """What `work`, which may be a coroutine, took and gave."""
    began, busy = time.perf_counter(), time.process_time()
    result = work()
    if asyncio.iscoroutine(result):
        result = await result
    return Taken(time.perf_counter() - began, time.process_time() - busy), result


async def compare(directory: Path, batch: Sequence[Ask], pairs: int, threads: int) -> dict[str, Any]:
    """Both in turn, `pairs` times, after one short round of each."""
    engine, generate = Engine(directory, len(batch), threads), Generate(directory)
    await engine.start()
    warm = [Ask(ask.prompt, 2) for ask in batch]
    await engine.answers(warm)
    generate.answers(warm)
    taken: dict[str, list[Taken]] = {"engine": [], "generate": []}
    gaps: list[float] = []
    for _ in range(pairs):
        one, ours = await timed(lambda: engine.answers(batch))
        other, theirs = await timed(lambda: generate.answers(batch))
        taken["engine"].append(one)
        taken["generate"].append(other)
        gaps += differences(batch, ours, theirs, generate)
        print(", ".join(f"{name} {times[-1].seconds:.1f} s" for name, times in taken.items()), flush=True)
    await engine.close()
    return {"taken": taken, "gaps": gaps}


def main() -> int:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter answers, two pairs")
    parser.add_argument("--model", type=Path, help="a Hugging Face directory; SmolLM2-135M's shape if left out")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--longest", type=int, help="tokens of the longest answer")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    longest = arguments.longest or (120 if arguments.quick else 320)
    pairs = arguments.pairs or (2 if arguments.quick else 3)
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.model or smollm2_shape(Path(folder))
        vocabulary = transformers.AutoConfig.from_pretrained(directory).get_text_config().vocab_size
        batch = asks(arguments.requests, longest, vocabulary, seed=0)
        measured = asyncio.run(compare(directory, batch, pairs, arguments.threads))
    return report(batch, measured, arguments.threads)


def report(batch: Sequence[Ask], measured: dict[str, Any], threads: int) -> int:
    """The exit code."""
    useful, longest = sum(ask.length for ask in batch), max(ask.length for ask in batch)
    ours, theirs = measured["taken"]["engine"], measured["taken"]["generate"]
    rates = {name: useful / median([t.seconds for t in taken]) for name, taken in measured["taken"].items()}
    ratio = median([b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)])
    cpu_ratio = median([b.cpu / a.cpu for a, b in zip(ours, theirs, strict=True)])
    rows = [[name, f"{useful / rate:.2f}", f"{rate:.1f}"] for name, rate in rates.items()]
    print(table([["", "seconds", "useful tokens/s"], *rows]))
    alone = longest * len(batch) / useful
    print(f"ratio {ratio:.2f} ({cpu_ratio:.2f} in processor time); lengths alone give at most {alone:.2f}")
    wrong = [gap for gap in measured["gaps"] if gap > CLOSE]
    print(f"answers that differ: {len(measured['gaps'])}, of them not by rounding: {len(wrong)}")
    figures = {
        "ratio": ratio,
        "target": TARGET,
        "ratio_of_processor_time": cpu_ratio,
        "useful_tokens_per_second": rates,
        "lengths_alone": alone,
        "requests": len(batch),
        "answer_tokens": [min(ask.length for ask in batch), longest],
        "threads": threads,
        "differ_by_rounding": len(measured["gaps"]) - len(wrong),
        "differ": len(wrong),
    }
    against = f"transformers {transformers.__version__} generate, one left-padded batch, float32"
    return finish("engine", figures, against, ratio >= TARGET and not wrong)


if __name__ == "__main__":
    raise SystemExit(main())
