use super::*;
use ebbtide_buckets::Measurement;
use ebbtide_ttl::{Timestamp, Value};

fn point(line: &str) -> Point<'_> {
    parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}")).unwrap()
}

#[test]
fn every_kind_of_value_and_escape_is_read() {
    let read = point(r#"my\ air\,x,host\ a=b\=c,r=eu f=1.5,i=-2i,u=7u,b=t,s="a \"b\" \\ c, d = e",n\=x=-1e3 -5"#);
    assert_eq!(read.measurement, "my air,x");
    let tag = |n: &'static str, v: &'static str| (Cow::from(n), Cow::from(v));
    assert_eq!(read.tags, [tag("host a", "b=c"), tag("r", "eu")]);
    let expected = [
        ("f", Value::Double(1.5)),
        ("i", Value::Int(-2)),
        ("u", Value::Int(7)),
        ("b", Value::Bool(true)),
        ("s", Value::String(r#"a "b" \ c, d = e"#.to_owned())),
        ("n=x", Value::Double(-1000.0)),
    ];
    let fields: Vec<(&str, Value)> =
        read.fields.iter().map(|(name, value)| (&**name, value.borrowed().into())).collect();
    assert_eq!(format!("{fields:?}"), format!("{expected:?}"));
    assert_eq!(read.time, Some("-5"));
    assert_eq!(point("m v=1").time, None);
    assert!(parse(b"# comment").unwrap().is_none());
}

#[test]
fn mistakes_are_named_with_their_column() {
    let cases = [
        ("m", "column 2: expected fields"),
        (",a=b v=1", "column 1: the measurement's name is missing"),
        ("m,a v=1", "column 4: a tag is written name=value"),
        ("m,a= v=1", "tag 'a' has no value"),
        ("m v", "column 4: a field is written name=value"),
        ("m v=", "field 'v': the value is missing"),
        ("m v=abc", "'abc' is not a value"),
        ("m v=inf", "'inf' is not a value"),
        ("m v=1e400", "'1e400' is not a value"),
        ("m v=99999999999999999999i", "is not a 64-bit integer"),
        ("m v=18446744073709551615u", "does not fit int64"),
        ("m v=\"open 1", "the quote is not closed"),
        ("m v=1 soon", "expected a time, not 'soon'"),
    ];
    for (line, expected) in cases {
        let error = parse(line.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

/// What a point says, however it was read.
fn told(point: LinePoint<'_>) -> String {
    let members: Vec<(&str, Value)> = point
        .members()
        .unwrap()
        .skip(1)
        .map(|member| member.unwrap())
        .map(|(name, value)| (name, value.into()))
        .collect();
    format!("{:?} {members:?}", point.shared_meta())
}

#[test]
fn lines_that_have_much_in_common_are_read_as_each_by_itself() {
    let heads = ["m,a=b", "m,a=b  ", "m", "m,a=c\\ d", "m\\ a=b", "m,a\\ a=b", "n\\,,a=b", "m,a=b\\", "m,a"];
    let fields = [
        "x=1",
        "x=1,y=2i",
        "x=2,y=3i",
        "x=2",
        "y=3i,x=1",
        "x\\ =1",
        "x\\ =2",
        "x=1,",
        "xx=1",
        "x=\"a, b\",y=\"\"",
        "x=1,x=2",
    ];
    let mut texts = Vec::new();
    for seed in 0..500_usize {
        // Runs of lines with the same head, and of ones with the same fields.
        let (head, field) = (heads[seed * 7 / 3 % heads.len()], fields[seed * 5 / 2 % fields.len()]);
        texts.push(format!("{head} {field} {seed}"));
    }
    let mut lines = Lines::default();
    let mut expected = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let mut digits = None;
        let read = lines.read(text.as_bytes(), number, |time| {
            digits = time.map(str::to_owned);
            Ok(Timestamp::from_nanos(0))
        });
        match parse(text.as_bytes()) {
            Ok(Some(point)) if text.contains("x=1,x=2") => {
                assert!(read.unwrap_err().contains("two fields 'x'"), "{point:?}")
            }
            Ok(Some(point)) => {
                assert_eq!((read, digits.as_deref()), (Ok(()), point.time), "{text}");
                let tags: Vec<_> =
                    point.tags.iter().map(|(name, value)| ((&**name).into(), Value::from(&**value))).collect();
                let tags = Some(Value::Object(tags)).filter(|_| !point.tags.is_empty());
                let members: Vec<(&str, Value)> =
                    point.fields.iter().map(|(name, value)| (&**name, value.borrowed().into())).collect();
                expected.push((point.measurement.into_owned(), number, format!("{:?} {members:?}", tags.as_ref())));
            }
            Err(reason) => assert_eq!(read, Err(reason), "{text}"),
            Ok(None) => panic!("{text}"),
        }
    }
    let found = lines.measurements().flat_map(|points| {
        points.as_measurements("t").map(|point| (points.name().to_owned(), point.number(), told(point)))
    });
    expected.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_measurement_without_a_good_line_is_none() {
    let mut lines = Lines::default();
    for line in ["# m v=1 1", "m v=", "m v=1 x", "m,a=1,a=2 v=1"] {
        let read = lines.read(line.as_bytes(), 0, |_| Err("never".to_owned()));
        assert_eq!(read.is_err(), !line.starts_with('#'), "{line}");
    }
    assert_eq!(lines.read(b"m v=1 1", 0, |_| Err("no time".to_owned())), Err("no time".to_owned()));
    assert_eq!(lines.measurements().count(), 0);
    let many: Vec<String> = (0..30).map(|at| format!("f{at}=1")).collect();
    let (many, twice) = (format!("m {}", many.join(",")), format!("m {},f7=1", many.join(",")));
    assert_eq!(lines.read(many.as_bytes(), 1, |_| Ok(Timestamp::from_nanos(0))), Ok(()));
    assert!(lines.read(twice.as_bytes(), 2, |_| Ok(Timestamp::from_nanos(0))).unwrap_err().contains("'f7'"));
    assert_eq!(lines.measurements().map(Points::len).collect::<Vec<_>>(), [1]);
}
