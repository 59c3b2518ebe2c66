"""Small configs of each framework, written for these tests: every field that their GRPO examples set."""

from __future__ import annotations

AREAL = """\
experiment_name: sums
trial_name: first
seed: 7
enable_offload: false
total_train_epochs: 2
tokenizer_path: ${actor.path}
cluster: {n_nodes: 1, n_gpus_per_node: 8, fileroot: /tmp/x, name_resolve: {type: nfs, nfs_record_root: /tmp/y}}
scheduler: {type: null}
rollout:
  backend: "sglang:d2t2"
  experiment_name: ${experiment_name}
  max_concurrent_rollouts: 64
  queue_size: null
  consumer_batch_size: ${train_dataset.batch_size}
  max_head_offpolicyness: 3
  dump_to_file: true
gconfig: {n_samples: 4, min_new_tokens: 2, max_new_tokens: 64, greedy: false, temperature: 0.9, top_p: 0.95}
actor:
  backend: "fsdp:d4p1t1"
  path: org/model
  init_from_scratch: false
  disable_dropout: true
  gradient_checkpointing: true
  dtype: bfloat16
  mb_spec: {max_tokens_per_mb: 4096, packing_algorithm: ffd}
  optimizer:
    type: adam
    lr: 2.0e-5
    weight_decay: 0.05
    beta1: 0.9
    beta2: 0.98
    eps: 1e-8
    lr_scheduler_type: cosine
    gradient_clipping: 0.5
    warmup_steps_proportion: 0.1
  eps_clip: 0.3
  reward_scaling: 10.0
  reward_bias: -0.5
  kl_ctl: 0.02
  ppo_n_minibatches: 2
  recompute_logprob: true
  use_decoupled_loss: true
  rejection_sampling: {metric: ratio, upper: 4.0}
  reward_norm: {mean_level: group, std_level: group, group_size: 4}
  adv_norm: {mean_level: batch, std_level: batch}
  weight_update_mode: xccl
  scheduling_spec: [{task_type: worker, gpu: 1, cmd: python3 -m x, env_vars: {}}]
ref: {path: org/model, mb_spec: {max_tokens_per_mb: 4096}, optimizer: null}
sglang: {model_path: org/model, context_length: 2048, mem_fraction_static: 0.7, attention_backend: fa3}
vllm: {model: org/model, gpu_memory_utilization: 0.8}
train_dataset: {batch_size: 32, shuffle: true, pin_memory: true, path: openai/gsm8k, type: rl, max_length: 512}
valid_dataset: {batch_size: 32, path: openai/gsm8k, type: rl}
saver: {freq_epochs: 1, freq_steps: null, freq_secs: null}
recover: {mode: disabled, freq_secs: 3600}
evaluator: {freq_epochs: null, freq_steps: 11, freq_secs: null}
stats_logger: {wandb: {mode: online, wandb_api_key: abc123secret}}
perf_tracer: {enabled: false}
"""

TRL = """\
model_name_or_path: org/model
model_revision: main
dtype: float32
dataset_name: org/questions
dataset_train_split: train
dataset_test_split: test
reward_funcs: [accuracy_reward]
output_dir: out
run_name: asked
seed: 3
learning_rate: 2.0e-5
lr_scheduler_type: cosine
warmup_steps: 10
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
steps_per_generation: 4
num_generations: 8
num_train_epochs: 2
max_completion_length: 128
temperature: 0.8
top_k: 20
top_p: 0.9
min_p: 0.05
use_vllm: true
vllm_mode: colocate
vllm_tensor_parallel_size: 2
vllm_gpu_memory_utilization: 0.4
vllm_importance_sampling_mode: token_truncate
vllm_importance_sampling_clip_max: 2.0
beta: 0.04
epsilon: 0.2
epsilon_high: 0.28
delta: 4.0
loss_type: dr_grpo
scale_rewards: false
num_iterations: 1
mask_truncated_completions: true
sync_ref_model: true
ref_model_sync_steps: 64
ref_model_mixup_alpha: 1.0
use_peft: true
lora_r: 32
lora_alpha: 64
lora_target_modules: [q_proj, v_proj]
load_in_4bit: false
bf16: true
gradient_checkpointing: false
max_grad_norm: 0.2
eval_strategy: steps
eval_steps: 50
save_steps: 100
save_total_limit: 3
logging_steps: 1
log_completions: true
report_to: [wandb, comet_ml]
hub_token: hf_secret_value
push_to_hub: false
"""

VERL = """\
defaults: [ppo_trainer, _self_]
data:
  train_files: [data/train.parquet, data/more.parquet]
  val_files: data/test.parquet
  prompt_key: question
  train_batch_size: 64
  max_prompt_length: 256
  max_response_length: 128
  shuffle: true
  seed: 5
actor_rollout_ref:
  hybrid_engine: true
  model: {path: org/model, enable_gradient_checkpointing: false, use_remove_padding: true}
  actor:
    strategy: fsdp2
    ppo_mini_batch_size: 16
    ppo_micro_batch_size_per_gpu: 4
    ppo_epochs: 2
    clip_ratio: 0.2
    clip_ratio_low: 0.2
    clip_ratio_high: 0.28
    clip_ratio_c: 10.0
    loss_agg_mode: seq-mean-token-mean
    entropy_coeff: 0.001
    use_kl_loss: true
    kl_loss_coef: 0.002
    kl_loss_type: mse
    ulysses_sequence_parallel_size: 2
    optim: {lr: 3.0e-6, lr_warmup_steps: -1, lr_warmup_steps_ratio: 0.1, weight_decay: 0.1, lr_scheduler_type: cosine}
    fsdp_config: {param_offload: true, model_dtype: bf16}
  ref: {log_prob_micro_batch_size_per_gpu: 4}
  rollout:
    name: sglang
    n: 8
    temperature: 0.7
    top_k: -1
    top_p: 0.9
    response_length: ${data.max_response_length}
    tensor_model_parallel_size: 2
    gpu_memory_utilization: 0.5
    val_kwargs: {temperature: 0.0, n: 1, do_sample: false}
algorithm: {adv_estimator: grpo, norm_adv_by_std_in_grpo: true, use_kl_in_reward: false, kl_ctrl: {kl_coef: 0.1}}
custom_reward_function: {path: rewards.py, name: judge}
trainer:
  project_name: p
  experiment_name: verl-run
  nnodes: 2
  n_gpus_per_node: 8
  total_epochs: 3
  save_freq: 10
  test_freq: -1
  val_before_train: false
  logger: [console, tensorboard, swanlab]
  default_local_dir: out/${trainer.project_name}
"""

LAUNCH = """\
set -x
# a launch script
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet \\
    data.train_batch_size=128 \\
    actor_rollout_ref.rollout.n=4 \\
    +actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.model.path='org/model' \\
    trainer.logger='["console","wandb"]' \\
    trainer.n_gpus_per_node=4 $@
"""

CONFIGS = {"areal": AREAL, "trl": TRL, "verl": VERL}
