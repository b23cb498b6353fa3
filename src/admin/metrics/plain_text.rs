//! The text form of Prometheus before OpenMetrics: there a counter is described under the name of
//! its samples.

/// An exposition in the form of OpenMetrics, in the older one.
pub(super) fn plain_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if line == "# EOF" {
            break;
        }
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
            continue;
        }
        let Some((name, kind)) = description(line) else {
            text.extend([line, "\n"]);
            continue;
        };
        let suffix = if kind == "counter" { "_total" } else { "" };
        if let Some((_, words)) = help.take() {
            text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
        }
        text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
    }
    text
}

fn description(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_as_they_are_named() {
        let open_metrics = "# HELP a All of a.\n# TYPE a counter\na_total{b=\"# TYPE\"} 1\n\
                            # HELP c One c.\n# TYPE c gauge\nc 2\n# EOF\n";
        let expected = "# HELP a_total All of a.\n# TYPE a_total counter\n\
                        a_total{b=\"# TYPE\"} 1\n# HELP c One c.\n# TYPE c gauge\nc 2\n";
        assert_eq!(plain_text(open_metrics), expected);
    }
}
