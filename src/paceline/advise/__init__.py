"""Advice before you start: what speculation would gain, measured on a pair or worked out."""
