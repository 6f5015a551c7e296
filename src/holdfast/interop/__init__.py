"""Holdfast beside trainers that people already have."""
