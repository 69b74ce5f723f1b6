"""What holds for every test: one thread (the models are tiny, and threads that wait for each other
would take ten times as long), and the asserts of shared checks show their values."""

import pytest
import torch

pytest.register_assert_rewrite("checks", "exact", "fakes")
torch.set_num_threads(1)
