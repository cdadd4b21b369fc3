//! `ebbtide publish`: brings the tables of published collections up to date.

use crate::args::{Cli, PublishArgs};
use crate::human::counted;
use crate::{Failure, open, say};
use ebbtide::PublishedVersion;
use ebbtide_ttl::retention_text;

/// Runs `ebbtide publish`.
pub(crate) fn run(cli: &Cli, args: &PublishArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("publishing writes to the database: drop --read-only"));
    }
    let db = open::for_writing(cli)?;
    let published = db.publications();
    let mut wanted: Vec<(String, Option<i64>)> = Vec::new();
    match args.collections.as_slice() {
        [] => wanted.extend(published.into_iter().map(|info| (info.collection, info.rung))),
        named => {
            for name in named {
                let of_name = published.iter().filter(|info| info.collection == *name);
                let mut found: Vec<_> = of_name.map(|info| (name.clone(), info.rung)).collect();
                if found.is_empty() {
                    // Which is an error that says how to publish it.
                    found.push((name.clone(), None));
                }
                wanted.append(&mut found);
            }
        }
    }
    if wanted.is_empty() {
        say!("no collection is published");
    }
    // Each is published, whatever becomes of the others and of what is told about them.
    let (mut told, mut failed) = (Ok(()), Vec::new());
    let is_one = wanted.len() == 1;
    for (name, rung) in wanted {
        let (made, rung, what) = match rung {
            None => (db.publish_now(&name), String::new(), "measurement"),
            Some(step) => (db.publish_rung_now(&name, step), format!(", rung of {}", retention_text(step)), "bin"),
        };
        let table = format!("{name}{rung}");
        match made {
            Ok(made) => told = told.and(tell(&table, &made, what)),
            Err(error) if is_one => return Err(error.into()),
            Err(error) => failed.push(format!("{table}: {error}")),
        }
    }
    if failed.is_empty() { told } else { Err(Failure::new(failed.join("\n"))) }
}

fn tell(table: &str, made: &PublishedVersion, what: &str) -> Result<(), Failure> {
    let (files, rows) = (counted(made.files, "file"), counted(made.measurements, what));
    say!("{table}: version {}, {rows} in {files}", made.version);
    Ok(())
}
