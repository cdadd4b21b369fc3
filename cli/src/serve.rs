//! `ebbtide serve`.

mod sql;

use crate::args::server::LogFormatName;
use crate::args::{Cli, ServeArgs};
use crate::copies::ship_options;
use crate::signals::{self, Signals};
use crate::{Failure, files, filter, open, say};
use ebbtide::{FileAccess, Following, ShipOptions, Shipping};
use ebbtide_server::{AccountsFile, Config, Databases, LogFormat, Server, Settings, TlsFiles};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Ports where none is given.
const MONGODB: u16 = 27017;
const HTTP: u16 = 8080;
const POSTGRESQL: u16 = 5432;

impl From<ebbtide_server::Failure> for Failure {
    fn from(failure: ebbtide_server::Failure) -> Self {
        Failure::new(failure.to_string())
    }
}

/// The file with the accounts of a folder that is served.
pub(crate) fn accounts_file(folder: &Path, named: Option<PathBuf>) -> AccountsFile {
    AccountsFile::new(named.unwrap_or_else(|| folder.join(AccountsFile::NAME)))
}

/// What is served: one database, or a folder of them.
struct Served {
    folder: PathBuf,
    is_many: bool,
}

impl Served {
    /// Options win over the configuration, and that over the default of --db.
    fn of(cli: &Cli, args: &ServeArgs, config: &Config) -> Served {
        let one = |folder: &Path| Served { folder: folder.to_owned(), is_many: false };
        let many = |folder: &Path| Served { folder: folder.to_owned(), is_many: true };
        match (&args.dbs, &config.dbs, &config.db) {
            (Some(folder), _, _) => many(folder),
            _ if cli.names_db => one(&cli.db),
            (None, Some(folder), _) => many(folder),
            (None, None, Some(folder)) => one(folder),
            (None, None, None) => one(&cli.db),
        }
    }

    fn open(&self) -> Result<Databases, Failure> {
        let opener = |path: &Path| open::builder(path).open();
        let databases = match self.is_many {
            true => Databases::in_folder_with(&self.folder, opener),
            false => Databases::one_with(&self.folder, opener),
        };
        Ok(databases?)
    }
}

/// The settings of the configuration, and over them those of the options.
fn settings(args: &ServeArgs, config: &Config, served: &Served) -> Result<Settings, Failure> {
    let mut settings = config.settings();
    settings.listen = args.listen.unwrap_or(settings.listen);
    settings.mongodb = args.mongodb.or(settings.mongodb);
    settings.http = args.http.or(settings.http);
    settings.postgresql = args.pg.or(settings.postgresql);
    if settings.mongodb.is_none() && settings.http.is_none() && settings.postgresql.is_none() {
        (settings.mongodb, settings.http, settings.postgresql) = (Some(MONGODB), Some(HTTP), Some(POSTGRESQL));
    }
    let accounts = args.accounts.clone().or_else(|| config.accounts.clone());
    settings.accounts = Some(accounts_file(&served.folder, accounts.clone()));
    settings.insecure |= args.insecure;
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        settings.tls = Some(TlsFiles { cert: cert.clone(), key: key.clone() });
    }
    settings.grace = args.grace.map_or(settings.grace, Duration::from_secs);
    let folders = if args.client_folder.is_empty() { &config.client_folders } else { &args.client_folder };
    settings.files = FileAccess::below(folders)?;
    keep_private(&settings, accounts.as_ref(), served)?;
    if let Some(named) = accounts.filter(|named| !named.exists()) {
        let file = named.display();
        return Err(Failure::new(format!(
            "there is no file of accounts at {file}: ebbtide user add NAME --accounts {file} makes it; without --accounts the file is \
             accounts.json in the folder that is served"
        )));
    }
    Ok(settings)
}

