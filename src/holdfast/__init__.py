"""Holdfast: online RLHF that does not collapse and does not hack its reward."""

__version__ = "0.1.0"
