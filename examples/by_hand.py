"""The online loop by hand, from Holdfast's pieces: the same numbers as `holdfast run` with the same settings.

python examples/by_hand.py runs/by-hand
"""

import sys

import holdfast as hf
from holdfast.models.sharding import whole_state
from holdfast.train.ppo import response_values


def step(loop, config):
    """Sample, score, assign credit, update, account."""
    at = loop.position
    prompts = [loop.prompt_ids[i] for i in loop.cursor.take(config.ppo.batch)]
    rollout = loop.answers.sample(loop.policy, prompts, loop.streams["rollout"])
    batches = loop.optimiser.batches(rollout)
    reference_BT = response_values(loop.reference, rollout, batches, config.rollout.temperature)
    values_BT = loop.optimiser.values(rollout, batches)
    scored = loop.reward.reward(rollout, loop.streams["shaping"])
    at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
    beta, lr = loop.controller.beta, loop.learning_rate.rate * loop.annealing.at(at.step - 1)
    experience = loop.optimiser.credit(rollout, reference_BT, values_BT, scored.rewards_B, beta)
    learned, kl_step = loop.optimiser.learn(experience, batches, beta, lr, loop.streams["minibatches"])
    score, kl = float(scored.scores_B.mean()), float(experience.kl_B.mean())
    loop.ledger.record(at.step, at.round, kl_step, kl)
    loop.controller.update(kl, len(prompts), loop.reward.ensemble.labels)
    loop.pace(score)
    loop.see(experience, scored, {**learned, "objective/kl_step": kl_step})
    return {"round": at.round, "objective/scores": score, "objective/kl": kl, "control/beta": beta}


def by_hand(path, config):
    """Collect, refresh, steps, review, commit; the figures of every step."""
    rows = []
    with hf.Run.create(path, config).loop() as loop:
        loop.begin()
        at = loop.position
        while at.round <= config.run.rounds and not loop.stopped:
            loop.collect()  # comparisons of the policy's own answers, to the labeller and into the store
            loop.refresh_if_due()  # a new version of the ensemble, if the gate lets it in
            rows += [step(loop, config) for _ in range(config.run.steps_per_round)]
            if loop.mean.ends_in_mean(at.round):
                loop.take_mean()
            name, outcome = f"round-{at.round:04d}", loop.review()  # audit, verdict, and what follows from it
            print(at.round, outcome.verdict.level, outcome.verdict.sentence)
            if loop.mean.wants(at.round) and outcome.stands:
                loop.mean.add(whole_state(loop.policy))
            at.next_round()
            loop.commit(name)
    return rows


if __name__ == "__main__":
    for row in by_hand(sys.argv[1], hf.load_config(None, {"run.rounds": 3, "run.steps_per_round": 4})):
        print(row)
