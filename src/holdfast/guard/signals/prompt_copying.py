"""Saying the question back can look like an answer."""

import torch
from torch import Tensor

from holdfast.guard.grams import lay_flat, mean_share
from holdfast.guard.signal import Signal, share
from holdfast.guard.view import Known, StepView


def read(view: StepView, known: Known) -> float | None:
    (answer_tokens_N, answer_rows_N), (prompt_tokens_N, prompt_rows_N) = view.tokens_and_rows, lay_flat(view.prompts)
    base = 1 + int(torch.cat([answer_tokens_N, prompt_tokens_N, torch.zeros(1, dtype=torch.int64)]).max())
    ours_G, rows_G = pairs(answer_tokens_N, answer_rows_N, base)
    theirs_G, _ = pairs(prompt_tokens_N, prompt_rows_N, base)
    count = len(view.responses)
    copied_B = torch.bincount(rows_G[torch.isin(ours_G, theirs_G)], minlength=count)
    return mean_share(copied_B, torch.bincount(rows_G, minlength=count))


def pairs(tokens_N: Tensor, rows_N: Tensor, base: int) -> tuple[Tensor, Tensor]:
    """A number for every pair of neighbouring tokens together with its row, and the row."""
    codes_G = (rows_N[:-1] * base + tokens_N[:-1]) * base + tokens_N[1:]
    together_G = rows_N[1:] == rows_N[:-1]
    return codes_G[together_G], rows_N[:-1][together_G]


SIGNAL = Signal(
    family="copying",
    meaning="share of an answer's pairs of neighbouring tokens that stand in its prompt, mean over answers",
    unit="share",
    words=share("of an answer's token pairs are the prompt's"),
    read=read,
    floor=0.01,
)
