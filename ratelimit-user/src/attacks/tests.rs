use super::{AttackReport, AttackTarget};

/// A report of an attack that is over; none of its lists is empty.
pub(crate) fn report(number: u64) -> AttackReport {
    let mut report =
        AttackReport::new(number, AttackTarget::Service("dns".to_owned()), 1_000 * number, Some(5));
    report.note(1_000 * number, "blocked 203.0.113.7/32 for good");
    report.close("calm for 30 s");
    report
}

#[test]
fn a_report_as_json_can_be_read_again_and_its_target_stands_beside_its_number() {
    let text = serde_json::to_string(&report(7)).unwrap();
    assert!(
        text.starts_with(
            r#"{"number":7,"target":"service","name":"dns","kind":"many_sources","begin":"1970-"#
        ),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<AttackReport>(&text).unwrap(), report(7));
    let host = AttackReport::new(8, AttackTarget::Host, 1, None);
    assert_eq!(serde_json::from_str::<AttackReport>(&serde_json::to_string(&host).unwrap()).unwrap(), host);
}
