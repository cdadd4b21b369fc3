use super::*;
use bson::rawdoc;
use proptest::prelude::*;

const TO: ReplyTo = ReplyTo { request_id: 3, form: Form::Message };

/// A frame of an OP_MSG with these flags and sections.
fn message(flags: u32, sections: &[u8]) -> Vec<u8> {
    let mut frame = header_bytes(HEADER_BYTES + 4 + sections.len(), 7, 0, OP_MSG);
    frame.extend(flags.to_le_bytes());
    frame.extend(sections);
    frame
}

fn body(document: &RawDocument) -> Vec<u8> {
    [&[0], document.as_bytes()].concat()
}

fn sequence(name: &str, documents: &[&RawDocument]) -> Vec<u8> {
    let content: Vec<u8> = documents.iter().flat_map(|document| document.as_bytes().to_vec()).collect();
    let bytes = 4 + name.len() + 1 + content.len();
    [&[1], &length(bytes)[..], name.as_bytes(), &[0], &content].concat()
}

/// Reads bytes as a connection does, and says whether they are a message.
fn read(bytes: &[u8]) -> Result<()> {
    let unpacked = unpacked(bytes)?;
    Message::parse(unpacked.bytes()).map(|_| ())
}

#[test]
fn bodies_and_sequences_in_any_order() {
    let (command, a, b) = (rawdoc! { "insert": "c", "$db": "d" }, rawdoc! { "_id": 1 }, rawdoc! {});
    for sections in [
        [body(&command), sequence("documents", &[&a, &b])].concat(),
        [sequence("documents", &[&a, &b]), body(&command)].concat(),
    ] {
        let frame = message(MORE_TO_COME, &sections);
        let parsed = Message::parse(&frame).unwrap();
        assert_eq!((ReplyTo::of(&frame), parsed.form, parsed.more_to_come), (Ok(None), Form::Message, true));
        assert_eq!(parsed.body, &*command);
        assert_eq!(parsed.sequences, [Sequence { name: "documents", documents: vec![&a, &b] }]);
    }
}

