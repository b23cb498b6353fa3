//! Colours for terminals.

/// The style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Dim,
    Good,
    Warning,
    Bad,
    Name,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Name => "36",
        }
    }
}

/// Writes texts in colour, or unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    is_coloured: bool,
}

impl Paint {
    /// Enables colours on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    pub fn new(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
        Self {
            is_coloured: is_terminal && !refused && !is_dumb,
        }
    }

    /// Like [`Paint::new`], with the variables of this process.
    pub fn of_process(is_terminal: bool) -> Self {
        Self::new(is_terminal, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    pub fn apply(self, style: Style, text: &str) -> String {
        if self.is_coloured && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_that_supports_them() {
        type Row<'a> = (bool, &'a [(&'a str, &'a str)], bool);
        let table: [Row<'_>; 7] = [
            (true, &[], true),
            (true, &[("TERM", "xterm-256color")], true),
            (true, &[("NO_COLOR", "")], true),
            (true, &[("NO_COLOR", "1")], false),
            (true, &[("TERM", "dumb")], false),
            (false, &[], false),
            (false, &[("TERM", "xterm")], false),
        ];
        for (is_terminal, variables, expected) in table {
            let variable = |name: &str| {
                let mut found = variables.iter().filter(|(known, _)| *known == name);
                found.next().map(|(_, value)| (*value).to_owned())
            };
            let shown = Paint::new(is_terminal, variable).apply(Style::Bad, "x");
            let wanted = if expected { "\x1b[31mx\x1b[0m" } else { "x" };
            assert_eq!(shown, wanted, "{is_terminal} {variables:?}");
        }
    }
}
