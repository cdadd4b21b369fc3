use super::*;

fn piece() -> Piece {
    let file = CopiedFile { path: "weather.1/seg-x".to_owned(), epoch: 2, bytes: 7, crc: 9, footer: 11 };
    let head = Head {
        identity: [7; 16],
        epoch: 2,
        number: 5,
        parent: Some((1, 9)),
        previous: 77,
        at: Timestamp::from_millis(1_700_000_000_123),
        is_point: true,
        edits: Some(vec![vec![Op::DropCollection { id: 4 }]]),
        base: None,
        files: vec![file],
        last_seq: 12,
    };
    let records = vec![
        RawRecord { seq: 11, collection: 1, payload: Bytes::from_static(b"eleven") },
        RawRecord { seq: 12, collection: 3, payload: Bytes::from_static(b"twelve") },
    ];
    Piece { head, records }
}

#[test]
fn a_piece_is_read_as_it_was_written() {
    let bytes = piece().encode().unwrap();
    let read = Piece::decode("p", &bytes).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", piece()));
}

#[test]
fn a_changed_or_cut_piece_is_refused() {
    let bytes = piece().encode().unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x10;
        assert!(Piece::decode("p", &changed.into()).is_err(), "byte {at}");
        assert!(Piece::decode("p", &bytes.slice(..at)).is_err(), "cut at {at}");
    }
}

#[test]
fn names_of_bases_tell_number_and_instant() {
    let at = Timestamp::from_millis(-5);
    assert_eq!(parse_base_name(&base_name(12, at)), Some((12, -5)));
    assert_eq!(parse_base_name("12"), None);
    assert_eq!(parse_base_name("x@y"), None);
}
