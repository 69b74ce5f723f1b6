"""Failures that are not the user's mistake."""

from __future__ import annotations


class Failed(Exception):
    """Printed in one line; exit code 1."""
