//! A page before its frame, and a request for one.

use actix_web::http::StatusCode;
use maud::{Markup, PreEscaped, html};

use super::fields::{Fields, field};
use super::pieces::{Piece, Row};
use super::traffic::Traffic;
use super::trials::Trials;
use crate::admin::operator::Operator;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// The first page.
pub(super) const OVERVIEW: &str = "/ui";

/// The entries of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    None,
    Overview,
    Servers,
    Tree,
    Sessions,
    Calls,
    Tools,
    Views,
    Logs,
    Config,
    Connect,
}

/// A request for a page by somebody who has signed in.
pub(super) struct View<'a> {
    pub(super) operator: &'a Operator,
    pub(super) path: &'a str,
    pub(super) query: Fields,
    pub(super) form_token: String,
    /// The page of the dashboard that the request comes from.
    pub(super) from: String,
    /// The URL by which the browser knows the gateway.
    pub(super) base: String,
    /// Where MCP is served.
    pub(super) endpoint: &'a str,
    pub(super) traffic: &'a Traffic,
    pub(super) trials: &'a Trials,
    /// Whether only the pieces that change by themselves are wanted.
    pub(super) is_update: bool,
}

impl View<'_> {
    /// A parameter of the query that says something.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        field(&self.query, name).filter(|value| !value.is_empty())
    }

    /// Where clients of a view connect.
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

    /// The view that the query names.
    ///
    /// # Errors
    ///
    /// Says that there is no such view.
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
    /// The pieces that change by themselves, by their ids.
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

    /// A piece that stays as it is.
    pub(super) fn fixed(mut self, piece: Markup) -> Self {
        self.body.0.push_str(&piece.0);
        self
    }

    /// A piece that takes time, for a page that is shown whole.
    pub(super) async fn once(self, view: &View<'_>, piece: impl Future<Output = Markup>) -> Self {
        match view.is_update {
            true => self,
            false => self.fixed(piece.await),
        }
    }

    /// A piece that changes by itself. Its id is unique within the page.
    pub(super) fn live(mut self, id: &str, piece: Markup) -> Self {
        self.body.0.push_str(&html! { div id=(id) { (piece) } }.0);
        let piece = Piece::Whole(piece.into_string());
        self.live.push((id.to_owned(), piece));
        self
    }

    /// A piece that is a list, whose rows change one by one. `around` puts an element around the rows
    /// that has the attribute `data-rows` and the id of the piece with `-rows` at its end.
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

/// The outcome of a form.
pub(super) enum FormOutcome {
    /// Done, with a message for the page that comes next.
    Done { to: String, message: String },
    /// A page instead: a question, an answer, or what is wrong with the form.
    Page(StatusCode, Page),
}
