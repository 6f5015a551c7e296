"""What an answer may be: grammars, masks of a user's own, and which of them a prompt has."""
