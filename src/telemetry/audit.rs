//! The audit trail: one record of the log for each request, call and login that is denied.

use std::net::IpAddr;

use parking_lot::Mutex;

use super::clock::unix_millis;
use super::counters::{Counter, Counters};

/// The target of these records.
const AUDIT: &str = "mcpvisor::audit";

/// Records of one second about principals, and as many about nobody known; further ones are counted, so
/// that nobody fills a disk with them.
const RECORDS_PER_SECOND: u32 = 100;

/// Longest action and reason in a record, in characters: a client may name what it likes.
const TEXT_MAX: usize = 512;

/// Who has no credentials cannot flood the records of those who have.
static OF_PRINCIPALS: Mutex<Budget> = Mutex::new(Budget::new());
static OF_STRANGERS: Mutex<Budget> = Mutex::new(Budget::new());

/// A denied request: whose, of what kind, and why.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// The code of the failure that the client reads (docs/errors.md).
    pub code: &'static str,
    /// As `POST /mcp`, or `tools/call files__read`.
    pub action: &'a str,
    /// Issuer and subject; empty where nobody is known.
    pub principal: &'a str,
    /// The address of the client, where the one that denies knows it.
    pub from: Option<IpAddr>,
    pub reason: &'a str,
}

impl Denial<'_> {
    /// Counts it and writes its record.
    pub fn record(&self, counters: &Counters) {
        counters.add(Counter::Denials);
        let budget = match self.principal {
            "" => &OF_STRANGERS,
            _ => &OF_PRINCIPALS,
        };
        let taken = budget.lock().take(unix_millis() / 1000);
        let Some(left_out) = taken else { return };
        if left_out > 0 {
            log::warn!(target: AUDIT, "type" = "audit", records = left_out; "records of denials are left out");
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

/// Records of the second that goes on, in Unix time.
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

    /// How many records were left out before the one that is written now; `None` if this one is left
    /// out, too.
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
    fn a_flood_is_counted_and_said_with_the_next_record() {
        let mut budget = Budget::new();
        for _ in 0..RECORDS_PER_SECOND {
            assert_eq!(budget.take(7), Some(0));
        }
        assert_eq!((budget.take(7), budget.take(7)), (None, None));
        assert_eq!((budget.take(8), budget.take(8)), (Some(2), Some(0)));
        // The clock of the machine is set back.
        assert_eq!(budget.take(6), Some(0));
    }
}