#[test]
fn a_query_of_a_handshake_is_read_and_answered() {
    let command = rawdoc! { "isMaster": 1 };
    let content = [&[0; 4], &b"admin.$cmd\0"[..], &[0; 4], &(-1_i32).to_le_bytes(), command.as_bytes()].concat();
    let mut frame = header_bytes(HEADER_BYTES + content.len(), 9, 0, OP_QUERY);
    frame.extend(content);
    let parsed = Message::parse(&frame).unwrap();
    assert_eq!((parsed.form, parsed.database, parsed.body), (Form::Query, Some("admin"), &*command));
    let to = ReplyTo::of(&frame).unwrap().unwrap();
    let answer = reply(to, &rawdoc! { "ok": 1 }, None);
    assert_eq!(&answer[8..16], [9, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(&answer[HEADER_BYTES + 20..], rawdoc! { "ok": 1 }.as_bytes());
}

#[test]
fn a_checksum_is_verified() {
    let mut frame = message(CHECKSUM_PRESENT, &[body(&rawdoc! { "ping": 1 }), vec![0; 4]].concat());
    let end = frame.len() - 4;
    let sum = crc32c::crc32c(&frame[..end]).to_le_bytes();
    frame[end..].copy_from_slice(&sum);
    read(&frame).unwrap();
    for at in HEADER_BYTES..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x20;
        read(&damaged).unwrap_err();
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let ping = rawdoc! { "ping": 1 };
    let mut deep = rawdoc! {};
    for _ in 0..DEPTH_MAX {
        deep = rawdoc! { "a": deep };
    }
    let wrong = [
        message(0, &[]),
        message(0, &[body(&ping), body(&ping)].concat()),
        message(0, &[body(&ping), vec![2]].concat()),
        message(1 << 5, &body(&ping)),
        message(CHECKSUM_PRESENT, &[]),
        message(0, &[body(&ping), sequence("x", &[]), sequence("x", &[])].concat()),
        message(0, &body(&deep)),
        header_bytes(HEADER_BYTES, 1, 0, OP_MSG),
        header_bytes(HEADER_BYTES, 1, 0, 2010),
        header_bytes(HEADER_BYTES - 1, 1, 0, OP_MSG),
        header_bytes(MESSAGE_BYTES_MAX + 1, 1, 0, OP_MSG),
    ];
    for frame in wrong {
        read(&frame).unwrap_err();
    }
    read(&message(1 << 16, &body(&ping))).unwrap(); // Optional flags may be unknown.
}

#[test]
fn a_command_that_cannot_be_read_is_told_why_if_its_frame_is_whole() {
    let command = rawdoc! { "insert": "c", "$db": "d" };
    let mut deep = rawdoc! {};
    for _ in 0..DEPTH_MAX {
        deep = rawdoc! { "a": deep };
    }
    let empty = rawdoc! {};
    let many = sequence("documents", &vec![&*empty; WRITE_BATCH_MAX + 1]);
    let mut unknown_type = rawdoc! { "s": 1 }.into_bytes();
    unknown_type[4] = 0x77;
    let told = [
        (message(0, &body(&deep)), ServerCode::Overflow),
        (message(0, &[body(&command), many].concat()), ServerCode::InvalidLength),
        (message(0, &[&[0], &*unknown_type].concat()), ServerCode::InvalidBSON),
    ];
    for (frame, code) in told {
        let error = read(&frame).unwrap_err().of_client().unwrap();
        assert_eq!((error.code, error.name), (code as i32, format!("{code:?}")));
        assert_eq!(ReplyTo::of(&frame), Ok(Some(ReplyTo { request_id: 7, form: Form::Message })));
    }
    assert_eq!(read(&message(0, &[])).unwrap_err().of_client(), None);
}

#[test]
fn compressed_messages_are_what_they_were() {
    let document = rawdoc! { "ping": 1, "$db": "d", "text": "x".repeat(500) };
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let frame = reply(TO, &document, Some(compressor));
        assert!(frame.len() < 200, "{compressor:?}");
        let unpacked = unpacked(&frame).unwrap();
        assert_eq!(unpacked.compressor(), Some(compressor));
        assert_eq!(Message::parse(unpacked.bytes()).unwrap().body, &*document);
        // A size that lies.
        for size in [0_i32, 505, i32::MAX, -1] {
            let mut lying = frame.clone();
            lying[20..24].copy_from_slice(&size.to_le_bytes());
            read(&lying).unwrap_err();
        }
    }
}

#[test]
fn a_small_message_cannot_become_a_large_one() {
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let packed = compressor.pack(&vec![0; 16 << 20]).unwrap();
        let mut plain = Vec::new();
        compressor.unpack(&packed, 1000, &mut plain).unwrap_err();
        assert!(plain.capacity() < 1 << 17, "{compressor:?}: {}", plain.capacity());
    }
}

proptest! {
    /// Any bytes, and any damage to a message, are read or refused; nothing panics.
    #[test]
    fn hostile_bytes(noise in prop::collection::vec(any::<u8>(), 0..300), op in prop::sample::select(vec![OP_MSG, OP_QUERY, OP_COMPRESSED, 1])) {
        let mut frame = header_bytes(HEADER_BYTES + noise.len(), 1, 0, op);
        frame.extend(&noise);
        let _ = read(&frame);
        let _ = read(&noise);
    }

    #[test]
    fn damaged_messages(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>()) {
        let (command, a) = (rawdoc! { "insert": "c", "$db": "d", "l": [1, { "x": "y" }] }, rawdoc! { "_id": 1, "s": "text" });
        let sections = [body(&command), sequence("documents", &[&a, &a])].concat();
        let plain = message(0, &sections);
        let packed = reply(TO, &rawdoc! { "a": "b".repeat(100) }, Some(Compressor::Zstd));
        for frame in [plain, packed] {
            let mut damaged = frame.clone();
            for (at, byte) in &damage {
                let at = at.index(damaged.len());
                damaged[at] = *byte;
            }
            let _ = read(&damaged);
            let _ = read(&frame[..cut.index(frame.len())]);
        }
    }
}
