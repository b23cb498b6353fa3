//! The steps of a browser through a login at a server.

/// One step. `state` names the login; `cookie` is the cookie of that login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginVisit {
    /// The page that says for whom the login is.
    Opened { state: String },
    /// A person continues from there.
    Continued { state: String, cookie: String },
    /// The authorization server sent the browser back with this query.
    Returned {
        query: String,
        cookie: Option<String>,
    },
    /// The same query, which an operator pastes on the command line.
    Pasted { query: String },
    /// A person revokes the token of a login, whose last page holds this word.
    TakenBack { word: String },
}
