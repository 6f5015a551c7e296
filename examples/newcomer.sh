#!/bin/sh
# A newcomer's whole path with a model, prompts and a labeller of one's own, by public commands alone:
# check the data, train, be killed, resume, go back, go on for longer, look, export, generate.
#
#   examples/newcomer.sh MODEL_DIRECTORY WORK_DIRECTORY [SETTING=VALUE ...]
#
# MODEL_DIRECTORY is a Hugging Face model with its tokenizer; WORK_DIRECTORY is made. Takes a few minutes with a model of
# a few million weights.
set -eu
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
model=$(cd "$1" && pwd)
work=$2
shift 2
settings=""
for setting in "$@"; do settings="$settings --set $setting"; done
mkdir -p "$work"
cd "$work"

say() {
  printf '\n$'
  for word in "$@"; do case $word in *\ *) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac; done
  printf '\n'
}
run() { say "$@"; "$@"; }

# Prompts of one's own, one in a line.
python - <<'PYTHON'
import json
from itertools import product

things = ("the shop", "the museum", "the kitchen", "the pool", "your desk", "the library", "the garden", "the bar")
asks = ("When does {} open?", "Where is {}?", "Is {} open on Sunday?", "May I bring a dog to {}?", "Who runs {}?")
with open("prompts.jsonl", "w", encoding="utf-8") as file:
    for thing, ask in product(things, asks):
        file.write(json.dumps({"prompt": ask.format(thing)}) + "\n")
PYTHON

# A labeller of one's own: it likes answers that are short and end with a full stop.
cat > taste.py <<'PYTHON'
from holdfast.preferences.comparison import Choice, Label


class Taste:
    name = "taste"

    def __init__(self, seed):
        pass

    def label(self, comparisons):
        return [Label(c.id, self.name, self.choice(c)) for c in comparisons]

    def choice(self, comparison):
        a, b = (self.worth(side.text) for side in (comparison.a, comparison.b))
        return Choice.A if a > b else Choice.B if b > a else Choice.TIE

    def worth(self, text):
        return text.rstrip().endswith(".") - len(text) / 200
PYTHON

run holdfast data check prompts.jsonl

# The run is killed in the middle, as a lost machine would be: without a word.
cat > mine.toml <<TOML
[run]
rounds = 3
steps_per_round = 2

[world]
name = "files"
labeller = "$PWD/taste.py:Taste"

[data]
prompts = "$PWD/prompts.jsonl"

[policy]
path = "$model"
TOML
say holdfast run --config mine.toml --name mine $settings
# shellcheck disable=SC2086
holdfast run --config mine.toml --name mine $settings > first.txt 2>&1 &
trainer=$!
until [ -d runs/mine/checkpoints/round-0001 ]; do
  kill -0 "$trainer" 2> /dev/null || { cat first.txt; exit 1; }
  sleep 0.1
done
kill -9 "$trainer"
wait "$trainer" 2> /dev/null || true
cat first.txt
printf 'killed\n'

run holdfast resume runs/mine
run holdfast rollback runs/mine
run holdfast rollback runs/mine round-0001 --reason "I liked it better"
run holdfast resume runs/mine
run holdfast resume runs/mine --rounds 4
run holdfast doctor runs/mine
run holdfast report runs/mine
run holdfast export runs/mine better

say python generate.py
cat > generate.py <<'PYTHON'
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("better")
model = AutoModelForCausalLM.from_pretrained("better")
prompt = "When does the shop open?"
if tokenizer.chat_template:
    turns = [{"role": "user", "content": prompt}]
    inputs = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, return_tensors="pt")
else:
    inputs = tokenizer(prompt, return_tensors="pt")
inputs.pop("token_type_ids", None)
answer = model.generate(**inputs, max_new_tokens=24, do_sample=False, pad_token_id=tokenizer.eos_token_id)
print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
PYTHON
python generate.py
