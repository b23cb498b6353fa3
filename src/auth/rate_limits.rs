//! Rate limits for calls of a client: in total, for each server, for each tool, and for calls that a
//! session repeats with the same arguments.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use tokio::time::Instant;

use crate::id::{Holder, ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure, retry_after_seconds};

/// Maximum number of counters, one for each pair of a client with a server or tool; more evict the
/// least used, whose counts restart.
const COUNTED_MAX: usize = 100_000;

/// Maximum number of calls in a rate.
const CALLS_MAX: u32 = 1_000_000;

/// The units of time in a rate.
const UNITS: [(&str, Duration); 4] = [
    ("second", Duration::from_secs(1)),
    ("minute", Duration::from_secs(60)),
    ("hour", Duration::from_secs(3600)),
    ("day", Duration::from_secs(86_400)),
];

/// A number of calls per unit of time. The whole number can be used in a burst; after that, calls
/// become available again one by one at even intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    calls: u32,
    unit: &'static str,
    within: Duration,
}

impl Rate {
    /// Parses `100/minute`.
    pub fn parse(text: &str) -> Option<Self> {
        let (calls, unit) = text.split_once('/')?;
        let is_number = calls.bytes().all(|byte| byte.is_ascii_digit());
        let calls = calls.parse().ok().filter(|_| is_number)?;
        let (unit, within) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        (1..=CALLS_MAX).contains(&calls).then_some(Self {
            calls,
            unit,
            within,
        })
    }

    /// The time after which one more call becomes available.
    fn interval(self) -> Duration {
        self.within / self.calls
    }

    /// Counts one more call (GCRA, ATM Forum TM 4.1). `counted` and the result are the theoretical
    /// arrival time: when the full burst is available again.
    ///
    /// # Errors
    ///
    /// Returns how long the next call has to wait.
    fn count(self, counted: Option<Instant>, now: Instant) -> Result<Instant, Duration> {
        let next = counted.map_or(now, |counted| counted.max(now)) + self.interval();
        let wait = next.saturating_duration_since(now + self.within);
        match wait.is_zero() {
            true => Ok(next),
            false => Err(wait),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.calls, self.unit)
    }
}

/// Names of the tables with the general rates and the rates of one API key.
const TABLES: [&str; 2] = ["rate_limits", "auth.keys.NAME.limits"];

/// Rate limits of each client. Calls without a rate are unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitSettings {
    /// Limit on all calls.
    pub calls: Option<Rate>,
    /// Limit on the calls of each server.
    pub calls_per_server: Option<Rate>,
    /// Limit on the calls of each tool.
    pub calls_per_tool: Option<Rate>,
    /// Limit on the calls of a tool with the same arguments in one session, which stops an agent
    /// that is caught in a loop.
    pub identical_calls: Option<Rate>,
}

/// A call to count.
#[derive(Clone, Copy, Debug)]
pub struct CountedCall<'a> {
    /// Clients without a name are counted by their address.
    pub holder: &'a Holder,
    pub server: &'a ServerName,
    /// Public name of the tool; `None` if the call is not for a tool.
    pub tool: Option<&'a str>,
    /// Arguments of the tool, as the client sent them.
    pub arguments: &'a [u8],
    /// `None` for a client without sessions, whose calls are one session here.
    pub session: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Gateway,
    Server(ServerName),
    Tool(String),
    /// Calls of a tool with the arguments of this hash.
    Identical(Option<SessionId>, String, u64),
}

/// Key of a counter. A changed rate starts a new one.
type CountKey = (Holder, Scope, Rate);

/// The calls of all clients, as the theoretical arrival time of each counter.
#[derive(Debug)]
pub struct RateLimits {
    counts: Cache<CountKey, Instant>,
    /// Hashes with random keys, so that no client can choose arguments with equal hashes.
    hasher: RandomState,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            counts: Cache::new(COUNTED_MAX),
            hasher: RandomState::new(),
        }
    }
}

