"""What the guard's signals may look at: one batch of answers, and what is known about the labelled ones.

Shapes: B answers, T response tokens (padded on the right), N response tokens of all answers, K ensemble member,
M labelled answers, D features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from holdfast.guard.features import Ellipsoid, Kernel, fit_ellipsoid, fit_kernel
from holdfast.guard.grams import Grams, joined, lay_flat, single_tokens


@dataclass(frozen=True, eq=False)
class StepView:
    """One batch with what the loop has computed for it anyway; what several signals need is made once.

    `scores_KB` are standardised; `features_BD` is the hidden state that the first member's head reads; `learned` holds
    the update's metrics and is empty for a batch of the reference.
    """

    prompts: Sequence[Sequence[int]]
    responses: Sequence[Sequence[int]]
    finished: Sequence[bool]
    logprobs_BT: Tensor
    reference_logprobs_BT: Tensor
    mask_BT: Tensor
    scores_KB: Tensor
    features_BD: Tensor
    learned: Mapping[str, float] = field(default_factory=dict)
    of_reference: bool = False  # whether the reference itself gave these answers
    given_B: Tensor | None = None  # of a reward that is one number: what it gave, NaN where it could not score
    components: Mapping[str, Tensor] = field(default_factory=dict)  # the same for each of its components

    @cached_property
    def tokens_and_rows(self) -> tuple[Tensor, Tensor]:
        """tokens_N of all answers, and rows_N which says whose each is."""
        return lay_flat(self.responses)

    @property
    def tokens_N(self) -> Tensor:
        return self.tokens_and_rows[0]

    @property
    def scored_rewards(self) -> Tensor:
        """The rewards there are, of a reward that is one number; none of an ensemble."""
        return torch.zeros(0) if self.given_B is None else self.given_B[~self.given_B.isnan()]

    @property
    def rewards_by_group(self) -> list[Tensor]:
        """The same for each prompt's answers, which stand side by side."""
        if self.given_B is None:
            return []
        starts = [n for n in range(len(self.prompts)) if n == 0 or self.prompts[n] != self.prompts[n - 1]]
        groups = [self.given_B[a:b] for a, b in zip(starts, [*starts[1:], len(self.prompts)], strict=True)]
        return [group[~group.isnan()] for group in groups]

    @cached_property
    def surprisal_B(self) -> Tensor:
        """-log pi(answer), the sum over its tokens."""
        return -torch.where(self.mask_BT.bool(), self.logprobs_BT, 0.0).sum(1)

    @cached_property
    def kl_B(self) -> Tensor:
        """log pi(answer) - log ref(answer), whose mean estimates the KL to the reference."""
        return torch.where(self.mask_BT.bool(), self.logprobs_BT - self.reference_logprobs_BT, 0.0).sum(1)

    @cached_property
    def singles(self) -> Grams:
        return single_tokens(*self.tokens_and_rows, len(self.responses))

    @cached_property
    def bigrams(self) -> Grams:
        return joined(self.singles, self.singles)

    @cached_property
    def trigrams(self) -> Grams:
        return joined(self.bigrams, self.singles)


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the labelled answers: how often each token stands in them, and their features.

    Features are those of the ensemble in use, so the loop makes this afresh after a refresh; a few hundred rows do.
    """

    counts_V: Tensor
    features_MD: Tensor

    @cached_property
    def labelled_tokens(self) -> int:
        return int(self.counts_V.sum())

    @cached_property
    def surprisal_V(self) -> Tensor:
        """-log of a token's share among the labelled ones, add-one smoothed."""
        counts_V = self.counts_V.double()
        return torch.log(counts_V.sum() + len(counts_V)) - torch.log(counts_V + 1.0)

    @cached_property
    def kernel(self) -> Kernel | None:
        return fit_kernel(self.features_MD)

    @cached_property
    def ellipsoid(self) -> Ellipsoid | None:
        return fit_ellipsoid(self.features_MD)
