//! A validated request to the dashboard.

use std::sync::Arc;

use actix_web::HttpRequest;

use super::Dashboard;
use super::fields::Fields;
use crate::admin::ApiToken;
use crate::admin::operator::Operator;

/// A request from a page of the dashboard, or from no page at all.
pub(super) struct UiRequest<'a> {
    pub(super) request: &'a HttpRequest,
    pub(super) dashboard: &'a Dashboard,
    pub(super) operator: &'a Arc<Operator>,
    pub(super) token: &'a ApiToken,
    pub(super) form: Option<Fields>,
}
