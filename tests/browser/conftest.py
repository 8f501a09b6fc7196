"""A browser and a JupyterLab with the notebooks of this repository, for the tests that click.

Both last for a module: its tests may share a page and a kernel, whose start takes longer than most of what they do.
"""

import shutil

import pytest
from browser.jupyter import Notebook, chromium, patient_page, running_lab
from project import ROOT

SCREENSHOTS = ROOT / "build" / "screenshots"
VIEWPORT = {"width": 1560, "height": 1900}


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; tests that need it are skipped, with the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    pytest.importorskip("jupyterlab", reason="needs jupyterlab")
    with sync_api.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=chromium(), args=["--disable-gpu"])
        except sync_api.Error as error:
            pytest.skip(
                "needs a Chromium: apt-get install chromium, or python -m playwright install --with-deps chromium "
                f"({str(error).splitlines()[0]})"
            )
        yield started
        started.close()


@pytest.fixture(scope="module")
def open_notebook(browser, tmp_path_factory):
    """Return a function that opens a notebook of the repository in a JupyterLab, or Notebook 7, of its own."""
    pages, servers = [], []

    def opened(name, app="jupyterlab"):
        folder = tmp_path_factory.mktemp("lab") / "notebooks"
        folder.mkdir()
        shutil.copy(ROOT / "notebooks" / name, folder)
        servers.append(running_lab(folder, app))
        address, token = servers[-1].__enter__()
        page = patient_page(browser, viewport=VIEWPORT)
        pages.append(page)
        return Notebook(page, address, token, name, app)

    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    try:
        yield opened
    finally:
        for page in pages:
            page.screenshot(path=SCREENSHOTS / "last_page.png")
        for server in servers:
            server.__exit__(None, None, None)
