"""The guard as a callback, and the ensemble as a reward function, for TRL's GRPO and RLOO trainers.

    trainer = GRPOTrainer(model, reward_funcs=[yours], args=..., train_dataset=...)
    HoldfastCallback(labeller).attach(trainer)
    trainer.train()

callback     the trainer's hooks                      hands      what every process does to its trainer
assembly     the guard put together                   snapshot   everything that a rollback brings back
host         the guard's review carried to a trainer  answers    drawing answers; draws: as the review asks for them
readings     any reward as the guard sees it          trainer    what is read of a trainer, and which are refused

TRL itself is never imported here: the trainer is the user's.
"""

from holdfast.interop.trl.callback import HoldfastCallback as HoldfastCallback
from holdfast.interop.trl.reward import EnsembleReward as EnsembleReward
from holdfast.interop.trl.reward import ensemble_reward as ensemble_reward
from holdfast.preferences.labeller import CallableLabeller as CallableLabeller
