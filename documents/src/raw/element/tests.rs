use super::*;
use crate::arbitrary::any_document;
use crate::raw::writer::DocumentWriter;
use bson::RawDocumentBuf;
use proptest::prelude::*;

fn members(document: &RawDocument) -> Vec<(&str, RawBsonRef<'_>)> {
    document.iter().map_while(Result::ok).map(|(name, value)| (name.as_str(), value)).collect()
}

/// NaN is not equal to itself.
fn shown(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

proptest! {
    #[test]
    fn a_member_is_found_as_the_crate_finds_it(document in any_document()) {
        for (name, _) in members(&document) {
            prop_assert_eq!(shown(get(&document, name)), shown(document.get(name).unwrap()), "{}", name);
        }
        prop_assert!(get(&document, "none of them").is_none());
    }

    #[test]
    fn elements_are_the_members_until_one_is_not_read(document in any_document()) {
        let mut elements = Elements::of(&document);
        for (name, value) in members(&document) {
            let NextElement::Member(element) = elements.next_element() else { return Ok(()) };
            prop_assert_eq!(element.name, name.as_bytes());
            if let Some(read) = element.value() {
                prop_assert_eq!(shown(read), shown(value));
            }
        }
        prop_assert!(matches!(elements.next_element(), NextElement::End));
    }

    #[test]
    fn damaged_bytes_are_read_as_the_crate_reads_them(document in any_document(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = document.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let Ok(damaged) = RawDocumentBuf::from_bytes(bytes) else { return Ok(()) };
        for (name, value) in members(&damaged) {
            // The crate examines the members before it, too.
            let first = damaged.get(name).ok().flatten();
            prop_assert!(first.is_none() || shown(get(&damaged, name)) == shown(first), "{name}: {value:?}");
        }
    }

    #[test]
    fn a_written_document_is_the_same(document in any_document()) {
        let mut writer = DocumentWriter::with_capacity(0);
        for member in document.iter() {
            let (name, value) = member.unwrap();
            writer.append(name, value);
        }
        prop_assert_eq!(writer.finish(), document);
    }
}
