use super::*;
use rustyline::history::DefaultHistory;

fn completed(assistant: &Assistant, line: &str) -> Vec<String> {
    let history = DefaultHistory::new();
    let (_, pairs) = assistant.complete(line, line.len(), &Context::new(&history)).unwrap();
    pairs.into_iter().map(|pair| pair.replacement).collect()
}

fn assistant() -> Assistant {
    let mut assistant = Assistant::new(false);
    assistant.refresh(None);
    assistant.collections = vec!["weather".to_owned(), "wells".to_owned()];
    assistant.names.extend(["weather", "wells", "wind_speed", "avg"].map(str::to_owned));
    assistant.functions.insert("avg".to_owned());
    assistant
}

#[test]
fn words_are_completed_in_the_case_that_is_typed_and_with_what_follows() {
    assert_eq!(completed(&assistant(), "sel"), ["select "]);
    assert_eq!(completed(&assistant(), "SEL"), ["SELECT "]);
    assert_eq!(completed(&assistant(), "SELECT av"), ["avg("]);
    assert_eq!(completed(&assistant(), "CREATE COLLECTION c WITH (timef"), ["timeField"]);
}

#[test]
fn behind_from_only_collections_are_meant() {
    assert_eq!(completed(&assistant(), "SELECT * FROM w"), ["weather", "wells"]);
    assert_eq!(completed(&assistant(), "\\d we"), ["weather", "wells"]);
    assert!(completed(&assistant(), "SELECT w").contains(&"wind_speed".to_owned()));
}
