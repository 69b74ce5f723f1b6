"""The prompts that the demo and the benchmarks share."""

from __future__ import annotations

EDIT = """Rename the function `nearest` to `closest_point` and make `path_length` return 0.0 for
fewer than two points. Reply with the whole file and nothing else.

```python
import json
import math


def read_points(path):
    with open(path) as file:
        rows = json.load(file)
    return [(float(row["x"]), float(row["y"])) for row in rows]


def distance(a, b):
    return math.hypot(a[0] - b[0], a[1] - b[1])


def path_length(points):
    total = 0.0
    for first, second in zip(points, points[1:]):
        total += distance(first, second)
    return total


def nearest(points, target):
    best = None
    for point in points:
        if best is None or distance(point, target) < distance(best, target):
            best = point
    return best


def write_points(path, points):
    rows = [{"x": x, "y": y} for x, y in points]
    with open(path, "w") as file:
        json.dump(rows, file, indent=2)
```
"""

CHAT = "Explain to a new colleague what a hash table is, when to use one, and what can go wrong."
