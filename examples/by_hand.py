"""The online loop by hand, from Holdfast's pieces: the same numbers as `holdfast run` with the same settings.

python examples/by_hand.py runs/by-hand
"""

import sys

import holdfast as hf
from holdfast.models.sharding import whole_state
from holdfast.train.ppo import response_values


def step(learner, config):
    """Sample, score, assign credit, update, account."""
    at = learner.journal.position
    prompts = [learner.prompt_ids[i] for i in learner.cursor.take(config.ppo.batch)]
    rollout = learner.answers.sample(learner.policy, prompts, learner.streams["rollout"])
    batches = learner.optimiser.batches(rollout)
    reference_BT = response_values(learner.reference, rollout, batches, config.rollout.temperature)
    values_BT = learner.optimiser.values(rollout, batches)
    scored = learner.reward.reward(rollout, learner.streams["shaping"])
    at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
    beta = learner.controller.beta
    experience = learner.optimiser.credit(rollout, reference_BT, values_BT, scored.rewards_B, beta)
    score, kl = float(scored.scores_B.mean()), float(experience.kl_B.mean())
    learner.controller.update(kl, len(prompts), learner.reward.labels)
    learned, kl_step = learner.update(experience, batches, beta, learner.annealing.at(at.step - 1))
    learner.ledger.record(at.step, at.round, kl_step, kl)
    learner.pace(score)
    learner.see(experience, scored, {**learned, "objective/kl_step": kl_step})
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
            rows += [step(loop.learner, config) for _ in range(config.run.steps_per_round)]
            if loop.learner.mean.ends_in_mean(at.round):
                loop.learner.take_mean()
            name, outcome = f"round-{at.round:04d}", loop.review()  # audit, verdict, and what follows from it
            print(at.round, outcome.verdict.level, outcome.verdict.sentence)
            if loop.learner.mean.wants(at.round) and outcome.stands:
                loop.learner.mean.add(whole_state(loop.learner.policy))
            at.next_round()
            loop.commit(name)
    return rows


if __name__ == "__main__":
    for row in by_hand(sys.argv[1], hf.load_config(None, {"run.rounds": 3, "run.steps_per_round": 4})):
        print(row)
