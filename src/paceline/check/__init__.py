"""Losslessness as a command: proofs by enumeration, and tests on a user's own pair."""
