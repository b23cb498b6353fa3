"""A plugin of pytest: writes how each test ended to the file that SUITE_RESULTS names, a line of JSON each."""

import functools
import json
import os

import anyio
import pytest

# Tests bound their own waits; this one is for a client that waits outside of them.
LIMIT = 15


def bounded(function):
    @functools.wraps(function)
    async def within(*args, **kwargs):
        with anyio.fail_after(LIMIT):
            return await function(*args, **kwargs)

    return within


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    import inspect

    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.obj = bounded(item.obj)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if (report.when != "call" and report.passed) or not getattr(report, "is_of_suite", True):
        return
    path = os.environ.get("SUITE_RESULTS")
    if not path:
        return
    said = "" if report.passed else str(report.longrepr)
    outcome = {"test": report.nodeid, "outcome": report.outcome, "when": report.when, "said": said}
    with open(path, "a", encoding="utf-8") as results:
        results.write(json.dumps(outcome) + "\n")
