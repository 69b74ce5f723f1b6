"""What a pair is tried on: code, talk, translation, lists to copy, and text that is hard to cut."""

PROMPTS = (
    "Write a Python function that merges two sorted lists.",
    "Why do leaves change their colour in autumn?",
    "Translate into French: the train leaves at nine and the shop opens at ten.",
    "Repeat this line twice: naïve café — 12½ °C, “quoted”, 東京, здравствуй, 🙂🚲👩‍👩‍👧.",
    "Rename x to total everywhere: x = 0\nfor n in numbers:\n    x = x + n\nprint(x)",
    "Give me three names for a bicycle shop.",
    "Write a C function that counts the bits of an unsigned int.",
    "Count from 1 to 20, one number a line.",
    "def fib(n):\n    ",
    "Übersetze ins Englische: Am Morgen war der See ganz still.",
    "Explain what an index of a database does, in two sentences.",
    '{"name": "Ada", "born": 1815}\nMake the same object for Alan Turing, born in 1912.',
    "Write a haiku about rain on a tin roof.",
    "a\u0301\u0323 ﬁ ﷽ \u200bz̷a̷l̷g̷o̷ ½⅓ 𝕏𝕐 ไทย हिन्दी\nWhich scripts are these?",
    "SELECT name FROM users WHERE\nFinish this query for users older than 30.",
    "Write a shell command that lists the ten largest files here.",
)
