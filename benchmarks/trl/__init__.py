"""Against TRL, and inside it; TRL has an environment of its own."""
