use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;

fn key(id: &str) -> SealingKey {
    let mut secret = [7; 32];
    secret[0] = id.len() as u8;
    secret[1] = id.as_bytes()[id.len() - 1];
    SealingKey::try_new(id, secret).unwrap()
}

fn raw(text: &str) -> RawJson {
    RawJson::try_new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn capabilities() -> Map<String, Value> {
    json!({ "elicitation": { "form": {} } })
        .as_object()
        .unwrap()
        .clone()
}

fn bind(target: &str, arguments: &str) -> StateBinding {
    let arguments = raw(arguments);
    StateBinding::new(
        Method::ToolsCall,
        "alice",
        target,
        Some(&arguments),
        &capabilities(),
    )
    .unwrap()
}

fn declaration(command: &str) -> Digest {
    Digest::of_declaration(&["stdio", command])
}

fn server() -> ServerName {
    ServerName::try_new("db").unwrap()
}

fn state(continuation: Continuation) -> RequestState {
    RequestState {
        binding: bind("db__drop", r#"{"table":"tmp"}"#),
        issued_at: NOW,
        expires_at: NOW + 600,
        server: server(),
        declaration: declaration("old"),
        round: 1,
        id: [9; 16],
        continuation,
    }
}

fn owned() -> RequestState {
    state(Continuation::Owned {
        owner: "r1".to_owned(),
        handle: "h".to_owned(),
    })
}

#[test]
fn how_a_call_continues_is_readable_without_its_request() {
    let sealer = Sealer::new(&key("k1"), None);
    let text = sealer.seal(&owned(), [1; 12]).unwrap();
    let continuation = sealer.continuation(&text, &Method::ToolsCall);
    assert_eq!(continuation, Ok(owned().continuation));
    let of_other_method = sealer.continuation(&text, &Method::PromptsGet);
    assert_eq!(of_other_method, Err(InvalidState));
    let other_key = Sealer::new(&key("k2"), None);
    assert_eq!(
        other_key.continuation(&text, &Method::ToolsCall),
        Err(InvalidState)
    );
}

fn open(
    sealer: &Sealer,
    text: &str,
    binding: &StateBinding,
    now: u64,
) -> Result<RequestState, RefusedState> {
    let server = server();
    let expected = ExpectedBinding {
        binding,
        server: &server,
        declaration: declaration("old"),
    };
    sealer.open(text, &expected, now)
}

#[test]
fn every_kind_of_state_survives_sealing() {
    let sealer = Sealer::new(&key("k2"), None);
    let tiers = [
        Continuation::Pass { state: None },
        Continuation::Pass {
            state: Some("D-opaque-7 \u{e9}\n".to_owned()),
        },
        Continuation::Reissue { pages: 2 },
        owned().continuation,
    ];
    for continuation in tiers {
        let state = state(continuation);
        let text = sealer.seal(&state, [1; 12]).unwrap();
        assert!(text.starts_with("v1.k2."), "{text}");
        assert!(!text.contains("opaque"), "{text}");
        assert_eq!(open(&sealer, &text, &state.binding, NOW + 599), Ok(state));
    }
}

#[test]
fn s_mrtr_08_a_state_is_refused_with_anything_it_was_not_made_for() {
    let sealer = Sealer::new(&key("k2"), None);
    let state = owned();
    let text = sealer.seal(&state, [1; 12]).unwrap();
    let of = |method, principal: &str, target: &str, arguments: &str, declared| {
        StateBinding::new(method, principal, target, Some(&raw(arguments)), declared).unwrap()
    };
    let (declared, none) = (capabilities(), Map::new());
    let (call, table) = (Method::ToolsCall, r#"{"table":"tmp"}"#);
    let refused = [
        (
            "method",
            of(Method::PromptsGet, "alice", "db__drop", table, &declared),
        ),
        (
            "principal",
            of(call.clone(), "bob", "db__drop", table, &declared),
        ),
        (
            "name",
            of(call.clone(), "alice", "db__list", table, &declared),
        ),
        (
            "arguments",
            of(
                call.clone(),
                "alice",
                "db__drop",
                r#"{"table":"t"}"#,
                &declared,
            ),
        ),
        ("capabilities", of(call, "alice", "db__drop", table, &none)),
    ];
    for (what, binding) in refused {
        assert_eq!(
            open(&sealer, &text, &binding, NOW),
            Err(RefusedState::Invalid(InvalidState)),
            "{what}"
        );
    }
    let (other, binding) = (ServerName::try_new("other").unwrap(), &state.binding);
    let opened = |text: &str, server: &ServerName, declaration| {
        let expected = ExpectedBinding {
            binding,
            server,
            declaration,
        };
        sealer.open(text, &expected, NOW)
    };
    let invalid = Err(RefusedState::Invalid(InvalidState));
    assert_eq!(opened(&text, &other, declaration("old")), invalid);
    // A parked call continues where it is; anything else would go to a different server.
    assert!(opened(&text, &server(), declaration("new")).is_ok());
    let passed = self::state(Continuation::Pass { state: None });
    let passed = sealer.seal(&passed, [2; 12]).unwrap();
    let replaced = opened(&passed, &server(), declaration("new"));
    assert_eq!(replaced, Err(RefusedState::Replaced));
    for now in [NOW + 600, u64::MAX, NOW - 61] {
        assert_eq!(
            open(&sealer, &text, &state.binding, now),
            Err(RefusedState::Invalid(InvalidState)),
            "{now}"
        );
    }
}

#[test]
fn equivalent_arguments_are_accepted_and_different_ones_refused() {
    let same = [
        r#"{"a":1,"b":[true,null,"é"]}"#,
        r#" { "b" : [ true, null, "\u00e9" ], "a" : 1.0 } "#,
    ];
    let digest = |text: &str| Digest::of_params("x", Some(&raw(text))).unwrap();
    assert!(digest(same[0]) == digest(same[1]));
    let different = [
        r#"{"a":2,"b":[true,null,"é"]}"#,
        r#"{"a":"1","b":[true,null,"é"]}"#,
        r#"{"a":1,"b":[null,true,"é"]}"#,
        r#"{"a":1}"#,
        r#"{"a":1,"b":[true,null,"é"],"c":null}"#,
    ];
    for text in different {
        assert!(digest(same[0]) != digest(text), "{text}");
    }
    let twice = raw(r#"{"o":{"a":1,"a":2}}"#);
    assert_eq!(
        Digest::of_params("x", Some(&twice)),
        Err(AmbiguousArguments)
    );
    assert!(Digest::of_params("x", None) != Digest::of_params("x", Some(&raw("{}"))));
    assert!(Digest::of_params("x1", None) != Digest::of_params("x", Some(&raw("1"))));
}

#[test]
fn two_key_generations_are_accepted_but_not_a_third() {
    let (first, second, third) = (key("k1"), key("k2"), key("k3"));
    let state = owned();
    let text = Sealer::new(&first, None).seal(&state, [1; 12]).unwrap();
    let rotated = Sealer::new(&second, Some(&first));
    assert!(open(&rotated, &text, &state.binding, NOW).is_ok());
    let gone = Sealer::new(&third, Some(&second));
    assert!(open(&gone, &text, &state.binding, NOW).is_err());
    let stolen_name = SealingKey::try_new("k1", [0; 32]).unwrap();
    assert!(open(&Sealer::new(&stolen_name, None), &text, &state.binding, NOW).is_err());
    for bad in ["", "a.b", "a_b", "12345678901234567"] {
        assert!(SealingKey::try_new(bad, [0; 32]).is_err(), "{bad}");
    }
    assert!(!format!("{rotated:?} {first:?}").contains('7'));
}

#[test]
fn oversized_states_and_too_many_rounds_are_not_sealed() {
    let sealer = Sealer::new(&key("k1"), None);
    let large = state(Continuation::Pass {
        state: Some("x".repeat(SEALED_MAX)),
    });
    assert_eq!(sealer.seal(&large, [1; 12]), Err(SealError::TooLarge));
    let mut often = owned();
    often.round = ROUNDS_MAX + 1;
    assert_eq!(sealer.seal(&often, [1; 12]), Err(SealError::Rounds));
}

#[test]
fn s_task_x_12_a_task_id_is_stable_and_bound_to_its_principal() {
    let sealer = Sealer::new(&key("k1"), None);
    let (alice, bob) = (Digest::of_principal("alice"), Digest::of_principal("bob"));
    let task = TaskRef {
        server: server(),
        declaration: declaration("old"),
        native: "t-9".to_owned(),
        session: Some("s-91".to_owned()),
        replica: None,
        lifetime: None,
    };
    let id = sealer.seal_task(&task, &alice).unwrap();
    assert!(id.starts_with("gt1.k1."), "{id}");
    assert_eq!(sealer.seal_task(&task, &alice).unwrap(), id);
    assert_ne!(sealer.seal_task(&task, &bob).unwrap(), id);
    let other = TaskRef {
        native: "t-8".to_owned(),
        ..task.clone()
    };
    assert_ne!(sealer.seal_task(&other, &alice).unwrap(), id);
    assert_eq!(sealer.open_task(&id, &alice), Ok(task));
    assert_eq!(sealer.open_task(&id, &bob), Err(InvalidState));
    let as_state = id.replacen("gt1", "v1", 1);
    assert!(open(&sealer, &as_state, &owned().binding, NOW).is_err());
    let state = sealer.seal(&owned(), [1; 12]).unwrap();
    assert!(
        sealer
            .open_task(&state.replacen("v1", "gt1", 1), &alice)
            .is_err()
    );
}

proptest! {
    #[test]
    fn s_mrtr_07_any_single_changed_byte_is_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let sealer = Sealer::new(&key("k1"), Some(&key("k2")));
        let state = owned();
        let text = sealer.seal(&state, [3; 12]).unwrap();
        let mut bytes = text.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let changed = String::from_utf8_lossy(&bytes);
        let opened = open(&sealer, &changed, &state.binding, NOW);
        prop_assert_eq!(opened.is_ok(), changed == text);
        let id = sealer.seal_task(&TaskRef { server: server(), declaration: declaration("old"), native: "t".into(), session: None, replica: None, lifetime: None },
            &state.binding.principal).unwrap();
        let mut bytes = id.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let changed = String::from_utf8_lossy(&bytes);
        prop_assert_eq!(sealer.open_task(&changed, &state.binding.principal).is_ok(), changed == id);
    }

    #[test]
    fn opening_any_text_never_panics(text in "\\PC{0,80}", sealed in "(v1|gt1)\\.k1\\.[A-Za-z0-9_-]{0,120}") {
        let sealer = Sealer::new(&key("k1"), None);
        let state = owned();
        for text in [text, sealed] {
            prop_assert!(open(&sealer, &text, &state.binding, NOW).is_err());
            prop_assert!(sealer.open_task(&text, &state.binding.principal).is_err());
        }
    }
}
