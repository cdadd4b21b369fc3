//! A session store: documents that live for half an hour after their last write.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use ebbtide::bson::doc;
use ebbtide::{Database, DefaultTtl, DocumentsOptions};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Session {
    #[serde(rename = "_id")]
    id: String,
    user: String,
    visits: i64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path().join("sessions"))?;
    let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(30 * 60), ..DocumentsOptions::default() };
    let sessions = db.create_documents("sessions", options)?;

    sessions.put(&Session { id: "3f2a".into(), user: "ada".into(), visits: 1 })?; // Durable when this returns.
    sessions.update("3f2a", &doc! { "$inc": { "visits": 1_i64 } })?; // Lives for another half hour from now on.
    let session: Option<Session> = sessions.get("3f2a")?;
    println!("{session:?}");

    let of_ada: Vec<Session> = sessions.find(&doc! { "user": "ada" })?;
    println!("{} session of ada", of_ada.len());
    println!("logged out: {}", sessions.delete("3f2a")?);
    db.close()?;
    Ok(())
}
