"""Whether the policy itself finds the answers likely that the reward prefers: it has taken the reward in, hack and all.

In the spirit of the self-internalisation gap of arXiv:2605.12474, which needs no verifier; the formula is our own.
"""

from holdfast.guard.signal import Signal, level
from holdfast.guard.view import Known, StepView

# Answers that a half needs to have, so that its mean means something.
LEAST = 4


def read(view: StepView, known: Known) -> float | None:
    if view.given_B is None:
        return None
    scored_B = ~view.given_B.isnan()
    rewards, tokens_B = view.scored_rewards, view.mask_BT.sum(1).clamp(min=1)
    sure = (-view.surprisal_B / tokens_B)[scored_B]
    if len(rewards) < 2 * LEAST:
        return None
    middle = rewards.mean()
    high, low = sure[rewards > middle], sure[rewards <= middle]
    return float(high.mean() - low.mean()) if min(len(high), len(low)) >= LEAST else None


SIGNAL = Signal(
    family="certainty",
    meaning="mean log pi per token of the answers with a reward above the batch's mean, less that of the others",
    unit="nats per token",
    words=level("the policy is surer of answers that the reward prefers by", "nats a token"),
    read=read,
    floor=0.05,
    needs="a reward that is one number, and the policy's log-probs",
)