impl RateLimits {
    /// Counts a call. The client's `own` rates override the rates of `all`.
    ///
    /// # Errors
    ///
    /// Refuses a call that exceeds one of the rates; then it is counted for none.
    pub fn count(
        &self,
        all: &RateLimitSettings,
        own: Option<&RateLimitSettings>,
        call: CountedCall<'_>,
        now: Instant,
    ) -> Result<(), Failure> {
        let own = own.copied().unwrap_or_default();
        if [*all, own] == [RateLimitSettings::default(); 2] {
            return Ok(());
        }
        let server = Scope::Server(call.server.clone());
        let tool = call.tool.map(|tool| Scope::Tool(tool.to_owned()));
        let limits_identical = all.identical_calls.or(own.identical_calls).is_some();
        let identical = call.tool.filter(|_| limits_identical).map(|tool| {
            let arguments = self.hasher.hash_one(call.arguments);
            Scope::Identical(call.session, tool.to_owned(), arguments)
        });
        let rates = [
            ([all.calls, own.calls], Some(Scope::Gateway)),
            ([all.calls_per_server, own.calls_per_server], Some(server)),
            ([all.calls_per_tool, own.calls_per_tool], tool),
            ([all.identical_calls, own.identical_calls], identical),
        ];
        let mut allowed: Vec<CountKey> = Vec::with_capacity(rates.len());
        for (of_tables, scope) in rates {
            let mut named = of_tables.into_iter().zip(TABLES).rev();
            let named = named.find_map(|(rate, table)| Some((rate?, table)));
            let Some(((rate, table), scope)) = named.zip(scope) else {
                continue;
            };
            let key = (call.holder.clone(), scope, rate);
            if let Err(wait) = self.count_one(&key, now) {
                allowed.iter().for_each(|key| self.take_back(key));
                return Err(too_often(rate, table, &key.1, wait));
            }
            allowed.push(key);
        }
        Ok(())
    }

    fn count_one(&self, key: &CountKey, now: Instant) -> Result<(), Duration> {
        let (.., rate) = key;
        let counted = self.counts.entry(key, None, |_, until| {
            let counted = rate.count(Some(*until), now);
            EntryAction::Retain(counted.map(|next| *until = next))
        });
        match counted {
            EntryResult::Retained(outcome) => outcome,
            EntryResult::Vacant(place) => {
                // If all other counters are in use, the cache drops this one immediately.
                let _ = place.insert(rate.count(None, now)?);
                Ok(())
            }
            // The closure and the missing timeout rule these cases out.
            EntryResult::Removed(..) | EntryResult::Replaced(..) | EntryResult::Timeout => Ok(()),
        }
    }

    /// Reverts the count of a call that another rate refused.
    fn take_back(&self, key: &CountKey) {
        let (.., rate) = key;
        drop(self.counts.entry(key, None, |_, until| {
            *until = until.checked_sub(rate.interval()).unwrap_or(*until);
            EntryAction::Retain(())
        }));
    }
}

