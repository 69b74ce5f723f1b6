"""What a pair is tried on where its user gives nothing better: few prompts, answered at length."""

from paceline.text.prompts import Prompt

_CODE = """\
class Account:
    def __init__(self, owner, amount=0):
        self.owner = owner
        self.amount = amount

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.amount += amount

    def withdraw(self, amount):
        if amount > self.amount:
            raise ValueError("amount is too large")
        self.amount -= amount
"""

PROMPTS = (
    Prompt(
        "Write a Python class for a stack on top of a list, with push, pop, peek and is_empty, "
        "and a few lines that use it.",
        "code",
    ),
    Prompt("I have never baked bread. How do I bake a plain loaf, and what goes wrong?", "chat"),
    Prompt(f"Rename amount to cents everywhere. Give the code alone:\n\n{_CODE}", "edit"),
)
