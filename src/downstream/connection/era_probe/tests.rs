use super::*;

const TIMEOUTS: StepTimeouts = StepTimeouts {
    start: Duration::from_secs(120),
    probe: Duration::from_secs(5),
    answer: Duration::from_secs(30),
    sign_in: Duration::from_secs(600),
};

fn begun(known: KnownEra, start: Instant) -> EraProbe {
    let mut era_probe = EraProbe::new(known, Era::Modern, TIMEOUTS, start);
    era_probe.on_sent(era_probe.first(), start);
    era_probe
}

#[test]
fn each_step_has_a_clock_of_its_own() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut era_probe = begun(KnownEra::Unknown, start);
    assert_eq!(era_probe.deadline(true), at(120));
    era_probe.on_heard(at(100));
    assert_eq!(era_probe.deadline(true), at(105));
    assert_eq!(era_probe.on_time(true, at(104)), Step::Wait);
    assert_eq!(era_probe.on_time(true, at(105)), Step::Send(Era::Legacy));
    era_probe.on_sent(Era::Legacy, at(105));
    assert_eq!(era_probe.deadline(true), at(135));
    era_probe.on_sign_in(at(110));
    assert_eq!(era_probe.deadline(true), at(710));
    assert!(matches!(era_probe.on_time(true, at(710)), Step::Fail(_)));
}

#[test]
fn a_program_is_asked_for_a_handshake_first() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let begun = || {
        let mut probe = EraProbe::new(KnownEra::Unknown, Era::Legacy, TIMEOUTS, start);
        assert_eq!(probe.first(), Era::Legacy);
        probe.on_sent(Era::Legacy, start);
        probe
    };
    let odd = LinkError::Protocol("odd".into());
    assert_eq!(
        begun().on_failed(Era::Legacy, &odd, start),
        Step::Send(Era::Modern)
    );
    let mut silent = begun();
    silent.on_heard(start);
    assert_eq!(silent.on_time(true, at(5)), Step::Send(Era::Modern));
    assert!(silent.ended_over_handshake(Some(true)));
    assert!(!silent.ended_over_handshake(Some(false)));
    silent.on_sent(Era::Modern, at(5));
    assert!(silent.ended_when_asked(Some(true)) && !silent.ended_over_handshake(None));
    assert!(matches!(silent.on_time(true, at(35)), Step::Fail(_)));
}

#[test]
fn deadlines_run_from_the_start_if_the_transport_cannot_tell_what_was_read() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut era_probe = begun(KnownEra::Unknown, start);
    assert_eq!(era_probe.on_time(false, at(5)), Step::Send(Era::Legacy));
    era_probe.on_sent(Era::Legacy, at(5));
    assert_eq!(era_probe.deadline(false), at(120));
    era_probe.on_heard(at(50));
    assert_eq!(era_probe.deadline(false), at(80));
}

#[test]
fn a_process_ended_over_the_question_if_it_read_it_and_answered_nothing() {
    let start = Instant::now();
    let lost = LinkError::Lost("gone".to_owned());
    let unknown = begun(KnownEra::Unknown, start);
    assert!(unknown.ended_when_asked(Some(true)) && unknown.ended_when_asked(None));
    assert!(!unknown.ended_when_asked(Some(false)));
    let mut answered = begun(KnownEra::Unknown, start);
    answered.on_failed(Era::Modern, &lost, start);
    assert!(!answered.ended_when_asked(Some(true)));
    for known in [
        KnownEra::Remembered(Era::Modern),
        KnownEra::Configured(Era::Modern),
    ] {
        assert!(!begun(known, start).ended_when_asked(Some(true)));
    }
}

#[test]
fn one_reason_for_both_eras_is_given_once_and_without_advice() {
    let (now, down) = (Instant::now(), LinkError::Protocol("status 500".into()));
    for (other, expected) in [
        (
            "status 500",
            "`initialize`: answer breaks the protocol: status 500",
        ),
        (
            "status 501",
            "`server/discover`: answer breaks the protocol: status 500; `initialize`: answer breaks the protocol: status 501",
        ),
    ] {
        let reason = |era, error: &LinkError| failure(era, error);
        let other = LinkError::Protocol(other.into());
        let mut era_probe = begun(KnownEra::Unknown, now);
        era_probe.on_refused(Era::Modern, reason(Era::Modern, &down));
        era_probe.on_sent(Era::Legacy, now);
        let step = era_probe.on_refused(Era::Legacy, reason(Era::Legacy, &other));
        let Step::Fail(why) = step else {
            panic!("{step:?}");
        };
        assert_eq!(why.to_string(), expected);
    }
}

#[test]
fn only_an_era_that_is_not_configured_is_left_for_the_other() {
    let start = Instant::now();
    let odd = LinkError::Protocol("odd".into());
    let asked = |known, era| begun(known, start).on_failed(era, &odd, start);
    let remembered = asked(KnownEra::Remembered(Era::Legacy), Era::Legacy);
    assert_eq!(remembered, Step::Send(Era::Modern));
    assert_eq!(
        asked(KnownEra::Unknown, Era::Modern),
        Step::Send(Era::Legacy)
    );
    let configured = asked(KnownEra::Configured(Era::Modern), Era::Modern);
    assert!(matches!(configured, Step::Fail(_)));
}
