"""Scores a model directory on `specs/smollm2_arithmetic.yaml`'s held-out sums with plain transformers `generate`."""

import json
import re
import sys

import torch
from reasoning_gym import create_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

directory, tasks = sys.argv[1], [json.loads(line) for line in open(sys.argv[2])]  # noqa: PTH123, SIM115
judge = create_dataset("chain_sum", size=1, min_terms=2, max_terms=2, min_digits=1, max_digits=2)
tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
strict = lenient = 0
for start in range(0, len(tasks), 50):
    batch = tasks[start : start + 50]
    texts = [tokenizer.apply_chat_template(t["messages"], tokenize=False, add_generation_prompt=True) for t in batch]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    answers = model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, inputs.input_ids.shape[1] :]
    for task, answer in zip(batch, tokenizer.batch_decode(answers, skip_special_tokens=True), strict=True):
        numbers = re.findall(r"-?\d+", answer)
        strict += judge.score_answer(answer.strip(), task["entry"]) == 1.0
        lenient += bool(numbers) and numbers[-1] == task["entry"]["answer"]
print(json.dumps({"tasks": len(tasks), "strict": strict / len(tasks), "lenient": lenient / len(tasks)}))
