use super::*;
use crate::value::from_json;

fn parsed(json: &str) -> Result<Option<Ladder>, RuleError> {
    Ladder::parse_or_off(&from_json(json))
}

#[test]
fn a_document_is_read_and_written() {
    let text =
        r#"{"fields": ["temp", "wind"], "rungs": [{"step": 600, "expireAfterSeconds": 7776000}, {"step": 86400.0}]}"#;
    let ladder = parsed(text).unwrap().unwrap();
    assert_eq!(ladder.rungs[0], Rung { step_seconds: 600, expire_after_seconds: Some(7_776_000) });
    assert_eq!(ladder.rungs[1], Rung { step_seconds: 86_400, expire_after_seconds: None });
    assert!(ladder.has_field("temp") && !ladder.has_field("humidity"));
    assert_eq!(Ladder::parse_or_off(&ladder.document()).unwrap().unwrap(), ladder);
    assert_eq!(parsed(r#""off""#).unwrap(), None);
    let all = Ladder::new(vec![Rung { step_seconds: 1, expire_after_seconds: None }]);
    assert!(all.has_field("anything"));
    assert_eq!(Ladder::parse_or_off(&all.document()).unwrap().unwrap(), all);
}

#[test]
fn what_is_wrong_is_named() {
    let cases: [(&str, Code, &str); 16] = [
        ("1", Code::TypeMismatch, "ladder must be"),
        (r#""on""#, Code::InvalidOptions, "'on'"),
        ("{}", Code::InvalidOptions, "lacks rungs"),
        (r#"{"rungs": []}"#, Code::InvalidOptions, "at least one rung"),
        (r#"{"rungs": {}}"#, Code::TypeMismatch, "ladder.rungs must be a list"),
        (r#"{"rungs": [{}]}"#, Code::InvalidOptions, "rung 1 lacks step"),
        (r#"{"rungs": [{"step": "x"}]}"#, Code::TypeMismatch, "step of rung 1"),
        (r#"{"rungs": [{"step": 0}]}"#, Code::InvalidOptions, "rung 1 (0 s)"),
        (r#"{"rungs": [{"step": 31536001}]}"#, Code::InvalidOptions, "rung 1 (31536001 s)"),
        (r#"{"rungs": [{"step": 1.5}]}"#, Code::InvalidOptions, "whole number"),
        (
            r#"{"rungs": [{"step": 60}, {"step": 90}]}"#,
            Code::InvalidOptions,
            "rung 2 (90 s): its step must be a multiple",
        ),
        (r#"{"rungs": [{"step": 60}, {"step": 60}]}"#, Code::InvalidOptions, "rung 2 (60 s)"),
        (
            r#"{"rungs": [{"step": 60, "expireAfterSeconds": 9}, {"step": 120, "expireAfterSeconds": 8}]}"#,
            Code::InvalidOptions,
            "rung 2 (120 s): it must be kept at least as long",
        ),
        (r#"{"rungs": [{"step": 60, "expireAfterSeconds": -1}]}"#, Code::InvalidOptions, "0 to 2147483587"),
        (r#"{"rungs": [{"step": 60}], "fields": ["a", "a"]}"#, Code::InvalidOptions, "'a' twice"),
        (r#"{"rungs": [{"step": 60, "life": 1}]}"#, Code::IDLUnknownField, "rung 1 has no option 'life'"),
    ];
    for (json, code, says) in cases {
        let error = parsed(json).expect_err(json);
        assert_eq!(error.code, code, "{json}: {error}");
        assert!(error.message.contains(says), "{json}: {error}");
    }
    // A finer rung that is kept for ever allows no shorter life after it.
    assert!(parsed(r#"{"rungs": [{"step": 60}, {"step": 120, "expireAfterSeconds": 5}]}"#).is_err());
}
