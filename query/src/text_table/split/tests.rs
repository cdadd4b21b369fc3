use super::{Split, split};

/// The line of each record of a text, with its first cell.
fn lines(text: &str, comment: Option<u8>, skip: u64) -> Vec<(u64, String)> {
    let how = Split::Csv { delimiter: b',', comment, skip };
    let mut found = Vec::new();
    let mut give = |block: super::Block| {
        found.extend(block.records().map(|row| (row.line, String::from_utf8_lossy(row.cell(0)).into_owned())));
        true
    };
    split("a.csv", Box::new(std::io::Cursor::new(text.to_owned())), &how, false, &mut give, &ToString::to_string)
        .unwrap();
    found
}

#[test]
fn records_after_blank_lines_and_comments_have_the_lines_on_which_they_begin() {
    let text = "h,v\n\n1,2\n#c\n\n3,\"a\nb\n\"\n5,6\n\n\n7,8";
    let expected = [(1, "h"), (3, "1"), (6, "3"), (9, "5"), (12, "7")];
    let expected: Vec<_> = expected.map(|(line, cell)| (line, cell.to_owned())).into();
    for end in ["", "\n", "\n\n"] {
        let text = format!("{text}{end}");
        assert_eq!(lines(&text, Some(b'#'), 0), expected, "{end:?}");
        assert_eq!(lines(&text.replace('\n', "\r\n"), Some(b'#'), 0), expected, "{end:?} with CR");
        let skipped: Vec<_> = expected.iter().skip(1).cloned().collect();
        assert_eq!(lines(&text, Some(b'#'), 1), skipped, "{end:?} without its first line");
        assert_eq!(lines(&text.replace('\n', "\r\n"), Some(b'#'), 2), skipped, "{end:?} without two lines, with CR");
    }
    assert_eq!(lines("h,v\n\n1,2", None, 0), [(1, "h".to_owned()), (3, "1".to_owned())]);
    assert_eq!(lines("1,2", None, 0), [(1, "1".to_owned())]);
    assert_eq!(lines("\n\n1,2\n", None, 0), [(3, "1".to_owned())]);
}

#[test]
fn lines_are_right_where_the_text_is_longer_than_a_read() {
    let text: String =
        (0..40_000).map(|row| if row % 3 == 0 { format!("\n{row},x\n") } else { format!("{row},x\n") }).collect();
    let place = |row: u64| (row + row / 3 + 2, row.to_string());
    let expected: Vec<_> = (0..40_000).map(place).collect();
    assert_eq!(lines(&text, None, 0), expected);
    assert_eq!(lines(text.trim_end(), None, 0), expected);
}
