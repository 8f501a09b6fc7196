"""A browser and a JupyterLab with the notebooks of this repository, for the tests that click.

The server lasts for all of them; a browser, a page and a kernel for a module, whose tests may share them: their starts
take longer than most of what the tests do.
"""

import secrets
import shutil

import pytest
from browser.jupyter import Notebook, chromium, end_kernels, forget_settings, patient_page, running_lab
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


@pytest.fixture(scope="package")
def lab(tmp_path_factory):
    """A JupyterLab with all notebooks: their folder, and the server's address and token."""
    pytest.importorskip("jupyterlab", reason="needs jupyterlab")
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=lambda _, names: [n for n in names if not n.endswith(".ipynb")])
    with running_lab(folder) as (address, token):
        yield folder, address, token


@pytest.fixture(scope="module")
def open_notebook(browser, lab):
    """Return a function that opens a notebook of the repository in a JupyterLab, or in Notebook 7."""
    folder, address, token = lab
    pages = []
    workspaces = secrets.token_hex(4)

    def opened(name, app="jupyterlab"):
        shutil.copy(ROOT / "notebooks" / name, folder)  # another module may have saved it
        page = patient_page(browser, viewport=VIEWPORT)
        pages.append(page)
        return Notebook(page, address, token, name, app, workspace=f"{workspaces}{len(pages)}")

    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    forget_settings(folder)
    try:
        yield opened
    finally:
        for page in pages:
            page.screenshot(path=SCREENSHOTS / "last_page.png")
            page.close()
        end_kernels(address, token)
