//! `ebbtide publish`: brings the tables of published collections up to date.

use crate::args::{Cli, PublishArgs};
use crate::human::counted;
use crate::{Failure, open, say};

/// Runs `ebbtide publish`.
pub(crate) fn run(cli: &Cli, args: &PublishArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("publishing writes to the database: drop --read-only"));
    }
    let db = open::for_writing(cli)?;
    let names = match args.collections.as_slice() {
        [] => db.publications().into_iter().map(|info| info.collection).collect(),
        named => named.to_vec(),
    };
    if names.is_empty() {
        say!("no collection is published");
    }
    for name in names {
        let made = db.publish_now(&name)?;
        let (files, rows) = (counted(made.files, "file"), counted(made.measurements, "measurement"));
        say!("{name}: version {}, {rows} in {files}", made.version);
    }
    Ok(())
}
