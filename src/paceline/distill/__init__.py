"""Drafters made from what the user has: the target's own answers train a head or a small model."""
