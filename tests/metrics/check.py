"""Compares the dashboard and the alert rules with what a gateway serves.

    check.py FOLDER      with `metrics`, an answer of the gateway; other files are written beside it
"""

import json
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
ALERTS = Path("contrib/grafana/alerts.yaml").read_text()
TESTS = Path("tests/metrics/alerts.yaml").read_text()
DASHBOARD = Path("contrib/grafana/dashboard.json").read_text()

# Prometheus itself makes it for each target.
OF_PROMETHEUS = {"up"}
# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$server": ".*", "$job": ".*"}


def dashboard_expressions():
    panels = json.loads(DASHBOARD)["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(expressions) > 20, "the panels of the dashboard were not found"
    for variable, value in VARIABLES.items():
        expressions = [expression.replace(variable, value) for expression in expressions]
    return expressions


def alert_expressions():
    """Without a library for YAML: an expression goes on in lines that are further in."""
    found = re.findall(r"^( +)expr: *(?:\|\n((?:\1 +.*\n)+)|(.+)\n)", ALERTS, re.MULTILINE)
    return [block or line for _, block, line in found]


def metrics_in(expression):
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    words = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b", bare)
    functions = set(re.findall(r"([a-zA-Z_]+)\s*\(", bare))
    return set(words) - functions - {"and", "or", "unless", "sum", "max", "min", "topk"}


def served():
    names = set()
    for line in (FOLDER / "metrics").read_text().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            suffixes = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
            names |= {name + suffix for suffix in suffixes}
    return names


def check_names(what, expressions):
    named = set().union(*map(metrics_in, expressions)) - OF_PROMETHEUS
    assert len(named) > 10, f"too few metrics were found in the {what}: {named}"
    missing = named - served()
    assert not missing, f"the {what} names what the gateway does not serve: {sorted(missing)}"
    print(f"{what}: {len(named)} metrics, all served")


def check_syntax(expressions):
    rules = [{"record": f"panel:{number}", "expr": it} for number, it in enumerate(expressions)]
    # JSON is YAML.
    path = FOLDER / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", path], check=True)


def check_every_alert_is_tested():
    alerts = re.findall(r"- alert: (\w+)", ALERTS)
    expected = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:", TESTS)
    silent = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n(?! +exp_alerts)", TESTS)
    assert len(alerts) == len(alert_expressions()) > 0
    for how, tested in (("fires", expected), ("stays silent", silent)):
        missing = set(alerts) - set(tested)
        assert not missing, f"no test in which it {how}: {sorted(missing)}"


check_every_alert_is_tested()
check_names("alert rules", alert_expressions())
panels = dashboard_expressions()
check_syntax(panels)
check_names("dashboard", panels)
