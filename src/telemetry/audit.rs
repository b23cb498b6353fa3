//! The audit trail: one log record for each denied request, call and login.

use std::net::IpAddr;

use parking_lot::Mutex;

use super::clock::unix_millis;
use super::counters::{Counter, Counters};

/// Log target of audit records.
const AUDIT: &str = "mcpvisor::audit";

/// Maximum number of records per second about known principals, and separately about unknown ones;
/// further ones are only counted, so that a client cannot fill the disk with them.
const RECORDS_PER_SECOND: u32 = 100;

/// Maximum length of action and reason in a record, in characters: clients control these texts.
const TEXT_MAX: usize = 512;

/// Separate, so that clients without credentials cannot suppress records about clients with
/// credentials.
static OF_PRINCIPALS: Mutex<Budget> = Mutex::new(Budget::new());
static OF_STRANGERS: Mutex<Budget> = Mutex::new(Budget::new());

/// A denied request: who sent it, what it asked for, and why it was denied.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// The code of the failure that the client receives (docs/errors.md).
    pub code: &'static str,
    /// The action, such as `POST /mcp` or `tools/call files__read`.
    pub action: &'a str,
    /// Issuer and subject; empty if unknown.
    pub principal: &'a str,
    /// The client's address, if known where the request is denied.
    pub from: Option<IpAddr>,
    pub reason: &'a str,
}

impl Denial<'_> {
    /// Counts the denial and writes its record.
    pub fn record(&self, counters: &Counters) {
        counters.add(Counter::Denials);
        let budget = match self.principal {
            "" => &OF_STRANGERS,
            _ => &OF_PRINCIPALS,
        };
        let taken = budget.lock().take(unix_millis() / 1000);
        let Some(left_out) = taken else { return };
        if left_out > 0 {
            log::warn!(target: AUDIT, "type" = "audit", records = left_out; "audit records suppressed: too many denials per second");
        }
        let from = self.from.map(|from| from.to_string()).unwrap_or_default();
        log::warn!(
            target: AUDIT, "type" = "audit", code = self.code, principal = self.principal,
            from = &*from, action = cut(self.action), reason = cut(self.reason); "denied"
        );
    }
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(TEXT_MAX);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The records written in the current second, in Unix time.
struct Budget {
    second: u64,
    records: u32,
    left_out: u64,
}

impl Budget {
    const fn new() -> Self {
        Self {
            second: 0,
            records: 0,
            left_out: 0,
        }
    }

    /// Number of records suppressed before the one being written now; `None` if this one is
    /// suppressed as well.
    fn take(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            (self.second, self.records) = (second, 0);
        }
        if self.records >= RECORDS_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.records += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_credentials_cannot_hide_what_others_are_denied() {
        let (counters, mut records) = (Counters::default(), 0);
        let denial = |principal| Denial {
            code: "unauthorized",
            action: "POST /mcp",
            principal,
            from: None,
            reason: "none",
        };
        while OF_STRANGERS.lock().records < RECORDS_PER_SECOND {
            denial("").record(&counters);
            records += 1;
        }
        assert_eq!(OF_PRINCIPALS.lock().records, 0);
        denial("key ada").record(&counters);
        assert_eq!(OF_PRINCIPALS.lock().records, 1);
        assert_eq!(counters.view()["denials"], records + 1);
    }

    #[test]
    fn a_name_of_a_client_fills_no_disk() {
        let long = "\u{e9}".repeat(1 << 20);
        assert_eq!(cut(&long).chars().count(), TEXT_MAX);
        assert_eq!(cut("tools/call a"), "tools/call a");
    }

    #[test]
    fn suppressed_records_are_counted_in_the_next_record() {
        let mut budget = Budget::new();
        for _ in 0..RECORDS_PER_SECOND {
            assert_eq!(budget.take(7), Some(0));
        }
        assert_eq!((budget.take(7), budget.take(7)), (None, None));
        assert_eq!((budget.take(8), budget.take(8)), (Some(2), Some(0)));
        // The system clock is set back.
        assert_eq!(budget.take(6), Some(0));
    }
}
