//! Tests policies with recorded calls.

use tokio::task::yield_now;

use super::Operator;
use crate::admin::history::{RecordsError, replay_request};
use crate::auth::{GrantedScopes, Policies, is_judged};
use crate::history::{HistoryQuery, RecordedCall};
use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure};

/// Calls that policies are tested with: the last recorded ones.
const CALLS: usize = 500;

/// Calls after which other tasks of the thread have their turn.
const CALLS_AT_ONCE: usize = 8;

/// How policies would decide on recorded calls.
#[derive(Debug, Default)]
pub(in crate::admin) struct TestedCalls {
    pub(in crate::admin) tested: usize,
    /// Calls whose parameters were not kept, or whose item no server has now.
    pub(in crate::admin) skipped: usize,
    /// Calls that the policies in force decide differently, newest first, with the new denial;
    /// `None` if they would be allowed.
    pub(in crate::admin) changed: Vec<(RecordedCall, Option<String>)>,
}

impl Operator {
    /// Compares policies with those in force, for the last recorded calls as if a client with this
    /// principal and these scopes made them.
    ///
    /// # Errors
    ///
    /// Returns why the history cannot be read.
    pub(in crate::admin) async fn test_policies(
        &self,
        policies: &Policies,
        client: (&Principal, &GrantedScopes),
    ) -> Result<TestedCalls, Failure> {
        let query = HistoryQuery {
            limit: CALLS,
            ..HistoryQuery::default()
        };
        let page = self.state.history.page(query).await;
        let page = page.map_err(RecordsError::from)?;
        let in_force = self.state.catalog.policies().unwrap_or_default();
        let mut found = TestedCalls::default();
        for (call, number) in page.entries.iter().zip(1_usize..) {
            if number.is_multiple_of(CALLS_AT_ONCE) {
                yield_now().await;
            }
            let request = replay_request(call).ok();
            let request = request.filter(|request| is_judged(&request.method));
            let decide = |policies: &Policies| {
                let request = request.as_ref()?;
                let sessions = &self.state.sessions;
                match sessions.try_policies(policies, request, client, call.view()) {
                    Ok(()) => Some(None),
                    Err(denial) if denial.kind == ErrorKind::PolicyDenied => {
                        Some(Some(denial.message))
                    }
                    Err(_) => None,
                }
            };
            let (Some(before), Some(after)) = (decide(&in_force), decide(policies)) else {
                found.skipped += 1;
                continue;
            };
            found.tested += 1;
            if before.is_some() != after.is_some() {
                found.changed.push((call.record(), after));
            }
        }
        Ok(found)
    }
}
