"""The reward service: an ensemble that scores answers for other people's trainers, and watches what it scores."""
