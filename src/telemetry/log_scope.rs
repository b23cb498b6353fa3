//! Tracks which request a thread is working on, so that its log records carry the span's ids.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local!(static CURRENT: Cell<Option<SpanNumbers>> = const { Cell::new(None) });

/// A span's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanNumbers {
    pub trace: u128,
    pub span: u64,
}

/// While it exists, the records of this thread belong to a request.
#[derive(Debug)]
pub struct LogScope {
    before: Option<SpanNumbers>,
    /// Must be dropped on the same thread.
    _not_send: PhantomData<*const ()>,
}

impl LogScope {
    /// The scope of the request with this span; `None` for a request that is not traced.
    #[must_use]
    pub fn of(span: Option<SpanNumbers>) -> Option<Self> {
        let span = span?;
        Some(Self {
            before: CURRENT.replace(Some(span)),
            _not_send: PhantomData,
        })
    }
}

impl Drop for LogScope {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// The names and values of fields that a record gets at this moment.
pub(super) fn span_fields() -> Option<[(&'static str, String); 2]> {
    // A thread that is ending has no current request.
    let span = CURRENT.try_with(Cell::get).ok().flatten()?;
    Some([
        ("trace_id", format!("{:032x}", span.trace)),
        ("span_id", format!("{:016x}", span.span)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_belong_to_the_innermost_request() {
        let of = |trace| LogScope::of(Some(SpanNumbers { trace, span: 0xb }));
        let trace = || span_fields().map(|[(_, trace), _]| trace);
        assert_eq!(trace(), None);
        let outer = of(1);
        let inner = of(2);
        assert!(trace().is_some_and(|it| it.ends_with("02") && it.len() == 32));
        assert!(LogScope::of(None).is_none());
        drop(inner);
        let [_, span] = span_fields().unwrap();
        assert_eq!(span, ("span_id", "000000000000000b".to_owned()));
        drop(outer);
        assert_eq!(trace(), None);
    }
}