/// Refuses folders for clients that contain what clients must not read.
fn keep_private(settings: &Settings, accounts: Option<&PathBuf>, served: &Served) -> Result<(), Failure> {
    let files = [
        ("the database", Some(&served.folder)),
        ("the file with the accounts", accounts),
        ("the key of TLS", settings.tls.as_ref().map(|tls| &tls.key)),
    ];
    for (what, path) in files {
        if let Some(path) = path.filter(|path| settings.files.check(what, path).is_ok()) {
            let message =
                format!("{what}, {}, would be in a folder that clients may use: move one of them", path.display());
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

/// What is kept alive with a database that is shipped or followed.
enum Copied {
    Followed(Following),
    Shipped(Option<Shipping>),
}

/// Where the database is shipped to, and how.
fn ship(args: &ServeArgs, config: &Config) -> Result<Option<(String, ShipOptions)>, Failure> {
    let (to, every, keep) = config.ship();
    let Some(url) = args.ship_to.as_deref().or(to) else {
        if args.ship_keep.is_some() || every.is_some() || keep.is_some() {
            let what = "nothing says where the database is shipped to: name a URL with --ship-to, or as `to` of [ship] in the configuration";
            return Err(Failure::new(what));
        }
        return Ok(None);
    };
    let keep = args.ship_keep.as_deref().or(keep).unwrap_or("7d");
    Ok(Some((url.to_owned(), ship_options(every.unwrap_or("1s"), keep)?)))
}

/// Begins the log.
fn begin_log(format: LogFormat) -> Result<(), Failure> {
    // The library for object storage would tell of each request that it repeats. What cannot be logged, since the terminal is gone
    // for example, is no reason to end.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter("info,object_store=warn")?)
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(files::colours()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Prints the open ports.
fn announce(doors: &[(&str, Option<SocketAddr>)]) -> Result<(), Failure> {
    for (door, address) in doors {
        if let Some(address) = address {
            say!("{door} {address}");
        }
    }
    say!("ready");
    Ok(())
}

/// Serves until it is interrupted. A second signal ends it at once.
pub(crate) fn run(cli: &Cli, args: &ServeArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a server writes to its databases: drop --read-only"));
    }
    if args.dbs.is_some() && cli.names_db {
        return Err(Failure::usage("--db and --dbs are both given: one of them is served"));
    }
    let config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let format = match args.log_format {
        Some(LogFormatName::Text) => LogFormat::Text,
        Some(LogFormatName::Json) => LogFormat::Json,
        None => config.log_format.unwrap_or_default(),
    };
    begin_log(format)?;
    let served = Served::of(cli, args, &config);
    let settings = settings(args, &config, &served)?;
    let ship = ship(args, &config)?;
    if served.is_many && (ship.is_some() || args.follow.is_some()) {
        return Err(Failure::usage("one database is shipped or followed, not a folder of them: drop --dbs"));
    }
    if ship.is_some() && args.follow.is_some() {
        return Err(Failure::usage(
            "a read replica is not shipped: drop --follow, or `to` of [ship] in the configuration",
        ));
    }
    let grace = settings.grace;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let sql = sql::Engine::new(settings.sql_memory_bytes, settings.files.clone())?;
        let (databases, copied) = match &args.follow {
            Some(url) => {
                let following = open::replica(&served.folder, url)?;
                let database = following.database().clone();
                (Databases::one_open(&served.folder, database)?, Copied::Followed(following))
            }
            None => {
                let databases = served.open()?;
                let shipping = match (&ship, databases.only()) {
                    (Some((url, options)), Some(database)) => Some(database.ship(url, options.clone())?),
                    _ => None,
                };
                (databases, Copied::Shipped(shipping))
            }
        };
        let server = Server::start_with_sql(databases, settings, Arc::new(sql)).await?;
        let doors = [
            ("mongodb", server.mongodb_address()),
            ("http", server.http_address()),
            ("pg", server.postgresql_address()),
        ];
        // It serves also if nobody reads this.
        drop(announce(&doors));
        signals.next().await;
        tokio::spawn(async move {
            signals::second(&mut signals).await;
            files::complain("ended at once by a second signal; what was acknowledged is stored");
            std::process::exit(1);
        });
        tokio::spawn(async move {
            tokio::time::sleep(grace).await;
            open::cancel_requests().await;
        });
        let stopped = server.stop().await;
        let shipped = match copied {
            Copied::Shipped(Some(shipping)) => shipping.ship_now().map(drop),
            Copied::Shipped(None) => Ok(()),
            Copied::Followed(following) => {
                drop(following);
                Ok(())
            }
        };
        let unshipped = shipped.map_err(|error| format!("the last changes were not shipped: {error}"));
        if let (Err(what), true) = (&unshipped, stopped.is_err()) {
            files::complain(what);
        }
        stopped?;
        unshipped.map_err(Failure::new)
    })
}
