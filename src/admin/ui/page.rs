//! A page without its frame, and the request for one.

use actix_web::http::StatusCode;
use maud::{Markup, PreEscaped, html};

use super::fields::{Fields, field, query_fields};
use super::pieces::{Piece, Row};
use super::playground::Playground;
use super::recent::Known;
use super::traffic::Traffic;
use crate::admin::operator::Operator;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// Path of the start page.
pub(super) const OVERVIEW: &str = "/ui";

/// Entries of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    None,
    Overview,
    Servers,
    Sessions,
    Calls,
    Tools,
    Views,
    Keys,
    Policies,
    Logs,
    Config,
    Connect,
}

/// A page request from a signed-in visitor.
pub(super) struct View<'a> {
    pub(super) operator: &'a Operator,
    pub(super) path: &'a str,
    pub(super) query: Fields,
    pub(super) form_token: String,
    /// The dashboard page that the request comes from.
    pub(super) from: String,
    /// The gateway's URL as seen by the browser.
    pub(super) base: String,
    /// The path that MCP is served at.
    pub(super) endpoint: &'a str,
    pub(super) traffic: &'a Traffic,
    pub(super) known: &'a Known,
    pub(super) playground: &'a Playground,
    /// Whether only the live parts are rendered.
    pub(super) is_update: bool,
}

impl<'a> View<'a> {
    /// The request of the same visitor for another page, given as path and query.
    pub(super) fn at<'p>(&self, place: &'p str) -> View<'p>
    where
        'a: 'p,
    {
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        View {
            path,
            query: query_fields(query),
            form_token: self.form_token.clone(),
            from: OVERVIEW.to_owned(),
            base: self.base.clone(),
            ..*self
        }
    }

    /// A non-empty query parameter.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        field(&self.query, name).filter(|value| !value.is_empty())
    }

    /// The URL that clients of a view connect to.
    pub(super) fn address(&self, of: &ViewId) -> String {
        let place = Option::<String>::from(of.clone());
        let place = place.map(|place| format!("/{place}"));
        format!(
            "{}{}{}",
            self.base,
            self.endpoint,
            place.unwrap_or_default()
        )
    }

    /// The view in the query.
    ///
    /// # Errors
    ///
    /// Returns an error when no such view exists.
    pub(super) fn queried_view(&self) -> Result<ViewId, Failure> {
        let named = self.query("view").map(str::to_owned);
        let view = ViewId::try_from(named)
            .map_err(|error| Failure::new(ErrorKind::NotFound, error.to_string()))?;
        self.operator.known_view(&view).map(|()| view)
    }
}

/// A page, without the frame around it.
pub(super) struct Page {
    pub(super) title: String,
    pub(super) section: Section,
    pub(super) body: Markup,
    /// Live parts of the page, by id.
    pub(super) live: Vec<(String, Piece)>,
}

impl Page {
    pub(super) fn new(section: Section, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section,
            body: Markup::default(),
            live: Vec::new(),
        }
    }

    /// Adds a part that never changes.
    pub(super) fn fixed(mut self, piece: Markup) -> Self {
        self.body.0.push_str(&piece.0);
        self
    }

    /// Adds a slow part, which is left out of live updates.
    pub(super) async fn once(self, view: &View<'_>, piece: impl Future<Output = Markup>) -> Self {
        match view.is_update {
            true => self,
            false => self.fixed(piece.await),
        }
    }

    /// Adds a live part. The id must be unique within the page.
    pub(super) fn live(mut self, id: &str, piece: Markup) -> Self {
        self.body.0.push_str(&html! { div id=(id) { (piece) } }.0);
        let piece = Piece::Whole(piece.into_string());
        self.live.push((id.to_owned(), piece));
        self
    }

    /// Adds a live list whose rows change individually. `around` wraps the rows in an element with
    /// the attribute `data-rows` and the id `ID-rows`.
    pub(super) fn live_list(
        mut self,
        id: &str,
        rows: Vec<Row>,
        around: impl Fn(Markup) -> Markup,
    ) -> Self {
        let all: String = rows.iter().map(Row::html).collect();
        let whole = around(PreEscaped(all));
        self.body.0.push_str(&html! { div id=(id) { (whole) } }.0);
        let frame = Piece::Whole(around(Markup::default()).into_string());
        self.live.push((id.to_owned(), frame));
        self.live.push((format!("{id}-rows"), Piece::Rows(rows)));
        self
    }
}

/// The outcome of a submitted form.
pub(super) enum FormOutcome {
    /// Success: redirects, and shows a message on the next page.
    Done { to: String, message: String },
    /// Another page: a question, an answer, or the form with its errors.
    Page(StatusCode, Page),
}
