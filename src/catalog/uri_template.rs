//! Matches URIs against a URI template (RFC 6570), as far as needed to find a resource's owner.

/// The characters that an expression may expand to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpressionKind {
    /// `{x}`, `{.x}`: one path segment.
    Part,
    /// `{/x}`, `{;x}`: a path.
    Path,
    /// `{+x}`, `{#x}`, `{?x}`, `{&x}`: anything.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateToken {
    Literal(Box<[u8]>),
    Expression(ExpressionKind),
}

/// A parsed URI template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UriTemplate {
    tokens: Vec<TemplateToken>,
}

impl UriTemplate {
    /// Parses a template; `None` if a brace is not closed or an expression names no variable.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            push_literal(&mut tokens, literal)?;
            let class = expression_kind(expression)?;
            if tokens.last() != Some(&TemplateToken::Expression(class)) {
                tokens.push(TemplateToken::Expression(class));
            }
            rest = after;
        }
        push_literal(&mut tokens, rest)?;
        Some(Self { tokens })
    }

    /// Whether the template can expand to `uri`. The work is at most the length of the URI times
    /// the number of tokens; it is deducted from `steps`, and nothing matches once they are used
    /// up.
    pub(super) fn matches(&self, uri: &str, steps: &mut usize) -> bool {
        let uri = uri.as_bytes();
        let mut reached = vec![false; uri.len() + 1];
        reached[0] = true;
        for token in &self.tokens {
            let Some(left) = steps.checked_sub(uri.len() + 1) else {
                *steps = 0;
                return false;
            };
            *steps = left;
            reached = match token {
                TemplateToken::Literal(literal) => after_literal(&reached, literal, uri),
                TemplateToken::Expression(class) => after_expression(&reached, *class, uri),
            };
            if !reached.contains(&true) {
                return false;
            }
        }
        reached.last() == Some(&true)
    }

    /// A key that is equal for templates that differ only in variable names.
    pub(super) fn shape(&self) -> Vec<u8> {
        let mut shape = Vec::new();
        for token in &self.tokens {
            match token {
                TemplateToken::Literal(literal) => shape.extend_from_slice(literal),
                TemplateToken::Expression(ExpressionKind::Part) => shape.extend_from_slice(b"{}"),
                TemplateToken::Expression(ExpressionKind::Path) => shape.extend_from_slice(b"{/}"),
                TemplateToken::Expression(ExpressionKind::All) => shape.extend_from_slice(b"{+}"),
            }
        }
        shape
    }
}

fn push_literal(tokens: &mut Vec<TemplateToken>, literal: &str) -> Option<()> {
    if literal.contains('}') {
        return None;
    }
    if !literal.is_empty() {
        tokens.push(TemplateToken::Literal(literal.as_bytes().into()));
    }
    Some(())
}

fn expression_kind(expression: &str) -> Option<ExpressionKind> {
    let (class, variables) = match expression.as_bytes().first()? {
        b'+' | b'#' | b'?' | b'&' => (ExpressionKind::All, expression.get(1..)?),
        b'/' | b';' => (ExpressionKind::Path, expression.get(1..)?),
        b'.' => (ExpressionKind::Part, expression.get(1..)?),
        _ => (ExpressionKind::Part, expression),
    };
    let legal = |c: char| c.is_alphanumeric() || "_.-,:*%".contains(c);
    (!variables.is_empty() && variables.chars().all(legal)).then_some(class)
}

fn after_literal(reached: &[bool], literal: &[u8], uri: &[u8]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for (start, _) in reached.iter().enumerate().filter(|(_, reached)| **reached) {
        if uri
            .get(start..)
            .is_some_and(|rest| rest.starts_with(literal))
        {
            next[start + literal.len()] = true;
        }
    }
    next
}

fn after_expression(reached: &[bool], class: ExpressionKind, uri: &[u8]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    let mut running = false;
    for (position, reached) in reached.iter().enumerate() {
        running |= reached;
        next[position] = running;
        let stops = match uri.get(position) {
            Some(b'/') => class == ExpressionKind::Part,
            Some(b'?' | b'#') => class != ExpressionKind::All,
            _ => false,
        };
        running &= !stops;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_matches_what_it_can_expand_to() {
        for (template, uri, expected) in [
            ("file:///{path}", "file:///a.txt", true),
            ("file:///{path}", "file:///a/b.txt", false),
            ("file:///{+path}", "file:///a/b.txt", true),
            ("db://{table}/rows/{id}", "db://t/rows/7", true),
            ("db://{table}/rows/{id}", "db://t/rows/7/x", false),
            ("x://{a}-{b}.txt", "x://1-2-3.txt", true),
            ("x://{+a}/x/{b}", "x://p/x/q/x/r", true),
            ("x://{a}{b}", "x://ab", true),
            ("x://a{/path}", "x://a/b/c", true),
            ("x://a{?q,r}", "x://a?q=1&r=2", true),
            ("x://a{?q}", "x://a", true),
            ("x://a", "x://a", true),
            ("x://a", "x://ab", false),
            ("x://{a}b", "x://aa", false),
            ("x://ü{a}", "x://üö", true),
        ] {
            let parsed = UriTemplate::parse(template).unwrap();
            let mut steps = 10_000;
            assert_eq!(
                parsed.matches(uri, &mut steps),
                expected,
                "{template} {uri}"
            );
        }
    }

    #[test]
    fn malformed_templates_are_refused() {
        for template in [
            "x://{",
            "x://}",
            "x://{}",
            "x://{+}",
            "x://{a{b}}",
            "x://{a b}",
        ] {
            assert_eq!(UriTemplate::parse(template), None, "{template}");
        }
    }

    #[test]
    fn the_work_is_bounded() {
        let hostile = UriTemplate::parse(&"{a}b".repeat(500)).unwrap();
        let mut steps = 10_000;
        assert!(!hostile.matches(&"b".repeat(4000), &mut steps));
        assert_eq!(steps, 0);
    }

    #[test]
    fn variable_names_do_not_affect_the_shape() {
        let shape = |text: &str| UriTemplate::parse(text).unwrap().shape();
        assert_eq!(shape("file:///{a}"), shape("file:///{b}"));
        assert_ne!(shape("file:///{a}"), shape("file:///{+a}"));
    }
}
