use super::*;
use ebbtide::Database;
use ebbtide_query::{Session, statement};

fn run(database: &Database, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = Session::new(database.clone()).unwrap();
    for statement in statement::parse(sql).unwrap() {
        runtime.block_on(session.run(&statement, sql)).unwrap();
    }
}

#[test]
fn the_statements_of_a_collection_make_it_again_with_its_rules() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Database::open(folder.path().join(name)).unwrap();
    let (first, second) = (open("first"), open("second"));
    let archive = folder.path().join("archive").display().to_string();
    run(
        &first,
        &format!(
            "CREATE COLLECTION w WITH (timeField = 't', metaField = 'it''s', graceSeconds = 3600, maxBytes = 1000000) \
                 EXPIRE AFTER 30 DAYS INTO 'file://{archive}' KEEP 2 YEARS; \
             CREATE LADDER ON w (STEP '1 hour' FOR 90 DAYS, STEP '1 day' FOREVER) FIELDS (a, \"B\"); \
             CREATE COLLECTION o EXPIRE ITEMS AFTER 30 MINUTES; CREATE VIEW z AS SELECT * FROM w; \
             CREATE VIEW a AS SELECT * FROM z; \
             CREATE COLLECTION off WITH (timeField = 't') EXPIRE AFTER 1 DAY INTO 'file://{archive}2'; \
             ALTER COLLECTION off EXPIRE OFF"
        ),
    );
    let made = |database: &Database| database.snapshot().collection("w").unwrap().create_command();
    let statements = statements_of_all(&first.snapshot(), None).unwrap();
    assert!(statements.iter().all(|line| line.ends_with(';')), "{statements:?}");
    run(&second, &statements.join("\n"));
    assert_eq!(made(&first), made(&second));
    assert_eq!(statements_of_all(&second.snapshot(), None).unwrap(), statements);
}
