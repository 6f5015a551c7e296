"""Holdfast for people who train with something else. Each file imports only what it needs."""
