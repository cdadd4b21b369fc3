//! What a client says after its login, and the answers.

use super::error::{
    ACTIVE_TRANSACTION, DUPLICATE_CURSOR, DUPLICATE_STATEMENT, FAILED_TRANSACTION, FEATURE_NOT_SUPPORTED,
    INVALID_AUTHORIZATION, INVALID_CURSOR_NAME, INVALID_SAVEPOINT, INVALID_STATEMENT_NAME, NO_ACTIVE_TRANSACTION,
    PROTOCOL_VIOLATION, QUERY_CANCELED, READ_ONLY_TRANSACTION, Refusal, notice,
};
use super::login::Client;
use super::own::{Modes, Own};
use super::rows::{self, Rows};
use super::statements::{Described, Kept, Portal, Prepared, State, Work};
use super::values::{self, Parameter};
use super::wire::{Broken, Stream, Wire};
use super::{copy, lexer, stop};
use crate::cancellations::Cancellable;
use crate::shared::{Shared, add, aside};
use crate::sql::{Sql, SqlKind, SqlResult, SqlSession, SqlStatement};
use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::record_batch::RecordBatch;
use futures::{FutureExt, StreamExt, stream};
use pgwire::messages::copy::CopyDone;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use pgwire::messages::startup::ParameterStatus;
use pgwire::messages::{PgWireBackendMessage as Answer, PgWireFrontendMessage as Message};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tokio::time::Instant;

/// What names a statement, not a portal, in a message.
const STATEMENT: u8 = b'S';

pub(super) struct Conversation<'a, S> {
    wire: Wire<'a, S>,
    shared: &'a Shared,
    client: Client,
    place: Cancellable<'a>,
    /// Begun by the first statement that needs one.
    session: Option<Arc<dyn SqlSession>>,
    transaction: TransactionStatus,
    /// Their names, and the number of changes to settings before each.
    savepoints: Vec<(String, usize)>,
    prepared: Kept<Arc<Prepared>>,
    portals: Kept<Portal>,
    /// Whether messages are left unanswered because one before them failed.
    is_skipping: bool,
    /// The settings that the client knows of.
    told: Vec<(&'static str, String)>,
}

