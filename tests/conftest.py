"""What holds for every test: one thread (the models are tiny, and threads that wait for each other
would take ten times as long), the asserts of shared checks show their values, and nothing is read
from or written to the user's own cache, but for tests of real weights, which lie there."""

import pytest
import torch

pytest.register_assert_rewrite("checks", "exact", "fakes")
torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _home(request, tmp_path_factory):
    if request.config.option.markexpr != "not slow":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(tmp_path_factory.mktemp("home")))
        yield
