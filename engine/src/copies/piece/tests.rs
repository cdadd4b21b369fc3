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
fn a_wrong_edit_is_refused_although_its_checksum_matches() {
    let refused = |piece: &Piece| Piece::decode("p", &piece.encode().unwrap()).unwrap_err().to_string();
    let mut wrong = piece();
    wrong.head.edits = Some(vec![vec![Op::DropCollection { id: u64::MAX }]]);
    assert!(refused(&wrong).contains("an edit is wrong"));
    let mut wrong = piece();
    wrong.head.base = Some(Base { checkpoint: vec![Op::DropCollection { id: 4 }], files: Vec::new(), records_from: 1 });
    assert!(refused(&wrong).contains("an edit is wrong"));
}

#[test]
fn any_bytes_behind_a_matching_checksum_do_no_harm() {
    let bytes = piece().encode().unwrap();
    for at in 8..bytes.len() - 4 {
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut changed = bytes[..bytes.len() - 4].to_vec();
            changed[at] = value;
            let crc = crc32fast::hash(&changed);
            changed.extend_from_slice(&crc.to_le_bytes());
            let _ = Piece::decode("p", &changed.into());
        }
    }
}

#[test]
fn names_of_bases_tell_number_and_instant() {
    let at = Timestamp::from_millis(-5);
    assert_eq!(parse_base_name(&base_name(12, at)), Some((12, -5)));
    assert_eq!(parse_base_name("12"), None);
    assert_eq!(parse_base_name("x@y"), None);
}
