"""What holds for every test: one thread (the models are tiny, and threads that wait for each other
would take ten times as long), the asserts of shared checks show their values, and nothing is read
from or written to the user's own cache, but for tests of real weights, which lie there."""

import shutil

import pytest
import torch

pytest.register_assert_rewrite("checks", "exact", "fakes")
torch.set_num_threads(1)

_CHROMIUM = shutil.which("chromium")
_QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
_QUIET += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(autouse=True, scope="session")
def _home(request, tmp_path_factory):
    if request.config.option.markexpr != "not slow":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def browser():
    """A real browser, for the tests of pages; skips without playwright or a `chromium` on PATH.
    Closed with its module: while it is open, this thread has a running event loop."""
    sync = pytest.importorskip("playwright.sync_api")
    if _CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    with sync.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=_CHROMIUM, args=_QUIET)
        yield made
        made.close()
