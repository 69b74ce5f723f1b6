"""Checks that tests and mutations share. Each raises AssertionError if its promise is broken."""
