"""The ensemble as a reward function and the guard as a callback, for TRL's GRPO and RLOO trainers.

    reward = ensemble_reward("runs/my-run")
    trainer = GRPOTrainer(model, reward_funcs=[reward], args=..., train_dataset=...)
    HoldfastCallback(reward, labeller).attach(trainer)
    trainer.train()

TRL itself is never imported here: the trainer is the user's.
"""

from holdfast.interop.trl.callback import HoldfastCallback as HoldfastCallback
from holdfast.interop.trl.reward import EnsembleReward as EnsembleReward
from holdfast.interop.trl.reward import ensemble_reward as ensemble_reward
from holdfast.preferences.labeller import CallableLabeller as CallableLabeller
