"""A researcher's own package: it builds on RoyaleGym and Royale Lightning, and neither has heard of it."""
