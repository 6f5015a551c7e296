#!/usr/bin/env bash
# PPO with OpenRLHF (0.11) against Holdfast's ensemble. OpenRLHF can send no header, so the token is a part of the URL.
# To keep it out of the command line, give the path of holdfast/interop/openrlhf.py instead of the URL:
#   --reward.remote_url "$(python -c 'import holdfast.interop.openrlhf as f; print(f.__file__)')"
set -euo pipefail
: "${HOLDFAST_REWARD_URL:?the address of holdfast serve-reward}" "${HOLDFAST_REWARD_TOKEN:?its token}"
MODEL=${MODEL:-OpenRLHF/Llama-3-8b-sft-mixture}
PROMPTS=${PROMPTS:-OpenRLHF/prompt-collection-v0.1}

${PYTHON:-python3} -m openrlhf.cli.train_ppo_ray \
   --reward.remote_url "$HOLDFAST_REWARD_URL/t/$HOLDFAST_REWARD_TOKEN/get_reward" \
   --actor.model_name_or_path "$MODEL" \
   --data.prompt_dataset "$PROMPTS" \
   --data.input_key context_messages \
   --data.apply_chat_template \
   --data.max_len 2048 \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 2 \
   --ref.num_nodes 1 \
   --ref.num_gpus_per_node 2 \
   --critic.num_nodes 1 \
   --critic.num_gpus_per_node 2 \
   --vllm.num_engines 2 \
   --vllm.tensor_parallel_size 2 \
   --train.colocate_actor_ref \
   --train.batch_size 128 \
   --rollout.batch_size 1024 \
   --actor.adam.lr 5e-7 \
   --critic.adam.lr 9e-6 \
   --algo.kl.init_coef 0.01 \
   --ckpt.output_dir checkpoint/holdfast "$@"
