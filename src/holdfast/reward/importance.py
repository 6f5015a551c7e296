"""How much each label counts when a reward model is refitted for the present policy, and no new labels come in.

pairs -> log-probs of both answers by policy and reference -> importance weights -> pairs with these weights
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.algorithms.importance import importance_weights
from holdfast.grammar.grammars import Grammars, each_grammar
from holdfast.models.policy import Policy
from holdfast.preferences.pair import Pair
from holdfast.rollout.likelihood import answer_logprobs

# A first choice from the lab's tuning seeds: what is left of a log-ratio, and the most that one label may count.
POWER, MOST = 0.1, 10.0


@dataclass(frozen=True)
class Importance:
    """Weighs labels on the reference's answers by how likely the policy finds them (OCRM, arXiv:2507.15507)."""

    policy: Policy
    reference: Policy
    pad_id: int
    max_tokens: int
    temperature: float
    grammars: Grammars | None = None

    def weighed(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs, each counting as much as it should for the policy; their weights keep their mean."""
        prompts = [p.prompt for p in pairs for _ in "ab"]
        answers = [side for p in pairs for side in (p.a, p.b)]
        limits = self.pad_id, self.max_tokens, self.temperature
        given = prompts, answers, *limits, each_grammar(self.grammars, prompts)
        ratios_2P = answer_logprobs(self.policy, *given) - answer_logprobs(self.reference, *given)
        weights_P = importance_weights(ratios_2P.view(-1, 2).sum(1), POWER, MOST)
        return [replace(p, weight=p.weight * w) for p, w in zip(pairs, weights_P.tolist(), strict=True)]
