//! `ebbtide serve`.

use crate::args::{Cli, ServeArgs};
use crate::{Failure, say};
use ebbtide_server::{Databases, Server, Settings, interrupted};
use std::time::Duration;

impl From<ebbtide_server::Failure> for Failure {
    fn from(failure: ebbtide_server::Failure) -> Self {
        Failure::new(failure.to_string())
    }
}

/// Serves until it is interrupted. A second signal ends it at once.
pub(crate) fn run(cli: &Cli, args: &ServeArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a server writes to its databases: drop --read-only"));
    }
    let databases = match &args.dbs {
        Some(folder) => Databases::in_folder(folder)?,
        None => Databases::one(&cli.db)?,
    };
    let settings = Settings {
        listen: args.listen,
        mongodb: Some(args.mongodb),
        insecure: args.insecure,
        grace: Duration::from_secs(args.grace),
        ..Settings::default()
    };
    runtime.block_on(async {
        let server = Server::start(databases, settings).await?;
        if let Some(address) = server.mongodb_address() {
            say!("mongodb {address}");
        }
        say!("ready");
        interrupted().await?;
        let stopped = tokio::select! {
            stopped = server.stop() => stopped,
            again = interrupted() => {
                again?;
                return Err(Failure::new("ended at once by a second signal; what was acknowledged is stored"));
            }
        };
        Ok(stopped?)
    })
}
