//! Translates a server's answer for its client: replaces native names and URIs by public ones, and
//! converts results and errors to the client's revision.

use crate::bridge::error::{ErrorContext, TranslatedError, from_server};
use crate::bridge::projection::{Revisions, project_result};
use crate::bridge::result::limited_completion;
use crate::catalog::Snapshot;
use crate::id::ServerName;
use crate::protocol::{Method, RawJson, Revision};

/// Translates the response of a server into the client's revision.
#[derive(Clone, Copy)]
pub(crate) struct ResponseTranslator<'a> {
    pub(crate) catalog: &'a Snapshot,
    pub(crate) server: &'a ServerName,
    pub(crate) method: &'a Method,
    /// The public name or URI that was requested.
    pub(crate) item: Option<&'a str>,
    /// The revision of the connection that answered; `None` if it equals the revision of the
    /// server's lists.
    pub(crate) from: Option<Revision>,
    /// The revision of the client.
    pub(crate) to: Revision,
}

impl ResponseTranslator<'_> {
    /// Translates a result; `None` if it needs no change.
    pub(crate) fn result(self, result: &RawJson) -> Option<RawJson> {
        let public = self
            .catalog
            .rewrite_result(self.server, self.method, result);
        let public = match self.method {
            Method::CompletionComplete => limited_completion(result),
            _ => public,
        };
        let revisions = self.revisions();
        let wrapped = self.is_wrapped();
        let result = public.as_ref().unwrap_or(result);
        project_result(self.method, result, revisions, wrapped).or(public)
    }

    /// Translates an error; `None` if it needs no change.
    pub(crate) fn error(self, error: &RawJson) -> Option<TranslatedError> {
        let public = self.catalog.rewrite_error(self.server, error);
        let context = ErrorContext {
            method: self.method,
            uri: self.item.filter(|_| *self.method == Method::ResourcesRead),
            server: self.server.as_str(),
        };
        let error = public.as_ref().unwrap_or(error);
        from_server(error, context, self.revisions()).or(public.map(TranslatedError::Error))
    }

    /// Returns whether the output schema shown to the client nests the content inside `result`.
    fn is_wrapped(self) -> bool {
        let name = self.item.filter(|_| *self.method == Method::ToolsCall);
        let tool = name.and_then(|name| self.catalog.tool(name));
        tool.is_some_and(|tool| tool.wraps_output)
    }

    /// Returns the revisions of the server and the client.
    fn revisions(self) -> Revisions {
        let of_lists = || Some(self.catalog.part(self.server)?.revision);
        Revisions {
            from: self.from.or_else(of_lists).unwrap_or(self.to),
            to: self.to,
        }
    }
}
