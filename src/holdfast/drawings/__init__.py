"""Answers that are drawn: layouts and distributions, as SVG for the pages and as text for a terminal."""
