"""What the loop does to a policy: learning, collapse, KL, the guard, each stage, a real model."""
