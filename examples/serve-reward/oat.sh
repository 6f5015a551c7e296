#!/usr/bin/env bash
# Online DPO with OAT against Holdfast's ensemble. OAT puts /get_feedback behind the address, and waits 5 seconds for an answer.
# On the service's side it needs msgpack: pip install msgpack
set -euo pipefail
: "${HOLDFAST_REWARD_URL:?the address of holdfast serve-reward}" "${HOLDFAST_REWARD_TOKEN:?its token}"

${PYTHON:-python3} -m oat.experiment.main \
    --dap-algo DPO \
    --oracle remote \
    --remote-rm-url "$HOLDFAST_REWARD_URL/t/$HOLDFAST_REWARD_TOKEN" \
    --remote-rm-client-workers 8 \
    --pretrain "${MODEL:-trl-lib/pythia-1b-deduped-tldr-sft}" \
    --prompt-data "${PROMPTS:-lkevinzc/tldr-with-sft-reference}" \
    --input-key prompt \
    --output-key pythia-1b-reference "$@"
