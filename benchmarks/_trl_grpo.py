"""TRL's side of `vs_trl.py`, run in TRL's own environment: GRPO on a model directory and a JSONL of prompts.

Writes one JSON object an optimizer step: seconds since training began, mean reward.
"""

from __future__ import annotations

import argparse
import json
import logging
import time

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def copy_reward(prompts, completions, **_):
    """Share of the wanted letters that repeat the prompt's first one."""
    return [min(1.0, text(c).count(text(p)[0]) / options.letters) for p, c in zip(prompts, completions, strict=True)]


def text(said):
    """What is said in the end, of a text or of turns."""
    return said if isinstance(said, str) else said[-1]["content"]


class Recorder(TrainerCallback):
    """Appends each step's time and reward to the output file."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w")  # noqa: SIM115, PTH123  open for the whole training

    def on_train_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "reward" in logs:
            line = {"step": state.global_step, "seconds": time.perf_counter() - self.start, "reward": logs["reward"]}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--tasks", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--length", type=int, required=True)
parser.add_argument("--letters", type=int, required=True)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--group", type=int, default=8)
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()

logging.disable(logging.WARNING)
torch.set_num_threads(options.threads)
config = GRPOConfig(
    output_dir=options.out + ".trl",
    per_device_train_batch_size=options.batch,
    num_generations=options.group,
    max_completion_length=options.length,
    learning_rate=options.lr,
    lr_scheduler_type="constant",
    beta=0.0,
    loss_type="dapo",
    temperature=1.0,
    max_steps=options.steps,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    seed=options.seed,
    disable_tqdm=True,
)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32),
    processing_class=AutoTokenizer.from_pretrained(options.model),
    reward_funcs=copy_reward,
    args=config,
    train_dataset=load_dataset("json", data_files=options.tasks, split="train"),
    callbacks=[Recorder(options.out)],
)
trainer.train()
