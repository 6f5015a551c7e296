#!/usr/bin/env bash
# slime against Holdfast's ensemble. slime's scripts (scripts/run-*.sh) put their arguments together from parts; these are
# the ones that change. Source this file in a copy of such a script, in the place of its ROLLOUT_ARGS.
set -euo pipefail
: "${HOLDFAST_REWARD_URL:?the address of holdfast serve-reward}" "${HOLDFAST_REWARD_TOKEN:?its token}"

ROLLOUT_ARGS=(
   --rm-type remote_rm
   --rm-url "$HOLDFAST_REWARD_URL/t/$HOLDFAST_REWARD_TOKEN/slime"
   --prompt-data "${PROMPTS:-prompts.jsonl}"
   --input-key prompt
   --apply-chat-template
   --rollout-shuffle
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 1024
   --rollout-temperature 1
   --global-batch-size 256
   --balance-data
)
