"""The guard: signals against baselines, the audit against the ensemble's claims, and the verdict."""
