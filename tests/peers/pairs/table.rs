//! Which steps cannot be, for which pairs, and why. All others must go as they should. A step that
//! stands here is done nevertheless, and must fail: a row that is not true any more is found.

use mcpvisor::protocol::Revision;

use crate::pairs::pair::{Back, Front, Pair};

/// One exception.
pub(crate) struct Row {
    /// The step, or `*`: then the pair is not tried at all.
    pub(crate) step: &'static str,
    pub(crate) holds: fn(Pair) -> bool,
    pub(crate) why: &'static str,
}

pub(crate) const MODERN: Revision = Revision::V2026_07_28;

/// Steps that cannot succeed, by the nature of the revisions.
const NATURE: &[Row] = &[
    Row {
        step: "*",
        holds: |pair| pair.client >= MODERN && pair.front == Front::Sse,
        why: "2026-07-28 is not spoken over HTTP+SSE",
    },
    Row {
        step: "*",
        holds: |pair| pair.server >= MODERN && pair.back == Back::Sse,
        why: "2026-07-28 is not spoken over HTTP+SSE",
    },
    Row {
        step: "ping",
        holds: |pair| pair.client >= MODERN,
        why: "2026-07-28 has no ping",
    },
    Row {
        step: "audio",
        holds: |pair| pair.server < Revision::V2025_03_26,
        why: "a server of 2024-11-05 has no audio",
    },
    Row {
        step: "link",
        holds: |pair| pair.server < Revision::V2025_06_18,
        why: "links came with 2025-06-18",
    },
    Row {
        step: "structured",
        holds: |pair| pair.server < Revision::V2025_06_18,
        why: "structured content came with 2025-06-18",
    },
    Row {
        step: "array",
        holds: |pair| pair.server < MODERN,
        why: "structured content was an object before 2026-07-28",
    },
    Row {
        step: "elicit",
        holds: |pair| pair.client.min(pair.server) < Revision::V2025_06_18,
        why: "elicitation came with 2025-06-18: such a client is not asked, such a server does not ask",
    },
    Row {
        step: "elicit_twice",
        holds: |pair| pair.client.min(pair.server) < Revision::V2025_06_18,
        why: "elicitation came with 2025-06-18",
    },
    Row {
        step: "decline",
        holds: |pair| pair.client.min(pair.server) < Revision::V2025_06_18,
        why: "elicitation came with 2025-06-18",
    },
    Row {
        step: "open_page",
        holds: |pair| pair.client.min(pair.server) < Revision::V2025_11_25,
        why: "elicitation by a page came with 2025-11-25",
    },
    Row {
        step: "page_first",
        holds: |pair| pair.server != Revision::V2025_11_25,
        why: "only 2025-11-25 refuses a call until a page was opened",
    },
    Row {
        step: "complete_with_context",
        holds: |pair| pair.client.min(pair.server) < Revision::V2025_06_18,
        why: "the context of a completion came with 2025-06-18",
    },
    Row {
        step: "roots_changed",
        holds: |pair| pair.client >= MODERN || pair.server >= MODERN,
        why: "2026-07-28 asks for roots in each call and has no notification of their change",
    },
];

/// Steps that the gateway does not support yet.
const MISSING: &[Row] = &[];

/// The expected outcome of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Works,
    /// It cannot be, and what is sent nevertheless is valid.
    Cannot(&'static str),
    /// It does not work, or what is sent is not valid.
    Missing(&'static str),
}

pub(crate) fn expected(step: &str, pair: Pair) -> Expect {
    let why = |rows: &[Row]| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.step == step && (row.holds)(pair));
        row.map(|row| row.why)
    };
    match (why(NATURE), why(MISSING)) {
        (Some(why), _) => Expect::Cannot(why),
        (None, Some(why)) => Expect::Missing(why),
        (None, None) => Expect::Works,
    }
}
