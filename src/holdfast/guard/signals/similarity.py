"""One answer to everything."""

import torch

from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView

# All pairs of this many answers, spread over the batch: 2016 pairs are enough for a mean.
MOST = 64


def read(view: StepView, known: Known) -> float | None:
    grams = view.bigrams
    rows = torch.arange(0, grams.answers, max(1, -(-grams.answers // MOST)))
    if len(rows) < 2 or grams.kinds == 0:
        return None
    # Only their rows of the table: over a whole batch it grows with the square of the batch.
    place_B = torch.full((grams.answers,), -1)
    place_B[rows] = torch.arange(len(rows))
    place_G = place_B[grams.rows_G]
    holds_BG = torch.zeros(len(rows), grams.kinds)
    holds_BG[place_G[place_G >= 0], grams.ids_G[place_G >= 0]] = 1.0
    both_BB = holds_BG @ holds_BG.T
    size_B = holds_BG.sum(1)
    either_BB = size_B[:, None] + size_B[None, :] - both_BB
    number_of = {prompt: n for n, prompt in enumerate({tuple(p): None for p in view.prompts})}
    prompt_B = torch.tensor([number_of[tuple(p)] for p in view.prompts])[rows]
    # Answers to one prompt may well be alike, and empty ones are not alike in anything.
    counts_BB = (prompt_B[:, None] != prompt_B[None, :]) & (either_BB > 0)
    return float((both_BB[counts_BB] / either_BB[counts_BB]).mean()) if bool(counts_BB.any()) else None


SIGNAL = Signal(
    family="sameness",
    meaning="pairs of neighbouring tokens that two answers share over those that either has (Jaccard), "
    "mean over answers to different prompts",
    unit="share",
    words=share("of token pairs are shared by answers to different prompts"),
    read=read,
    floor=0.01,
)
