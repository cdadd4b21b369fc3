//! The beginning of a connection: the startup message, the login, and what a client is told then.

use super::error::{
    FEATURE_NOT_SUPPORTED, INVALID_AUTHORIZATION, INVALID_CATALOG_NAME, INVALID_PASSWORD, PROTOCOL_VIOLATION, Refusal,
};
use super::settings::Settings;
use super::wire::{Broken, Stream, Wire};
use crate::accounts::Role;
use crate::cancellations::Cancellable;
use crate::client::User;
use crate::ends::Ends;
use crate::login::MECHANISM;
use crate::scram::{ClientFirst, Exchange};
use crate::shared::{Shared, add};
use ebbtide::Database;
use pgwire::messages::response::{ReadyForQuery, TransactionStatus};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, PasswordMessageFamily, SecretKey,
    Startup,
};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::time::timeout;

/// Who is connected, to what.
pub(super) struct Client {
    /// Nobody where there are no accounts.
    user: Option<User>,
    /// What it calls itself.
    pub(super) name: String,
    pub(super) database_name: String,
    pub(super) database: Database,
    pub(super) settings: Settings,
}

impl Client {
    /// What it may do now; nothing if the account is gone or has another password.
    pub(super) fn role(&self, shared: &Shared) -> Option<Role> {
        match &self.user {
            Some(user) => shared.gate.role(user),
            None => (!shared.gate.needs_login()).then_some(Role::Admin),
        }
    }
}

/// Lets a client in, and tells it what it has to know.
pub(super) async fn open<S: Stream>(
    wire: &mut Wire<'_, S>,
    ends: Ends,
    shared: &Shared,
    startup: &Startup,
    place: &Cancellable<'_>,
) -> Result<Client, Broken> {
    if startup.protocol_number_major != 3 {
        let what = format!(
            "version {}.{} of the protocol is not known: this is 3.0",
            startup.protocol_number_major, startup.protocol_number_minor
        );
        return Err(Refusal::fatal(PROTOCOL_VIOLATION, what).into());
    }
    let options: Vec<String> = startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if startup.protocol_number_minor > 0 || !options.is_empty() {
        let answer = NegotiateProtocolVersion::new(3 << 16, options);
        wire.put(&PgWireBackendMessage::NegotiateProtocolVersion(answer))?;
    }
    let given = |name: &str| startup.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
    if given("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
        return Err(Refusal::fatal(FEATURE_NOT_SUPPORTED, "there is no replication by this protocol").into());
    }
    let name =
        given("user").ok_or_else(|| Refusal::fatal(INVALID_AUTHORIZATION, "the startup message names no user"))?;
    let user = authenticate(wire, ends, shared, name).await?;
    let (database_name, database) = database(shared, given("database"), name)?;
    let mut settings = settings(startup)?;
    let role = user.as_ref().and_then(|user| shared.gate.role(user)).unwrap_or(Role::Admin);
    settings.begin("session_authorization", name);
    settings.begin("is_superuser", if role == Role::Admin { "on" } else { "off" });
    wire.put(&PgWireBackendMessage::Authentication(Authentication::Ok))?;
    for (name, value) in settings.reported() {
        wire.put(&PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name.to_owned(), value)))?;
    }
    let key = BackendKeyData::new(place.number, SecretKey::I32(place.secret));
    wire.put(&PgWireBackendMessage::BackendKeyData(key))?;
    wire.put(&PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle)))?;
    wire.flush().await?;
    tracing::debug!(peer = %ends.peer, database = database_name, "a client of PostgreSQL's protocol");
    Ok(Client { user, name: name.to_owned(), database_name, database, settings })
}