/// A statement among those that run.
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn new(shared: &'a Shared) -> Running<'a> {
        shared.counters.sql_running.fetch_add(1, Ordering::Relaxed);
        Running(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.counters.sql_running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What comes before the client is gone, has asked for the end, or the time is over.
async fn race<S: Stream, T>(
    wire: &mut Wire<'_, S>,
    place: &Cancellable<'_>,
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Broken> {
    tokio::select! {
        // Work may be ready whenever it is asked.
        biased;
        why = cancelled(place, deadline) => Err(why),
        done = work => Ok(done),
        why = gone(wire) => Err(why),
    }
}

/// Waits until the client has asked for the end, or the time is over.
async fn cancelled(place: &Cancellable<'_>, deadline: Option<Instant>) -> Broken {
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let what = tokio::select! {
        biased;
        () = place.ended.notified() => "canceling statement due to user request",
        () = late => "canceling statement due to statement timeout",
    };
    Refusal::new(QUERY_CANCELED, what).into()
}

/// Waits until the client is gone.
async fn gone<S: Stream>(wire: &mut Wire<'_, S>) -> Broken {
    wire.is_gone().await;
    io::Error::from(io::ErrorKind::ConnectionAborted).into()
}

fn missing(sql: Option<&Arc<dyn Sql>>) -> Result<&Arc<dyn Sql>, Refusal> {
    sql.ok_or_else(|| Refusal::new(FEATURE_NOT_SUPPORTED, "this server runs no SQL"))
}

/// The number of rows that a statement has written: its only value.
fn written(batch: &RecordBatch) -> i64 {
    let count = batch.columns().first().and_then(|column| cast(column, &DataType::Int64).ok());
    let count =
        count.as_deref().and_then(|column| column.as_any().downcast_ref::<arrow::array::PrimitiveArray<Int64Type>>());
    count.filter(|column| !column.is_empty()).map_or(0, |column| column.value(0))
}

/// The tag of a statement whose rows were sent.
fn tag_of(work: &Work, sent: u64) -> String {
    match work {
        Work::Copy(..) => format!("COPY {sent}"),
        Work::Sql(statement) if statement.kind() == SqlKind::Query => match statement.tag().as_str() {
            tag @ ("SHOW" | "EXPLAIN") => tag.to_owned(),
            _ => format!("SELECT {sent}"),
        },
        Work::Sql(statement) => statement.tag(),
        Work::Own(_) | Work::Empty => "SHOW".to_owned(),
    }
}

/// Rows of text, of a statement that the connection answers itself.
fn text_rows(names: &[&str], rows: &[Vec<&str>], formats: &[i16]) -> Result<Rows, Refusal> {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = (0..names.len())
        .map(|at| -> ArrayRef { Arc::new(rows.iter().map(|row| row.get(at).copied()).collect::<StringArray>()) });
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
    Rows::new(schema, stream::once(async { Ok(batch) }).boxed(), formats)
}

impl<'a, S: Stream> Conversation<'a, S> {
    pub(super) fn new(wire: Wire<'a, S>, shared: &'a Shared, client: Client, place: Cancellable<'a>) -> Self {
        let told = client.settings.reported();
        Conversation {
            wire,
            shared,
            client,
            place,
            session: None,
            transaction: TransactionStatus::Idle,
            savepoints: Vec::new(),
            prepared: Kept::default(),
            portals: Kept::default(),
            is_skipping: false,
            told,
        }
    }

    pub(super) fn wire(&mut self) -> &mut Wire<'a, S> {
        &mut self.wire
    }

    /// Answers until the client ends it, or the server.
    pub(super) async fn run(&mut self, stopped: &mut watch::Receiver<bool>) -> Result<(), Broken> {
        loop {
            let message = tokio::select! {
                biased;
                message = self.wire.message(false) => message?,
                broken = stop(stopped) => return Err(broken),
            };
            match message {
                None | Some(Message::Terminate(_)) => return Ok(()),
                Some(message) => self.answer(message).await?,
            }
            if self.wire.is_full() {
                self.wire.flush().await?;
            }
        }
    }

    async fn answer(&mut self, message: Message) -> Result<(), Broken> {
        // What was asked to end has ended.
        let _late = self.place.ended.notified().now_or_never();
        match message {
            Message::Query(query) => {
                if let Err(broken) = self.simple(&query.query).await {
                    self.fail(broken)?;
                }
                self.ready().await
            }
            Message::Sync(_) => {
                self.is_skipping = false;
                self.ready().await
            }
            Message::Flush(_) => Ok(self.wire.flush().await?),
            // Data of a copy that was refused.
            Message::CopyData(_) | Message::CopyDone(_) | Message::CopyFail(_) => Ok(()),
            _ if self.is_skipping => Ok(()),
            message => {
                let outcome = match message {
                    Message::Parse(parse) => self.parse(parse),
                    Message::Bind(bind) => self.bind(bind).await,
                    Message::Describe(describe) => self.describe(describe).await,
                    Message::Execute(execute) => self.execute(execute).await,
                    Message::Close(close) => self.close(close),
                    _ => Err(Refusal::fatal(PROTOCOL_VIOLATION, "a message that is not expected here").into()),
                };
                match outcome {
                    Err(broken) => {
                        self.is_skipping = true;
                        self.fail(broken)
                    }
                    done => done,
                }
            }
        }
    }

    /// Tells of an error after which the conversation goes on.
    fn fail(&mut self, broken: Broken) -> Result<(), Broken> {
        let refusal = match broken {
            Broken::Refused(refusal) if !refusal.is_fatal => refusal,
            broken => return Err(broken),
        };
        add(&self.shared.counters.sql_failed, 1);
        if self.transaction == TransactionStatus::Transaction {
            self.transaction = TransactionStatus::Error;
        }
        Ok(self.wire.put(&Answer::ErrorResponse(refusal.response()))?)
    }

    /// Ends the answers to a request.
    async fn ready(&mut self) -> Result<(), Broken> {
        if self.transaction == TransactionStatus::Idle {
            self.portals.clear();
        }
        let now = self.client.settings.reported();
        for (name, value) in &now {
            if !self.told.contains(&(name, value.clone())) {
                let status = ParameterStatus::new((*name).to_owned(), value.clone());
                self.wire.put(&Answer::ParameterStatus(status))?;
            }
        }
        self.told = now;
        self.wire.put(&Answer::ReadyForQuery(ReadyForQuery::new(self.transaction)))?;
        Ok(self.wire.flush().await?)
    }

    fn work(&mut self, text: &str) -> Result<Work, Refusal> {
        let (session, shared, client) = (&mut self.session, self.shared, &self.client);
        let session = || match session {
            Some(session) => Ok(Arc::clone(session)),
            None => {
                let names = Some((client.database_name.as_str(), client.name.as_str()));
                let begun = missing(shared.sql.as_ref())?.session(client.database.clone(), names)?;
                Ok(Arc::clone(session.insert(begun)))
            }
        };
        aside(text.len(), || Work::of(text, session))
    }

    /// Statements as a text, with all that they return.
    async fn simple(&mut self, text: &str) -> Result<(), Broken> {
        let statements = aside(text.len(), || lexer::statements(text));
        if statements.is_empty() {
            return Ok(self.wire.put(&Answer::EmptyQueryResponse(EmptyQueryResponse::new()))?);
        }
        for statement in statements {
            let work = self.work(statement)?;
            let prepared = Arc::new(Prepared::new(work, Vec::new()));
            let state = self.start(&prepared.work, Vec::new(), &[]).await?;
            if let (State::Rows(rows), false) = (&state, matches!(prepared.work, Work::Copy(..))) {
                self.wire.put(&rows::description(&rows.schema, &[])?)?;
            }
            let mut portal = Portal { prepared, values: Vec::new(), formats: Vec::new(), state };
            self.advance(&mut portal, 0).await?;
        }
        Ok(())
    }

    fn parse(&mut self, parse: Parse) -> Result<(), Broken> {
        let work = match aside(parse.query.len(), || lexer::statements(&parse.query)).as_slice() {
            [] => Work::Empty,
            [one] => self.work(one)?,
            _ => {
                let what = "cannot insert multiple commands into a prepared statement";
                return Err(Refusal::new(super::error::SYNTAX_ERROR, what).into());
            }
        };
        let named = aside(parse.query.len(), || values::named(&parse.query, parse.type_oids));
        let prepared = Prepared::new(work, named);
        self.prepared.put(parse.name.as_deref().unwrap_or_default(), Arc::new(prepared), DUPLICATE_STATEMENT)?;
        Ok(self.wire.put(&Answer::ParseComplete(ParseComplete::new()))?)
    }

    fn statement(&self, name: Option<&str>) -> Result<Arc<Prepared>, Refusal> {
        let name = name.unwrap_or_default();
        let what = || Refusal::new(INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"));
        self.prepared.get(name).cloned().ok_or_else(what)
    }

    /// What a statement takes and returns.
    async fn described<'p>(&mut self, prepared: &'p Prepared) -> Result<&'p Described, Broken> {
        if let Some(described) = prepared.described.get() {
            return Ok(described);
        }
        let described = match &prepared.work {
            Work::Sql(statement) | Work::Copy(_, statement) => {
                let (deadline, describing) = (self.deadline(), Arc::clone(statement).describe());
                let description = race(&mut self.wire, &self.place, deadline, describing).await?;
                let description = description.map_err(Refusal::from)?;
                let writes = statement.kind() == SqlKind::Write;
                let parameters = description.parameters.iter().enumerate().map(|(at, inferred)| {
                    Parameter::new(prepared.named.get(at).copied().unwrap_or_default(), inferred.as_ref(), writes)
                });
                let columns = description.columns.filter(|_| !matches!(prepared.work, Work::Copy(..)));
                let parameters = parameters.collect::<Result<_, _>>()?;
                Described { parameters, columns, unknown: description.unknown.map(Refusal::from) }
            }
            Work::Own(Own::Show(name)) => {
                let (_, rows) = self.shown(name.as_deref(), &[])?;
                Described { parameters: Vec::new(), columns: Some(rows.schema), unknown: None }
            }
            Work::Own(_) | Work::Empty => Described { parameters: Vec::new(), columns: None, unknown: None },
        };
        Ok(prepared.described.get_or_init(|| described))
    }

    async fn bind(&mut self, bind: Bind) -> Result<(), Broken> {
        let prepared = self.statement(bind.statement_name.as_deref())?;
        let expected = match &prepared.work {
            Work::Sql(statement) | Work::Copy(_, statement) => statement.takes(),
            Work::Own(_) | Work::Empty => 0,
        };
        let given = bind.parameters.len();
        if expected != given {
            let what = format!("bind message supplies {given} parameters, but the statement has {expected}");
            return Err(Refusal::new(PROTOCOL_VIOLATION, what).into());
        }
        let parameters = match given {
            0 => &[][..],
            _ => self.described(&prepared).await?.parameters.as_slice(),
        };
        let (codes, sql) = (&bind.parameter_format_codes, self.shared.sql.as_ref());
        let value = |(at, (parameter, bytes)): (usize, (&Parameter, &Option<bytes::Bytes>))| {
            let code = if codes.len() == 1 { codes.first() } else { codes.get(at) };
            let value = parameter.value(at + 1, bytes.as_deref(), code == Some(&1))?;
            parameter.listed(value, &**missing(sql)?)
        };
        let values = parameters.iter().zip(&bind.parameters).enumerate().map(value).collect::<Result<_, _>>()?;
        let formats = bind.result_column_format_codes;
        let portal = Portal { prepared, values, formats, state: State::Ready };
        self.portals.put(bind.portal_name.as_deref().unwrap_or_default(), portal, DUPLICATE_CURSOR)?;
        Ok(self.wire.put(&Answer::BindComplete(BindComplete::new()))?)
    }

    fn portal(&mut self, name: Option<&str>) -> Result<Portal, Refusal> {
        let name = name.unwrap_or_default();
        let what = || Refusal::new(INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"));
        self.portals.take(name).ok_or_else(what)
    }

    async fn describe(&mut self, describe: Describe) -> Result<(), Broken> {
        if describe.target_type == STATEMENT {
            let prepared = self.statement(describe.name.as_deref())?;
            let described = self.described(&prepared).await?;
            if let Some(refusal) = &described.unknown {
                return Err(refusal.clone().into());
            }
            let types = described.parameters.iter().map(|parameter| parameter.kind.oid()).collect();
            self.wire.put(&Answer::ParameterDescription(ParameterDescription::new(types)))?;
            let columns = match &described.columns {
                Some(columns) => rows::description(columns, &[])?,
                None => Answer::NoData(NoData::new()),
            };
            prepared.told.lock().clone_from(&described.columns);
            return Ok(self.wire.put(&columns)?);
        }
        let mut portal = self.portal(describe.name.as_deref())?;
        // What only a run can tell is run now, and sent by Execute.
        let is_query = match &portal.prepared.work {
            Work::Sql(statement) => statement.kind() == SqlKind::Query,
            work => matches!(work, Work::Own(Own::Show(_))),
        };
        if is_query && matches!(portal.state, State::Ready) {
            portal.state =
                self.start(&portal.prepared.work, std::mem::take(&mut portal.values), &portal.formats).await?;
        }
        match &portal.state {
            State::Rows(rows) => {
                *portal.prepared.told.lock() = Some(Arc::clone(&rows.schema));
                self.wire.put(&rows::description(&rows.schema, &portal.formats)?)?;
            }
            State::Ready | State::Done(_) => self.wire.put(&Answer::NoData(NoData::new()))?,
        }
        Ok(self.portals.put(describe.name.as_deref().unwrap_or_default(), portal, DUPLICATE_CURSOR)?)
    }

    async fn execute(&mut self, execute: Execute) -> Result<(), Broken> {
        let mut portal = self.portal(execute.name.as_deref())?;
        if matches!(portal.state, State::Ready) {
            let values = std::mem::take(&mut portal.values);
            portal.state = self.start(&portal.prepared.work, values, &portal.formats).await?;
            // Nobody was told of columns.
            let is_untold = matches!(&portal.prepared.work, Work::Sql(statement) if statement.kind() == SqlKind::Other);
            if is_untold && matches!(portal.state, State::Rows(_)) {
                portal.state = State::Done(tag_of(&portal.prepared.work, 0));
            }
            if let State::Rows(rows) = &portal.state {
                portal.prepared.check_told(&rows.schema)?;
            }
        }
        self.advance(&mut portal, u64::try_from(execute.max_rows).unwrap_or(0)).await?;
        Ok(self.portals.put(execute.name.as_deref().unwrap_or_default(), portal, DUPLICATE_CURSOR)?)
    }

    fn close(&mut self, close: Close) -> Result<(), Broken> {
        let name = close.name.as_deref().unwrap_or_default();
        if close.target_type == STATEMENT {
            self.prepared.take(name);
        } else {
            self.portals.take(name);
        }
        Ok(self.wire.put(&Answer::CloseComplete(CloseComplete::new()))?)
    }

    /// When a statement that starts now, or goes on, has to end.
    fn deadline(&self) -> Option<Instant> {
        let longest =
            self.shared.settings.statement_max.into_iter().chain(self.client.settings.statement_timeout()).min();
        longest.map(|longest| Instant::now() + longest)
    }

    /// Begins a statement, or does all of it if it has no rows.
    async fn start(&mut self, work: &Work, values: Vec<ArrayRef>, formats: &[i16]) -> Result<State, Broken> {
        let ends = matches!(work, Work::Own(Own::Commit | Own::Rollback | Own::RollbackTo(_)));
        if self.transaction == TransactionStatus::Error && !ends {
            let what = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Refusal::new(FAILED_TRANSACTION, what).into());
        }
        match work {
            Work::Empty => Ok(State::Done(String::new())),
            Work::Own(own) => self.own(own, formats).await,
            Work::Sql(statement) => {
                let SqlResult { schema, rows, message } = self.started(statement, values).await?;
                if let Some(message) = message.filter(|message| message != "done") {
                    self.wire.put(&Answer::NoticeResponse(notice(&message)))?;
                }
                let Some(mut rows) = rows else { return Ok(State::Done(statement.tag())) };
                if statement.kind() == SqlKind::Write {
                    // It is there already, and the statement cannot be cancelled any more.
                    let count = rows.next().await.transpose().map_err(Refusal::from)?.as_ref().map_or(0, written);
                    let verb = statement.tag();
                    let between = if verb == "INSERT" { " 0" } else { "" };
                    return Ok(State::Done(format!("{verb}{between} {count}")));
                }
                Ok(State::Rows(Box::new(Rows::new(schema, rows, formats)?)))
            }
            Work::Copy(form, statement) => {
                let SqlResult { schema, rows, .. } = self.started(statement, values).await?;
                let rows = rows.ok_or_else(|| Refusal::new(FEATURE_NOT_SUPPORTED, "COPY takes a query"))?;
                let (rows, begin) = Rows::copied(schema, rows, form)?;
                for message in begin {
                    self.wire.put(&message)?;
                }
                Ok(State::Rows(Box::new(rows)))
            }
        }
    }

    /// Refuses a statement, or the rest of its rows, once the account may not run it.
    fn check_role(&self, statement: &dyn SqlStatement) -> Result<(), Refusal> {
        let gone = || Refusal::fatal(INVALID_AUTHORIZATION, "the account is gone, or has another password");
        let role = self.client.role(self.shared).ok_or_else(gone)?;
        Ok(crate::sql::check(statement, role)?)
    }

    /// Starts a statement of the engine, if it may run.
    async fn started(&mut self, statement: &Arc<dyn SqlStatement>, values: Vec<ArrayRef>) -> Result<SqlResult, Broken> {
        self.check_role(&**statement)?;
        if statement.kind() != SqlKind::Query {
            let tag = statement.tag();
            if self.transaction != TransactionStatus::Idle {
                let what = format!(
                    "{tag} in a transaction: each statement that writes is atomic by itself, so use autocommit \
                     (psycopg: autocommit=True, JDBC: setAutoCommit(true))"
                );
                return Err(Refusal::new(FEATURE_NOT_SUPPORTED, what).into());
            }
            if self.client.settings.is_read_only() {
                let what = format!("cannot execute {tag} in a read-only transaction");
                return Err(Refusal::new(READ_ONLY_TRANSACTION, what).into());
            }
        }
        add(&self.shared.counters.sql_statements, 1);
        let _running = Running::new(self.shared);
        let (deadline, starting) = (self.deadline(), Arc::clone(statement).start(values));
        let ended = async {
            tokio::select! {
                biased;
                why = cancelled(&self.place, deadline) => why,
                why = gone(&mut self.wire) => why,
            }
        };
        Ok(starting.unless(ended).await?.map_err(Refusal::from)?)
    }

    /// Sends the rows of a portal, so many at most if that is not 0, and what ends them.
    async fn advance(&mut self, portal: &mut Portal, most: u64) -> Result<(), Broken> {
        let rows = match &mut portal.state {
            State::Rows(rows) => rows,
            State::Done(tag) if tag.is_empty() => {
                return Ok(self.wire.put(&Answer::EmptyQueryResponse(EmptyQueryResponse::new()))?);
            }
            State::Done(tag) => {
                return Ok(self.wire.put(&Answer::CommandComplete(CommandComplete::new(tag.clone())))?);
            }
            State::Ready => return Ok(()),
        };
        let statement = match &portal.prepared.work {
            Work::Sql(statement) | Work::Copy(_, statement) if statement.kind() == SqlKind::Query => Some(&**statement),
            _ => None,
        };
        let check = |conversation: &Self| statement.map_or(Ok(()), |statement| conversation.check_role(statement));
        check(self)?;
        let deadline = self.deadline();
        let (_running, begun) = (Running::new(self.shared), rows.sent);
        loop {
            if most > 0 && rows.sent - begun >= most {
                return Ok(self.wire.put(&Answer::PortalSuspended(PortalSuspended::new()))?);
            }
            if let Some(message) = rows.next()? {
                self.wire.put(&message)?;
                if self.wire.is_full() {
                    self.wire.flush().await?;
                    // Others go on before the next rows are encoded.
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let sql = missing(self.shared.sql.as_ref())?;
            if !race(&mut self.wire, &self.place, deadline, rows.fetch(&**sql)).await?? {
                break;
            }
            check(self)?;
        }
        if let Work::Copy(form, _) = &portal.prepared.work {
            if let Some(end) = copy::end(form, rows.sent == 0) {
                self.wire.put(&Answer::CopyData(end))?;
            }
            self.wire.put(&Answer::CopyDone(CopyDone::new()))?;
        }
        let tag = tag_of(&portal.prepared.work, rows.sent - begun);
        self.wire.put(&Answer::CommandComplete(CommandComplete::new(tag)))?;
        portal.state = State::Done(tag_of(&portal.prepared.work, 0));
        Ok(())
    }

    /// The tag and the rows of `SHOW`.
    fn shown(&self, name: Option<&str>, formats: &[i16]) -> Result<(String, Rows), Refusal> {
        let settings = &self.client.settings;
        let rows = match name {
            Some(name) => {
                let (name, value) = settings.show(name)?;
                text_rows(&[name], &[vec![value]], formats)?
            }
            None => {
                let all: Vec<Vec<&str>> = settings.all().iter().map(|row| row.to_vec()).collect();
                text_rows(&["name", "setting", "description"], &all, formats)?
            }
        };
        Ok(("SHOW".to_owned(), rows))
    }

    fn warn(&mut self, what: &str) -> Result<(), Refusal> {
        self.wire.put(&Answer::NoticeResponse(notice(what)))
    }

    /// Does what a statement about the connection says.
    async fn own(&mut self, own: &Own, formats: &[i16]) -> Result<State, Broken> {
        let is_idle = self.transaction == TransactionStatus::Idle;
        let settings = &mut self.client.settings;
        let tag = match own {
            Own::Begin { tag, modes } => {
                if is_idle {
                    settings.begin_transaction();
                    self.transaction = TransactionStatus::Transaction;
                    self.in_transaction(modes)?;
                } else {
                    self.warn("there is already a transaction in progress")?;
                }
                tag
            }
            Own::Commit | Own::Rollback => {
                let is_commit = *own == Own::Commit && self.transaction != TransactionStatus::Error;
                if is_idle {
                    self.warn("there is no transaction in progress")?;
                } else {
                    if !is_commit {
                        settings.roll_back(0);
                    }
                    settings.end_transaction();
                }
                self.transaction = TransactionStatus::Idle;
                (self.savepoints, _) = (Vec::new(), self.portals.clear());
                if is_commit { "COMMIT" } else { "ROLLBACK" }
            }
            Own::Savepoint(name) => {
                self.check_transaction("SAVEPOINT")?;
                self.savepoints.push((name.clone(), self.client.settings.changes()));
                "SAVEPOINT"
            }
            Own::Release(name) | Own::RollbackTo(name) => {
                self.check_transaction("a savepoint")?;
                let at = self.savepoints.iter().rposition(|(one, _)| one == name);
                let what = || Refusal::new(INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"));
                let at = at.ok_or_else(what)?;
                let is_release = matches!(own, Own::Release(_));
                if !is_release {
                    self.client.settings.roll_back(self.savepoints[at].1);
                }
                self.savepoints.truncate(if is_release { at } else { at + 1 });
                self.transaction = TransactionStatus::Transaction;
                if is_release { "RELEASE" } else { "ROLLBACK" }
            }
            Own::SetTransaction { modes, is_session: true } => {
                if let Some(is_read_only) = modes.is_read_only {
                    settings.set("default_transaction_read_only", Some(switch(is_read_only)), false)?;
                }
                "SET"
            }
            Own::SetTransaction { modes, is_session: false } => {
                self.check_transaction("SET TRANSACTION")?;
                self.in_transaction(modes)?;
                "SET"
            }
            Own::Set { name, value, is_local: true } if is_idle => {
                settings.clone().set(name, value.as_deref(), true)?;
                self.warn("SET LOCAL can only be used in transaction blocks")?;
                "SET"
            }
            Own::Set { name, value, is_local } => {
                settings.set(name, value.as_deref(), *is_local)?;
                "SET"
            }
            Own::Reset(Some(name)) => {
                settings.set(name, None, false)?;
                "RESET"
            }
            Own::Reset(None) => {
                settings.reset();
                "RESET"
            }
            Own::Show(name) => {
                let (_, rows) = self.shown(name.as_deref(), formats)?;
                return Ok(State::Rows(Box::new(rows)));
            }
            Own::Deallocate(None) => {
                self.prepared.clear();
                "DEALLOCATE ALL"
            }
            Own::Deallocate(Some(name)) => {
                // Those that were prepared in SQL are the engine's.
                if self.prepared.take(name).is_none() {
                    let quoted = format!("DEALLOCATE \"{}\"", name.replace('"', "\"\""));
                    let session = self.session.clone();
                    let what = || {
                        Refusal::new(INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
                    };
                    let mut parsed = session.ok_or_else(what)?.parse(&quoted).map_err(Refusal::from)?;
                    let statement = parsed.pop().ok_or_else(what)?;
                    self.started(&statement, Vec::new()).await?;
                }
                "DEALLOCATE"
            }
            Own::Discard => {
                if !is_idle {
                    let what = "DISCARD ALL cannot run inside a transaction block";
                    return Err(Refusal::new(ACTIVE_TRANSACTION, what).into());
                }
                settings.reset();
                (self.session, _) = (None, self.prepared.clear());
                self.portals.clear();
                "DISCARD ALL"
            }
            Own::Nothing(tag) => tag,
        };
        Ok(State::Done(tag.to_owned()))
    }

    fn in_transaction(&mut self, modes: &Modes) -> Result<(), Refusal> {
        match modes.is_read_only {
            Some(is_read_only) => self.client.settings.set("transaction_read_only", Some(switch(is_read_only)), true),
            None => Ok(()),
        }
    }

    fn check_transaction(&self, what: &str) -> Result<(), Refusal> {
        if self.transaction != TransactionStatus::Idle {
            return Ok(());
        }
        Err(Refusal::new(NO_ACTIVE_TRANSACTION, format!("{what} can only be used in transaction blocks")))
    }
}

fn switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
