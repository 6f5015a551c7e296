#!/usr/bin/env bash
# GRPO with verl against Holdfast's ensemble. Make the data first: python verl_data.py prompts.jsonl data
# In verl 0.8 the setting is custom_reward_function, in later versions reward.custom_reward_function: set PREFIX=reward.
# verl's workers are Ray processes: start Ray with HOLDFAST_REWARD_URL and HOLDFAST_REWARD_TOKEN in its environment.
set -euo pipefail
: "${HOLDFAST_REWARD_URL:?the address of holdfast serve-reward}" "${HOLDFAST_REWARD_TOKEN:?its token}"
DATA=${DATA:-data}

${PYTHON:-python3} -m verl.trainer.main_ppo \
    "${PREFIX:-}custom_reward_function.path=${REWARD_FUNCTION:-pkg://holdfast.interop.verl}" \
    "${PREFIX:-}custom_reward_function.name=${REWARD_NAME:-compute_score_async}" \
    algorithm.adv_estimator=grpo \
    data.train_files="$DATA/train.parquet" \
    data.val_files="$DATA/val.parquet" \
    data.train_batch_size=1024 \
    data.max_prompt_length=512 \
    data.max_response_length=1024 \
    data.filter_overlong_prompts=True \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2-7B-Instruct}" \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=5 \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 "$@"