fn too_often(rate: Rate, table: &str, scope: &Scope, wait: Duration) -> Failure {
    let short = |tool: &str| tool.chars().take(128).collect::<String>();
    let milliseconds = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let seconds = retry_after_seconds(milliseconds);
    let too_many = |what: &str, key: &str| {
        format!("too many {what}: the limit is {rate} (`{table}.{key}`); try again in {seconds} s")
    };
    let message = match scope {
        Scope::Gateway => too_many("calls", "calls"),
        Scope::Server(server) => {
            too_many(&format!("calls of server `{server}`"), "calls_per_server")
        }
        Scope::Tool(tool) => too_many(
            &format!("calls of tool `{}`", short(tool)),
            "calls_per_tool",
        ),
        Scope::Identical(_, tool, _) => format!(
            "tool `{}` was already called with exactly these arguments, more often than {rate} \
             (`{table}.identical_calls`). Use the earlier results, call it with other arguments, or \
             stop; the same call is possible again in {seconds} s",
            short(tool)
        ),
    };
    Failure::new(ErrorKind::RateLimited, message).retry_after_ms(milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Peer, Principal};

    fn call<'a>(holder: &'a Holder, server: &'a ServerName, tool: &'a str) -> CountedCall<'a> {
        CountedCall {
            holder,
            server,
            tool: Some(tool),
            arguments: b"{}",
            session: None,
        }
    }

    #[test]
    fn rates_parse_as_calls_per_unit() {
        for text in ["1/second", "100/minute", "1000000/hour", "5/day"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "5",
            "/second",
            "0/second",
            "-1/second",
            "+1/second",
            "1 /second",
            "1/week",
            "1/seconds",
            "1000001/hour",
            "4294967297/hour",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_burst_is_allowed_once_and_refills_evenly() {
        let rate = Rate::parse("6/minute").unwrap();
        let start = Instant::now();
        let mut counted = None;
        for _ in 0..6 {
            counted = Some(rate.count(counted, start).unwrap());
        }
        assert_eq!(rate.count(counted, start), Err(Duration::from_secs(10)));
        let later = start + Duration::from_secs(9);
        assert_eq!(rate.count(counted, later), Err(Duration::from_secs(1)));
        let later = start + Duration::from_secs(10);
        counted = Some(rate.count(counted, later).unwrap());
        assert!(rate.count(counted, later).is_err());
        // After an hour, exactly the full burst is available again.
        let later = start + Duration::from_secs(3600);
        for _ in 0..6 {
            counted = Some(rate.count(counted, later).unwrap());
        }
        assert!(rate.count(counted, later).is_err());
    }

    #[test]
    fn a_changed_rate_applies_immediately() {
        let limits = RateLimits::default();
        let (one, server) = (Holder::Peer(Peer::Local), ServerName::try_new("s").unwrap());
        let now = Instant::now();
        let count = |rate| {
            let settings = RateLimitSettings {
                calls: Rate::parse(rate),
                ..RateLimitSettings::default()
            };
            limits
                .count(&settings, None, call(&one, &server, "x"), now)
                .is_ok()
        };
        assert_eq!([count("1/day"), count("1/day")], [true, false]);
        assert_eq!([count("1/second"), count("1/second")], [true, false]);
    }

    #[test]
    fn each_client_server_and_tool_has_its_own_limit() {
        let rate = |text| Rate::parse(text);
        let settings = RateLimitSettings {
            calls: rate("4/hour"),
            calls_per_server: rate("3/hour"),
            calls_per_tool: rate("2/hour"),
            identical_calls: None,
        };
        let [one, other] = ["a", "b"].map(|name| Holder::Principal(Principal::of("key", name)));
        let address = Holder::Peer(Peer::of([10, 0, 0, 1].into()));
        let [s, t] = ["s", "t"].map(|name| ServerName::try_new(name).unwrap());
        let limits = RateLimits::default();
        let now = Instant::now();
        let refused = |call| match limits.count(&settings, None, call, now) {
            Ok(()) => None,
            Err(failure) => {
                assert_eq!(failure.kind, ErrorKind::RateLimited);
                Some(failure.message)
            }
        };
        let steps = [
            (call(&one, &s, "x"), None),
            (call(&one, &s, "x"), None),
            (call(&one, &s, "x"), Some("calls_per_tool")),
            // The refused call was not counted.
            (call(&one, &s, "y"), None),
            (call(&one, &s, "y"), Some("calls_per_server")),
            (call(&one, &t, "z"), None),
            (call(&one, &t, "z"), Some("rate_limits.calls`")),
            (call(&other, &s, "x"), None),
            (call(&address, &s, "x"), None),
        ];
        for (number, (call, key)) in steps.into_iter().enumerate() {
            let refused = refused(call);
            match key {
                None => assert_eq!(refused, None, "{number}"),
                Some(key) => assert!(refused.unwrap().contains(key), "{number}"),
            }
        }
    }

    #[test]
    fn an_identical_call_is_the_same_tool_and_arguments_in_the_same_session() {
        let settings = RateLimitSettings {
            identical_calls: Rate::parse("2/hour"),
            ..RateLimitSettings::default()
        };
        let (one, server) = (Holder::Peer(Peer::Local), ServerName::try_new("s").unwrap());
        let (limits, now) = (RateLimits::default(), Instant::now());
        let session = |number| Some(SessionId::new(uuid::Uuid::from_u128(number)));
        let count = |tool: Option<&str>, arguments: &[u8], session| {
            let call = CountedCall {
                tool,
                arguments,
                session,
                ..call(&one, &server, "")
            };
            limits
                .count(&settings, None, call, now)
                .map_err(|it| it.message)
        };
        for _ in 0..2 {
            count(Some("x"), b"{}", session(1)).unwrap();
        }
        let refused = count(Some("x"), b"{}", session(1)).unwrap_err();
        assert!(refused.contains("exactly these arguments"), "{refused}");
        count(Some("x"), b"{\"a\":1}", session(1)).unwrap();
        count(Some("y"), b"{}", session(1)).unwrap();
        count(Some("x"), b"{}", session(2)).unwrap();
        count(Some("x"), b"{}", None).unwrap();
        for _ in 0..9 {
            count(None, b"{}", session(1)).unwrap();
        }
    }

    #[test]
    fn a_key_rate_overrides_the_general_rate_and_is_named() {
        let (all, own) = ("rate_limits", "auth.keys.NAME.limits");
        let rates = |calls, calls_per_tool| RateLimitSettings {
            calls: Rate::parse(calls),
            calls_per_tool: Rate::parse(calls_per_tool),
            ..RateLimitSettings::default()
        };
        let table = [
            (rates("1/day", ""), None, 1, format!("`{all}.calls`")),
            (
                rates("1/day", ""),
                Some(rates("2/day", "")),
                2,
                format!("`{own}.calls`"),
            ),
            (
                rates("1/day", ""),
                Some(rates("", "9/day")),
                1,
                format!("`{all}.calls`"),
            ),
            (
                rates("", ""),
                Some(rates("", "1/day")),
                1,
                format!("`{own}.calls_per_tool`"),
            ),
        ];
        let (one, server) = (Holder::Peer(Peer::Local), ServerName::try_new("s").unwrap());
        let now = Instant::now();
        for (all, own, allowed, named) in table {
            let limits = RateLimits::default();
            let count = || limits.count(&all, own.as_ref(), call(&one, &server, "x"), now);
            for _ in 0..allowed {
                count().unwrap();
            }
            let refused = count().unwrap_err().message;
            assert!(refused.contains(&named), "{named}: {refused}");
        }
    }

    #[test]
    fn what_is_counted_is_bounded_and_what_is_in_use_stays_counted() {
        let settings = RateLimitSettings {
            calls_per_tool: Rate::parse("1/day"),
            ..RateLimitSettings::default()
        };
        let (one, server) = (Holder::Peer(Peer::Local), ServerName::try_new("s").unwrap());
        let limits = RateLimits::default();
        let now = Instant::now();
        let count = |tool: &str| {
            let counted = limits.count(&settings, None, call(&one, &server, tool), now);
            counted.is_ok()
        };
        assert!(count("in use") && !count("in use"));
        for number in 0..2 * COUNTED_MAX {
            assert!(
                count(&number.to_string()),
                "refused for the calls of others"
            );
            if number % 1000 == 0 {
                assert!(!count("in use"), "{number}");
            }
        }
        assert!(
            limits.counts.len() <= COUNTED_MAX + COUNTED_MAX / 10,
            "{}",
            limits.counts.len()
        );
    }

    #[test]
    fn concurrent_calls_do_not_exceed_the_rate() {
        let settings = RateLimitSettings {
            calls: Rate::parse("100/day"),
            calls_per_tool: Rate::parse("60/day"),
            ..RateLimitSettings::default()
        };
        let (one, server) = (Holder::Peer(Peer::Local), ServerName::try_new("s").unwrap());
        let limits = RateLimits::default();
        let now = Instant::now();
        let allowed = |tool: &'static str| {
            let count = || limits.count(&settings, None, call(&one, &server, tool), now);
            (0..100).filter(|_| count().is_ok()).count()
        };
        let allowed: usize = std::thread::scope(|threads| {
            let started: Vec<_> = ["a", "b", "a", "b"]
                .map(|tool| threads.spawn(move || allowed(tool)))
                .into();
            started
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(allowed, 100);
    }
}
