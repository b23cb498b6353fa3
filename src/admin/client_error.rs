//! Errors of requests to the running gateway.

use std::error::Error;
use std::path::PathBuf;

use super::messages::VERSION;

/// Why a request to the running gateway failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no gateway runs with the data directory `{0}`: start it with `mcpvisor serve`")]
    NotRunning(PathBuf),
    #[error("the gateway did not answer: {0}")]
    Unanswered(String),
    #[error(
        "the gateway is mcpvisor {0} and this command is mcpvisor {VERSION}: restart the gateway, or \
         use the command of its version"
    )]
    OtherVersion(String),
    #[error("could not parse the gateway's answer; it may be another version ({0})")]
    Answer(String),
    #[error("{0}")]
    Refused(String),
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        // The innermost error is the most specific.
        let mut cause: &dyn Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let cause = cause.to_string();
        match error.is_timeout() || error.is_connect() {
            true => Self::Unanswered(cause),
            false => Self::Answer(cause),
        }
    }
}
