//! Arguments of `mcpvisor history` and `mcpvisor logs`.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct HistoryArguments {
    /// Only calls to this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,

    /// Only calls of this method, such as tools/call
    #[arg(long)]
    pub method: Option<String>,

    /// Only calls with this outcome, such as ok or timeout
    #[arg(long)]
    pub outcome: Option<String>,

    /// Only calls of this session: the first eight digits of its id
    #[arg(long, value_name = "DIGITS")]
    pub session: Option<String>,

    /// Repeat the call with this id, and show its answer
    ///
    /// Works for calls whose parameters were recorded completely and contained no secrets.
    #[arg(long, value_name = "ID", exclusive = true)]
    pub replay: Option<String>,

    #[command(flatten)]
    pub shown: ShownRecords,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct GatewayLogArguments {
    /// Only records of this level and above: trace, debug, info, warn or error
    #[arg(long)]
    pub level: Option<String>,

    /// Only records about this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,

    #[command(flatten)]
    pub shown: ShownRecords,
}

/// Which records are shown, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ShownRecords {
    /// Only records that contain this text
    #[arg(long)]
    pub text: Option<String>,

    /// Only records since a time (2026-11-23T08:00:00Z), or of a duration (10m)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Moment>,

    /// Show the last N, at most 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: u32,

    /// Print JSON
    #[arg(long, conflicts_with = "follow")]
    pub json: bool,

    /// Follow new records until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Ago(Duration),
    /// Milliseconds since 1970.
    At(u64),
}

fn moment(text: &str) -> Result<Moment, String> {
    let ago = humantime::parse_duration(text).map(Moment::Ago);
    let at = || {
        let at = humantime::parse_rfc3339_weak(text).ok()?;
        let since = at.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok().map(Moment::At)
    };
    let why = "a time has the form 2026-11-23T08:00:00Z, or 10m for ten minutes ago";
    ago.ok().or_else(at).ok_or_else(|| why.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shown: ShownRecords,
    }

    fn parse(since: &str) -> Result<ShownRecords, clap::Error> {
        let line = Line::try_parse_from(["x", "--since", since, "-n", "5"]);
        line.map(|line| line.shown)
    }

    #[test]
    fn since_accepts_a_time_or_a_duration() {
        let cases = [
            ("10m", Some(Moment::Ago(Duration::from_secs(600)))),
            ("1970-01-01T00:00:01Z", Some(Moment::At(1000))),
            ("yesterday", None),
        ];
        for (since, expected) in cases {
            let parsed = parse(since);
            let found = parsed.ok().map(|shown| (shown.since, shown.lines));
            assert_eq!(found, expected.map(|moment| (Some(moment), 5)), "{since}");
        }
    }
}
