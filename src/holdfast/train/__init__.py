"""What moves a policy: PPO, online DPO, imitation, the best of n answers."""
