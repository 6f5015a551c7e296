"""Stages of training one after the other: DPO on labels, distillation of best-of-n, and the pipeline of all."""
