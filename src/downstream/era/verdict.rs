//! The era that a server's first answer proves (C-LIFE-09, C-LIFE-10, C-LIFE-11).

use serde::Deserialize;

use crate::downstream::refusal;
use crate::protocol::{Era, Outcome, RawJson, Revision, code};
use crate::transport::LinkError;

/// The conclusion from the answer to `server/discover`, or from its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EraVerdict {
    Modern,
    /// The server does not know the method.
    Legacy,
    /// Either the server does not know the method or it is overloaded; a handshake decides.
    Unknown,
    /// The server cannot be asked now, because of an outage or missing authorization.
    Unreachable,
}

/// Verdict on an answer.
pub(crate) fn of_answer(outcome: &Outcome) -> EraVerdict {
    match outcome {
        Outcome::Result(result) => of_result(result),
        Outcome::Error(error) => of_error(error),
    }
}

/// Verdict on a request that failed in transport.
pub(crate) fn of_failure(error: &LinkError) -> EraVerdict {
    match error {
        LinkError::Status { status, .. } => match status {
            401 | 403 => EraVerdict::Unreachable,
            status if refusal::holds_for_now(*status) => EraVerdict::Unreachable,
            425 | 500.. => EraVerdict::Unknown,
            _ => EraVerdict::Legacy,
        },
        LinkError::NotSent(_) => EraVerdict::Unreachable,
        LinkError::Lost(_) => EraVerdict::Unknown,
        LinkError::NoRoom(_) => EraVerdict::Unknown,
        LinkError::TooLarge { .. } | LinkError::Protocol(_) => EraVerdict::Legacy,
    }
}

/// Whether a server that answered `server/discover` also has a handshake.
pub(crate) fn speaks_both(outcome: &Outcome) -> bool {
    let Outcome::Result(result) = outcome else {
        return false;
    };
    let versions = result.parse::<DiscoveredVersions>();
    let versions = versions.map_or_else(|_| Vec::new(), |it| it.supported_versions);
    let known = versions.iter().filter_map(|it| it.parse::<Revision>().ok());
    known
        .into_iter()
        .any(|revision| revision.era() == Era::Legacy)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredVersions {
    supported_versions: Vec<String>,
}

fn of_result(result: &RawJson) -> EraVerdict {
    match result.parse::<DiscoveredVersions>() {
        Ok(discovered) => of_versions(&discovered.supported_versions),
        // The server answers any request in some way.
        Err(_) => EraVerdict::Legacy,
    }
}

fn of_error(error: &RawJson) -> EraVerdict {
    #[derive(Deserialize)]
    struct UnsupportedVersionError {
        code: i64,
        #[serde(default)]
        data: Option<UnsupportedVersionData>,
    }
    #[derive(Deserialize)]
    struct UnsupportedVersionData {
        #[serde(default)]
        supported: Vec<String>,
    }
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    let found = error.parse::<CodeOnly>().map(|error| error.code);
    match found {
        Ok(code::HEADER_MISMATCH | code::MISSING_CAPABILITY) => EraVerdict::Modern,
        Ok(code::UNSUPPORTED_VERSION) => {
            let data = error
                .parse::<UnsupportedVersionError>()
                .ok()
                .filter(|it| it.code < 0);
            let supported = data.and_then(|error| error.data).map(|data| data.supported);
            of_versions(&supported.unwrap_or_default())
        }
        _ => EraVerdict::Legacy,
    }
}

/// A server that names versions is modern, unless all versions known to both sides are legacy.
fn of_versions(versions: &[String]) -> EraVerdict {
    let mut known = versions.iter().filter_map(|it| it.parse::<Revision>().ok());
    let mut known_at_all = false;
    let modern = known.any(|revision| {
        known_at_all = true;
        revision.era() == Era::Modern
    });
    if modern || !known_at_all {
        EraVerdict::Modern
    } else {
        EraVerdict::Legacy
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::try_new(Bytes::from(text.to_owned())).unwrap()
    }

    #[test]
    fn c_life_09_everything_but_a_modern_answer_is_the_older_era() {
        let result = |text: &str| Outcome::Result(raw(text));
        let error = |text: &str| Outcome::Error(raw(text));
        let table = [
            (result(r#"{"supportedVersions":["2026-07-28"]}"#), true),
            (
                result(r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#),
                true,
            ),
            (result(r#"{"supportedVersions":["2030-01-01"]}"#), true),
            (result(r#"{"supportedVersions":["2025-11-25"]}"#), false),
            (result("{}"), false),
            (error(r#"{"code":-32020,"message":"x"}"#), true),
            (error(r#"{"code":-32021,"message":"x","data":{}}"#), true),
            (error(r#"{"code":-32022,"message":"x"}"#), true),
            (
                error(r#"{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}"#),
                true,
            ),
            (
                error(r#"{"code":-32022,"message":"x","data":{"supported":["2025-11-25"]}}"#),
                false,
            ),
            (error(r#"{"code":-32601,"message":"x"}"#), false),
            (error(r#"{"code":-32602,"message":"x"}"#), false),
            (error(r#"{"code":"odd"}"#), false),
        ];
        for (outcome, modern) in table {
            let expected = if modern {
                EraVerdict::Modern
            } else {
                EraVerdict::Legacy
            };
            assert_eq!(of_answer(&outcome), expected, "{outcome:?}");
        }
    }

    #[test]
    fn an_outage_is_no_verdict() {
        let status = |status| LinkError::status(status, "");
        let table = [
            (status(404), EraVerdict::Legacy),
            (status(400), EraVerdict::Legacy),
            (status(405), EraVerdict::Legacy),
            (status(401), EraVerdict::Unreachable),
            (status(403), EraVerdict::Unreachable),
            (status(408), EraVerdict::Unreachable),
            (status(425), EraVerdict::Unknown),
            (status(429), EraVerdict::Unreachable),
            (status(500), EraVerdict::Unknown),
            (status(502), EraVerdict::Unreachable),
            (status(503), EraVerdict::Unreachable),
            (status(504), EraVerdict::Unreachable),
            (LinkError::Protocol("odd".into()), EraVerdict::Legacy),
            (LinkError::Lost("gone".to_owned()), EraVerdict::Unknown),
            (
                LinkError::NotSent("refused".into()),
                EraVerdict::Unreachable,
            ),
        ];
        for (error, expected) in table {
            assert_eq!(of_failure(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_server_of_both_eras_names_versions_of_both() {
        let table = [
            (r#"{"supportedVersions":["2026-07-28"]}"#, false),
            (r#"{"supportedVersions":["2026-07-28","2025-11-25"]}"#, true),
            ("{}", false),
        ];
        for (result, both) in table {
            assert_eq!(speaks_both(&Outcome::Result(raw(result))), both, "{result}");
        }
        assert!(!speaks_both(&Outcome::Error(raw("{}"))));
    }
}
