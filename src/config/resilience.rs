//! What keeps one server's trouble from its callers: breakers, queues, calls sent once more.

use super::raw::Section;
use super::sections::{DAY, HOUR, Limits, MILLI};
use crate::downstream::{BreakerSettings, Resilience, RetrySettings};

/// `[breaker]`, or the keys of it that a server sets again over `base`.
pub(super) fn breaker(mut section: Section<'_>, base: BreakerSettings) -> BreakerSettings {
    let settings = BreakerSettings {
        failures: section.count("failures", base.failures, 0..=10_000),
        within: section.duration("within", base.within, MILLI..=DAY),
        open_for: section.duration("open_for", base.open_for, MILLI..=HOUR),
        tools: section.flag("tools", base.tools),
        tool_errors: section.flag("tool_errors", base.tool_errors),
    };
    section.finish();
    settings
}

/// All of a server.
pub(super) fn of_server(
    section: &mut Section<'_>,
    base: BreakerSettings,
    limits: &Limits,
) -> Resilience {
    let breaker = breaker(section.section("breaker", "[servers.NAME.breaker]"), base);
    let is_trusted = section.flag("trusted", false);
    let retries = section.flag("retry", false);
    if retries && !is_trusted {
        let message = format!(
            "`{}` needs `{}`",
            section.path("retry"),
            section.path("trusted")
        );
        let help = "set `trusted = true` if what this server says of its tools (`readOnlyHint`, \
                    `idempotentHint`) can be relied on";
        section.refuse(&["retry"], message, help.to_owned());
    }
    Resilience {
        breaker,
        queue: limits.queue,
        retry: RetrySettings {
            is_allowed: retries,
            per_minute: limits.retries_per_minute,
        },
    }
}
