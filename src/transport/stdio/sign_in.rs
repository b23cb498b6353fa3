//! Detects the page on which a server asks its user to sign in, from lines on stderr.

use url::Url;

/// Longest line that is examined, in bytes; real sign-in requests are shorter.
const LINE_MAX: usize = 8 * 1024;

/// Maximum requests per process; more are ignored.
const REQUESTS_MAX: usize = 3;

/// Word sequences that ask for a sign-in.
const REQUESTS: [&[&str]; 5] = [
    &["authorize"],
    &["authenticate"],
    &["sign", "in"],
    &["log", "in"],
    &["login"],
];

/// Words that mark a line as a report rather than a request.
const REPORTS: [&str; 4] = ["error", "failed", "deprecated", "warn"];

/// Examines the lines of a server's stderr in order.
#[derive(Debug, Default)]
pub(super) struct SignInWatch {
    /// The previous line that was not empty.
    before: String,
    requests: usize,
}

impl SignInWatch {
    /// The page at which this line, together with the previous one, asks a person to sign in.
    pub(super) fn request(&mut self, line: &str) -> Option<Url> {
        let line = line.trim();
        if line.is_empty() || line.len() > LINE_MAX || self.requests >= REQUESTS_MAX {
            return None;
        }
        let found = page(&self.before, line);
        line.clone_into(&mut self.before);
        self.requests += usize::from(found.is_some());
        found
    }
}

fn page(before: &str, line: &str) -> Option<Url> {
    let start = line.find("https://").or_else(|| line.find("http://"))?;
    let (words, rest) = line.split_at_checked(start)?;
    let ends = |it: char| it.is_whitespace() || it.is_control() || "\"'<>`".contains(it);
    let length = rest.find(ends).unwrap_or(rest.len());
    let (address, after) = rest.split_at_checked(length)?;
    let asks = asks(&format!("{words} {after}")) || asks(before);
    let address = address.trim_end_matches(['.', ',', ';', ':', ')', ']']);
    Url::parse(address).ok().filter(|_| asks)
}

/// Whether a text asks a person to sign in.
fn asks(text: &str) -> bool {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|it: char| !it.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let place = |wanted: &str| words.iter().position(|word| *word == wanted);
    let has = |request: &&[&str]| words.windows(request.len()).any(|words| words == *request);
    let opens_browser = place("open").is_some_and(|open| place("browser") > Some(open));
    let reports = REPORTS.iter().any(|word| place(word).is_some());
    !reports && (opens_browser || REQUESTS.iter().any(has))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Option<String> {
        let mut watch = SignInWatch::default();
        let found = lines.iter().filter_map(|line| watch.request(line)).next();
        found.map(|url| url.to_string())
    }

    #[test]
    fn a_page_is_recognised_only_with_words_that_ask_for_a_sign_in() {
        let page = "https://auth.example/authorize?client_id=a&state=b";
        let after = format!("Open this page in your browser: {page}.");
        let quoted = format!("To sign in, use <{page}> and enter ABCD");
        let asking: [&[&str]; 5] = [
            &["[71] ", "Please authorize this client by visiting:", page],
            &["Log in here:", "", page],
            &[&after],
            &[&quoted],
            &["visit the page below to LOGIN", page],
        ];
        for lines in asking {
            assert_eq!(found(lines).as_deref(), Some(page), "{lines:?}");
        }
        let silent: [&[&str]; 8] = [
            &["[71] Connecting to remote server: https://mcp.example/sse"],
            &["Listening on http://localhost:3000/authorize"],
            &["see the catalog in https://docs.example/"],
            &["Please authorize this client", "one line between", page],
            &["failed to authorize, see https://docs.example/"],
            &["npm warn deprecated login: see https://npm.example/"],
            &["Authorization server: https://auth.example/"],
            &["sign in at https://"],
        ];
        for lines in silent {
            assert_eq!(found(lines), None, "{lines:?}");
        }
    }

    #[test]
    fn a_server_asks_a_few_times_at_most() {
        let mut watch = SignInWatch::default();
        let asked = (0..10).filter_map(|_| watch.request("sign in at https://auth.example/"));
        assert_eq!(asked.count(), REQUESTS_MAX);
    }
}
