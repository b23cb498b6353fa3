//! Writes metric families as text: OpenMetrics, or the older Prometheus format.

use std::fmt::{self, Display, Write as _};

use super::family::{Family, Labels, Samples};
use crate::metrics::{Exemplar, HistogramView};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextForm {
    OpenMetrics,
    /// The older format: no exemplars, and counters are described under their sample names.
    Plain,
}

/// # Errors
///
/// Returns the formatter's error.
pub(super) fn exposition(families: &[Family], form: TextForm) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for family in families {
        write_family(&mut text, family, form)?;
    }
    if form == TextForm::OpenMetrics {
        text.push_str("# EOF\n");
    }
    Ok(text)
}

fn write_family(text: &mut String, family: &Family, form: TextForm) -> fmt::Result {
    let (kind, suffix) = match &family.samples {
        Samples::Gauges(_) | Samples::Seconds(_) => ("gauge", ""),
        Samples::Counters(_) | Samples::Times(_) => ("counter", "_total"),
        Samples::Histograms(_) => ("histogram", ""),
    };
    let name = &family.name;
    let described = if form == TextForm::Plain { suffix } else { "" };
    let help = escaped(&family.help);
    writeln!(
        text,
        "# HELP {name}{described} {help}\n# TYPE {name}{described} {kind}"
    )?;
    match &family.samples {
        Samples::Gauges(numbers) | Samples::Counters(numbers) => {
            for (labels, number) in numbers {
                writeln!(text, "{name}{suffix}{} {number}", Braces(labels, None))?;
            }
        }
        Samples::Seconds(times) | Samples::Times(times) => {
            for (labels, seconds) in times {
                writeln!(text, "{name}{suffix}{} {seconds}", Braces(labels, None))?;
            }
        }
        Samples::Histograms(histograms) => {
            for (labels, view) in histograms {
                write_histogram(text, (name, labels), view, form)?;
            }
        }
    }
    Ok(())
}

fn write_histogram(
    text: &mut String,
    (name, labels): (&str, &Labels),
    view: &HistogramView,
    form: TextForm,
) -> fmt::Result {
    let mut up_to = 0;
    for (index, (bound, count)) in view.buckets.iter().enumerate() {
        up_to += count;
        let bound = match bound.is_infinite() {
            true => "+Inf".to_owned(),
            // Prometheus treats `1` and `1.0` as two series.
            false => format!("{bound:?}"),
        };
        write!(
            text,
            "{name}_bucket{} {up_to}",
            Braces(labels, Some(&bound))
        )?;
        let exemplar = view.exemplar(index);
        if let Some(exemplar) = exemplar.filter(|_| form == TextForm::OpenMetrics) {
            write_exemplar(text, exemplar)?;
        }
        text.push('\n');
    }
    let labels = Braces(labels, None);
    let (sum, count) = (view.sum, view.count);
    writeln!(
        text,
        "{name}_sum{labels} {sum}\n{name}_count{labels} {count}"
    )
}

fn write_exemplar(text: &mut String, exemplar: &Exemplar) -> fmt::Result {
    let Exemplar { span, seconds, at } = exemplar;
    let (trace, span) = (span.trace, span.span);
    let (whole, millis) = (at / 1000, at % 1000);
    write!(
        text,
        " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {seconds} {whole}.{millis:03}"
    )
}

/// Labels in Prometheus notation, and the upper bound of a bucket.
struct Braces<'a>(&'a Labels, Option<&'a str>);

impl Display for Braces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(labels, bound) = self;
        let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
        let mut separator = '{';
        for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
            let (name, value) = (name.replace('.', "_"), escaped(value));
            let value = value.replace('"', "\\\"");
            write!(f, "{separator}{name}=\"{value}\"")?;
            separator = ',';
        }
        if separator == ',' {
            f.write_char('}')
        } else {
            Ok(())
        }
    }
}

/// Escapes text for a single line.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::family::Numbers;
    use crate::telemetry::SpanNumbers;

    fn histogram() -> Family {
        let exemplar = Exemplar {
            span: SpanNumbers {
                trace: 0xa,
                span: 0xb,
            },
            seconds: 0.015,
            at: 1_500_000_000_007,
        };
        let view = HistogramView {
            count: 3,
            sum: 4.5,
            buckets: vec![(0.01, 1), (1.0, 1), (f64::INFINITY, 1)],
            exemplars: vec![None, Some(exemplar), None],
        };
        let labels = vec![("mcp.method.name", "tools/call".to_owned())];
        Family::new(
            "h_seconds",
            "How\nlong",
            Samples::Histograms(vec![(labels, view)]),
        )
    }

    #[test]
    fn a_histogram_has_exemplars_in_open_metrics_alone() {
        let zeros = "0".repeat(31);
        let exemplar = format!(
            " # {{trace_id=\"{zeros}a\",span_id=\"000000000000000b\"}} 0.015 1500000000.007"
        );
        let expected = |exemplar: &str, end: &str| {
            format!(
                "# HELP h_seconds How\\nlong\n# TYPE h_seconds histogram\n\
                 h_seconds_bucket{{mcp_method_name=\"tools/call\",le=\"0.01\"}} 1\n\
                 h_seconds_bucket{{mcp_method_name=\"tools/call\",le=\"1.0\"}} 2{exemplar}\n\
                 h_seconds_bucket{{mcp_method_name=\"tools/call\",le=\"+Inf\"}} 3\n\
                 h_seconds_sum{{mcp_method_name=\"tools/call\"}} 4.5\n\
                 h_seconds_count{{mcp_method_name=\"tools/call\"}} 3\n{end}"
            )
        };
        let shown = |form| exposition(&[histogram()], form).unwrap();
        assert_eq!(shown(TextForm::OpenMetrics), expected(&exemplar, "# EOF\n"));
        assert_eq!(shown(TextForm::Plain), expected("", ""));
    }

    #[test]
    fn counters_are_described_as_each_form_names_them() {
        let labels = vec![("server", "a\"\\\nb".to_owned())];
        let counter = Family::new("a", "All", Samples::Counters(Numbers::from([(labels, 1)])));
        let families = [counter, Family::gauge("c", "One", -2)];
        let expected = |suffix: &str, end: &str| {
            format!(
                "# HELP a{suffix} All\n# TYPE a{suffix} counter\n\
                 a_total{{server=\"a\\\"\\\\\\nb\"}} 1\n\
                 # HELP c One\n# TYPE c gauge\nc -2\n{end}"
            )
        };
        let shown = |form| exposition(&families, form).unwrap();
        assert_eq!(shown(TextForm::OpenMetrics), expected("", "# EOF\n"));
        assert_eq!(shown(TextForm::Plain), expected("_total", ""));
    }
}
