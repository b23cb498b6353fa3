"""Compares the results of a suite with what is expected: `compare.py EXPECTED RESULTS [AGAIN]`.

EXPECTED has groups: a line with the reason, which begins with `#`, and below it the tests that
differ for this reason, a line each. A name without its parameters stands for the test with all of
them. AGAIN has the results of tests that were run a second time, and is not there yet in the first
comparison, which prints the tests that are to be run again.
"""

import json
import sys
from collections import Counter
from pathlib import Path


def expected_of(path):
    reasons, reason = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line:
            reasons[line] = reason
    return reasons


def outcomes_of(path):
    """How each test ended; one that failed at any stage has failed."""
    outcomes = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        result = json.loads(line)
        if outcomes.get(result["test"], {}).get("outcome") != "failed":
            outcomes[result["test"]] = result
    return outcomes


def main(expected, results, again=None):
    reasons = expected_of(Path(expected))
    outcomes = outcomes_of(Path(results))
    if again:
        outcomes |= outcomes_of(Path(again))
    entry_of = {test: next((it for it in (test, test.split("[")[0].strip()) if it in reasons), None) for test in outcomes}
    failed = [test for test, result in outcomes.items() if result["outcome"] == "failed"]
    passed = [test for test, result in outcomes.items() if result["outcome"] == "passed"]
    new = [test for test in failed if entry_of[test] is None]
    if not again:
        print(*new, sep="\n")
        return 0
    better = {entry_of[test] for test in passed} - {entry_of[test] for test in failed} - {None}
    print(f"{Path(expected).stem}: {len(passed)} of {len(passed) + len(failed)} pass through the gateway")
    for reason, count in Counter(reasons[entry_of[test]] for test in failed if entry_of[test]).most_common():
        print(f"  {count:4} {reason}")
    for test in sorted(better):
        print(f"  passes now, take it off the list: {test}")
    for test in new:
        said = [line for line in outcomes[test]["said"].splitlines() if line.lstrip("| ").startswith("E ")]
        print(f"NEW {test}", *said[:6], sep="\n      ")
    if not outcomes:
        print("no test was run")
    return 1 if new or not outcomes else 0


sys.exit(main(*sys.argv[1:]))
