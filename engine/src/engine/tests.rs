use crate::fs::{Fs, RealFs};
use crate::{CollectionOptions, Database, Durability, Settings};
use ebbtide_ttl::{Code, Timestamp, Value};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_forked_child_that_closes_or_drops_its_handles_leaves_the_database_to_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let settings = Settings { durability: Durability::Interval(Duration::from_secs(3600)), ..Settings::default() };
    let mut db = Database::builder(&path).settings(settings).open().unwrap();
    let row = Value::Object(vec![("t".into(), Value::Date(Timestamp::EPOCH))]);
    db.create_collection("c", CollectionOptions::new("t")).unwrap().insert_documents(&[row]).unwrap();
    let files = RealFs::new().list(&path).unwrap();
    Arc::get_mut(&mut db.engine).unwrap().process += 1;
    assert_eq!(db.clone().close().unwrap_err().code(), Code::IllegalOperation);
    assert_eq!(db.write_failure(), None);
    drop(db);
    assert_eq!(RealFs::new().list(&path).unwrap(), files, "nothing is marked as closed");
    let db = Database::open(&path).unwrap();
    assert_eq!(db.snapshot().collection("c").unwrap().count().unwrap(), 1);
}

#[test]
fn a_second_open_in_the_same_process_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::new("t")).unwrap();
    drop(db);
    let refused = Database::open(folder.path()).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::LockBusy);
    assert!(refused.to_string().contains("the number of this process"), "{refused}");
    drop(collection);
    Database::open(folder.path()).unwrap();
}