/// The settings that a client begins with: those of the startup message, and of `-c name=value` in its `options`.
fn settings(startup: &Startup) -> Result<Settings, Refusal> {
    let mut settings = Settings::default();
    let mut begin = |name: &str, value: &str| match settings.set(name, Some(value.trim_matches('\'')), false) {
        Ok(()) => {
            let value = settings.show(name).map(|(_, value)| value.to_owned());
            settings.begin(name, &value.unwrap_or_default());
            Ok(())
        }
        // Clients ask for their own zone unasked: they are told that it is UTC here, and read times as such.
        Err(_) if name.eq_ignore_ascii_case("timezone") => Ok(()),
        Err(refusal) => Err(Refusal { is_fatal: true, ..refusal }),
    };
    for (name, value) in &startup.parameters {
        if Settings::is_known(name) {
            begin(name, value)?;
        }
    }
    let options = startup.parameters.get("options").map(String::as_str).unwrap_or_default();
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let setting = match word {
            "-c" => words.next(),
            word => word.strip_prefix("-c").or_else(|| word.strip_prefix("--")),
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            let what = format!("the option {word} of the startup message is not known");
            return Err(Refusal::fatal(FEATURE_NOT_SUPPORTED, what));
        };
        begin(name, value)?;
    }
    Ok(settings)
}

/// The database that a client names. Where there is one alone, a client that names none, or the name of its account as programs do
/// that were told none, gets that.
fn database(shared: &Shared, named: Option<&str>, user: &str) -> Result<(String, Database), Refusal> {
    let mut all = shared.databases.all();
    if let Some(at) = all.iter().position(|(name, _)| named == Some(name)) {
        return Ok(all.swap_remove(at));
    }
    let is_default = named.is_none_or(|name| name == user || name == "postgres");
    if is_default && all.len() == 1 {
        return Ok(all.swap_remove(0));
    }
    let names = all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let what = format!("there is no database \"{}\"; there are: {names}", named.unwrap_or(user));
    Err(Refusal::fatal(INVALID_CATALOG_NAME, what))
}

/// The account of a client, once it has proven to know its password; nobody where there are no accounts.
async fn authenticate<S: Stream>(
    wire: &mut Wire<'_, S>,
    ends: Ends,
    shared: &Shared,
    name: &str,
) -> Result<Option<User>, Broken> {
    if !shared.gate.needs_login() {
        return Ok(None);
    }
    wire.put(&PgWireBackendMessage::Authentication(Authentication::SASL(vec![MECHANISM.to_owned()])))?;
    let first = answer(wire, shared).await?.into_sasl_initial_response().map_err(Refusal::from)?;
    let unknown = || Refusal::fatal(PROTOCOL_VIOLATION, format!("a login is by {MECHANISM} here"));
    let payload = first.data.filter(|_| first.auth_method == MECHANISM).ok_or_else(unknown)?;
    let begun = ClientFirst::parse(&payload).and_then(|first| Some((shared.gate.verifier(name)?, first)));
    let ((user, verifier), first) = begun.ok_or_else(unknown)?;
    let begun = Exchange::begin(&first, verifier);
    let (exchange, challenge) = begun.map_err(|what| Refusal::fatal(PROTOCOL_VIOLATION, what))?;
    wire.put(&PgWireBackendMessage::Authentication(Authentication::SASLContinue(challenge.into())))?;
    let second = answer(wire, shared).await?.into_sasl_response().map_err(Refusal::from)?;
    let turn = shared.turn(ends.peer.ip()).await.ok_or_else(|| Refusal::fatal("53300", "too many logins wait"))?;
    let (Some(proof), Some(user)) = (exchange.finish(&second.data), user) else {
        shared.refuse_login(ends.peer, name);
        drop(turn);
        tokio::time::sleep(shared.gate.delay()).await;
        return Err(Refusal::fatal(INVALID_PASSWORD, "the login was refused").into());
    };
    add(&shared.counters.logins, 1);
    tracing::info!(peer = %ends.peer, name = %user.name.escape_debug(), "logged in");
    wire.put(&PgWireBackendMessage::Authentication(Authentication::SASLFinal(proof.into())))?;
    Ok(Some(user))
}

/// What a client answers to a step of its login.
async fn answer<S: Stream>(wire: &mut Wire<'_, S>, shared: &Shared) -> Result<PasswordMessageFamily, Broken> {
    wire.flush().await?;
    let message = timeout(shared.settings.stall_max, wire.message(true)).await;
    match message.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?? {
        Some(PgWireFrontendMessage::PasswordMessageFamily(answer)) => Ok(answer),
        Some(_) => Err(Refusal::fatal(PROTOCOL_VIOLATION, "expected a step of the login").into()),
        None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
    }
}
