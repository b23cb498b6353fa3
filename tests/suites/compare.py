"""Compares the results of a suite with what is expected: `compare.py EXPECTED RESULTS`.

EXPECTED has groups: a line with the reason, which begins with `#`, and below it the tests that
differ for this reason, a line each. A name without its parameters stands for the test with all of
them. A test of a group whose reason begins with `# Sometimes` may pass as well.
"""

import json
import sys
from collections import Counter


def expected_of(path):
    reasons, sometimes, reason = {}, set(), None
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line:
            reasons[line] = reason
            if reason.startswith("Sometimes"):
                sometimes.add(line)
    return reasons, sometimes


def outcomes_of(path):
    """How each test ended; one that failed at any stage has failed."""
    outcomes = {}
    for line in open(path, encoding="utf-8"):
        result = json.loads(line)
        before = outcomes.get(result["test"])
        if before is None or before["outcome"] != "failed":
            outcomes[result["test"]] = result
    return outcomes


def main(expected, results):
    reasons, sometimes = expected_of(expected)
    outcomes = outcomes_of(results)
    entry_of = {test: next((it for it in (test, test.split("[")[0]) if it in reasons), None) for test in outcomes}
    failed = [test for test, result in outcomes.items() if result["outcome"] == "failed"]
    passed = [test for test, result in outcomes.items() if result["outcome"] == "passed"]
    new = [test for test in failed if entry_of[test] is None]
    still = {entry_of[test] for test in failed}
    better = {entry_of[test] for test in passed} - still - sometimes - {None}
    print(f"{expected.split('/')[-1]}: {len(passed)} of {len(passed) + len(failed)} pass through the gateway")
    for reason, count in Counter(reasons[entry_of[test]] for test in failed if entry_of[test]).most_common():
        print(f"  {count:4} {reason}")
    for test in new:
        said = [line for line in outcomes[test]["said"].splitlines() if line.lstrip("| ").startswith("E ")]
        print(f"NEW {test}", *said[:6], sep="\n      ")
    for test in sorted(better):
        print(f"PASSES {test}: take it off the list")
    if not outcomes:
        print("no test was run")
    return 1 if new or better or not outcomes else 0


sys.exit(main(*sys.argv[1:]))
