//! Arrow Flight SQL, by gRPC on the port of HTTP.
//!
//! A ticket holds its statement, behind a random number that tells one query from another, so nothing is kept between the two
//! calls of a query. No page of another host can make such a
//! request: its content type needs the browser's leave, which is never given.

mod catalog;
mod ingest;
mod prepared;
mod running;
mod service;

use super::caller::{Caller, Refused, authorize, check_still};
use super::failed::Failed;
use super::ipc;
use super::sql::{Running, started, within};
use super::target;
use crate::accounts::Role;
use crate::ends::Ends;
use crate::scram;
use crate::shared::{MEMORY_UNIT, Shared, add, aside};
use crate::sql::{Sql, SqlDescription, SqlError, SqlKind, SqlResult, SqlStatement};
use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::ipc::root_as_message;
use arrow::record_batch::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::server::{DoPutError, FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, DoPutUpdateResult, ProstMessageExt, SqlInfo, TableExistsOption, TableNotExistOption,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightData, FlightDescriptor,
    FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, PutResult, Ticket,
};
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebbtide::Database;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use ingest::{Arriving, insert_together};
use prepared::Kept;
use prost::Message;
use running::RunningQueries;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Code as Grpc, Request, Response, Status, Streaming, async_trait};

/// The header that names a database.
const DATABASE: &str = "database";

/// The action that ends a query; it replaces Flight SQL's `CancelQuery`.
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";

/// Random bytes before the statement in a ticket.
const TICKET_NUMBER_BYTES: usize = 16;

/// The service's part of a path.
pub(super) const PATH: &str = "/arrow.flight.protocol.FlightService/{*method}";

type Answer<T> = Result<Response<T>, Status>;
type Data = <Flight as FlightService>::DoGetStream;

/// The service.
pub(super) fn service(shared: &Arc<Shared>) -> FlightServiceServer<impl FlightService> {
    let flight = Flight {
        shared: Arc::clone(shared),
        prepared: Arc::new(Kept::new(&shared.settings)),
        running: RunningQueries::default(),
        info: about(),
    };
    FlightServiceServer::new(service::Service(flight)).max_decoding_message_size(shared.settings.message_bytes_max)
}

struct Flight {
    shared: Arc<Shared>,
    prepared: Arc<Kept>,
    running: RunningQueries,
    info: Option<(SqlInfoData, XdbcTypeInfoData)>,
}

/// What clients can ask about the server and its types.
fn about() -> Option<(SqlInfoData, XdbcTypeInfoData)> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Ebbtide");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, 0_i32);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    Some((info.build().ok()?, XdbcTypeInfoDataBuilder::new().build().ok()?))
}

impl From<Refused> for Status {
    fn from(Refused(status, message): Refused) -> Self {
        Status::new(code_of(status), message)
    }
}

impl From<Failed> for Status {
    fn from(failed: Failed) -> Self {
        Status::new(code_of(failed.status), failed.message)
    }
}

impl From<SqlError> for Status {
    fn from(error: SqlError) -> Self {
        Failed::from(error).into()
    }
}

fn code_of(status: StatusCode) -> Grpc {
    match status {
        StatusCode::UNAUTHORIZED => Grpc::Unauthenticated,
        StatusCode::FORBIDDEN => Grpc::PermissionDenied,
        StatusCode::NOT_FOUND => Grpc::NotFound,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Grpc::ResourceExhausted,
        StatusCode::SERVICE_UNAVAILABLE => Grpc::Unavailable,
        status if status.is_server_error() => Grpc::Internal,
        _ => Grpc::InvalidArgument,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over results")]
fn unmade(error: arrow::error::ArrowError) -> Status {
    Status::internal(error.to_string())
}

fn internal(what: &str) -> Status {
    Status::internal(what)
}

/// Who asks, and what about.
struct Asking {
    caller: Caller,
    database: Database,
    /// The database's name.
    name: String,
}

impl Flight {
    /// Checks the login of a request, and finds its database.
    async fn asking<T>(&self, request: &Request<T>) -> Result<Asking, Status> {
        let headers: HeaderMap = request.metadata().clone().into_headers();
        let ends = request.extensions().get::<Ends>().copied();
        let ends = ends.ok_or_else(|| internal("the ends of the connection are not known"))?;
        let caller = authorize(&self.shared, ends, &headers, None, Role::Read).await?;
        let named = headers.get(DATABASE).and_then(|name| name.to_str().ok());
        let database = target::database(&self.shared, named)?;
        let all = self.shared.databases.all();
        let name = named.map(str::to_owned).or_else(|| all.first().map(|(name, _)| name.clone())).unwrap_or_default();
        Ok(Asking { caller, database, name })
    }

    fn sql(&self) -> Result<Arc<dyn Sql>, Status> {
        self.shared.sql.clone().ok_or_else(|| Status::unimplemented("this server runs no SQL"))
    }

    fn deadline(&self) -> Option<Instant> {
        self.shared.settings.statement_max.map(|longest| Instant::now() + longest)
    }

    fn statement(&self, asking: &Asking, text: &str) -> Result<Arc<dyn SqlStatement>, Status> {
        let sql = self.sql()?;
        let single = || crate::sql::single(&*sql, asking.database.clone(), text, asking.caller.role);
        let statement = aside(text.len(), single);
        statement.map_err(|error| self.refused(error.into()))
    }

    fn refused(&self, failed: Failed) -> Status {
        add(&self.shared.counters.sql_failed, 1);
        failed.into()
    }

    /// The columns of a statement's rows, as they are sent. Values may change their types.
    async fn columns(&self, statement: &Arc<dyn SqlStatement>, values: Vec<ArrayRef>) -> Result<SchemaRef, Status> {
        if !values.is_empty() {
            let columns = within(self.deadline(), Arc::clone(statement).columns(values)).await?;
            return Ok(sent(columns.map_err(|error| self.refused(error.into()))?));
        }
        let described = within(self.deadline(), Arc::clone(statement).describe()).await?;
        let described = described.and_then(SqlDescription::known).map_err(|error| self.refused(error.into()))?;
        Ok(sent(described.columns.unwrap_or_else(|| Arc::new(Schema::empty()))))
    }

    /// A prepared statement of the account that asks, which may run it; with its values and who asks.
    async fn prepared_statement<T>(
        &self,
        handle: &Bytes,
        request: &Request<T>,
    ) -> Result<(Arc<dyn SqlStatement>, Vec<ArrayRef>, Caller), Status> {
        let caller = self.asking(request).await?.caller;
        let (statement, values) = self.prepared.get(handle, &caller.account, self.shared.now())?;
        crate::sql::check(&*statement, caller.role)?;
        Ok((statement, values, caller))
    }

    /// Ends the queries of a result.
    fn cancel(&self, info: &FlightInfo, account: &str) -> Result<(), Status> {
        let none =
            || Status::not_found("no query of this result is running: it has ended, or its rows were not asked for");
        self.running.cancel(info, account).then_some(()).ok_or_else(none)
    }

    /// Runs a query, and streams its rows.
    async fn rows(
        &self,
        statement: Arc<dyn SqlStatement>,
        values: Vec<ArrayRef>,
        ticket: Bytes,
        Caller { account, actor, .. }: Caller,
    ) -> Answer<Data> {
        let (kind, needs) = (statement.kind(), statement.needs());
        let (running, deadline) = (Running::new(&self.shared), self.deadline());
        let started = started(deadline, statement, values).await?;
        let SqlResult { schema, rows, .. } = started.map_err(|error| self.refused(error.into()))?;
        let deadline = deadline.filter(|_| kind == SqlKind::Query);
        let rows = rows.unwrap_or_else(|| stream::empty().boxed());
        let state = (rows, running, Arc::clone(&self.shared), actor);
        let rows = stream::try_unfold(state, move |(mut rows, running, shared, actor)| async move {
            let next = within(deadline, rows.next()).await.and_then(|next| next.transpose().map_err(Failed::from));
            let next = next.and_then(|next| check_still(&shared, &actor, needs).map(|()| next));
            if let Ok(Some(batch)) = &next
                && batch.get_array_memory_size() > MEMORY_UNIT
            {
                // Others go on before the rows are encoded.
                tokio::task::yield_now().await;
            }
            match next {
                Ok(next) => Ok(next.map(|batch| (batch, (rows, running, shared, actor)))),
                Err(failed) => {
                    add(&shared.counters.sql_failed, 1);
                    Err(Status::from(failed))
                }
            }
        });
        Ok(Response::new(encoded(schema, self.running.cancellable(ticket, account, rows.boxed()))))
    }

    /// Runs a statement to its end; the number of rows that it wrote, or -1 if it tells none.
    async fn write(&self, statement: Arc<dyn SqlStatement>, values: Vec<ArrayRef>) -> Result<i64, Status> {
        let (_running, deadline, kind) = (Running::new(&self.shared), self.deadline(), statement.kind());
        let started = started(deadline, statement, values).await?;
        let result = started.map_err(|error| self.refused(error.into()))?;
        let Some(rows) = result.rows else { return Ok(-1) };
        let deadline = deadline.filter(|_| kind == SqlKind::Query);
        let batches: Result<Vec<RecordBatch>, SqlError> = within(deadline, rows.try_collect()).await?;
        let batches = batches.map_err(|error| self.refused(error.into()))?;
        if kind != SqlKind::Write {
            return Ok(-1);
        }
        let count = |batch: &RecordBatch| -> i64 {
            let column = batch.columns().first().and_then(|column| cast(column, &DataType::Int64).ok());
            let column = column.as_deref().and_then(|column| column.as_any().downcast_ref::<Int64Array>());
            column.filter(|column| !column.is_empty()).map_or(0, |column| column.value(0))
        };
        Ok(batches.iter().map(count).sum())
    }

    /// The reply to a question about the result of a statement, which `command` asks for. One that is no query is run now, since
    /// clients do not wait for rows that there are none of; it tells how many it wrote.
    async fn planned(
        &self,
        statement: Arc<dyn SqlStatement>,
        values: Vec<ArrayRef>,
        command: &impl ProstMessageExt,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        if statement.kind() == SqlKind::Query {
            let columns = self.columns(&statement, values).await?;
            return Self::told(command, &columns, request);
        }
        let count = self.write(statement, values).await?;
        let info = Self::told(command, &Schema::empty(), request)?;
        Ok(info.map(|info| info.with_total_records(count)))
    }

    /// The reply to a question about a result whose columns are known, and which is asked for by the same command.
    fn told(command: &impl ProstMessageExt, schema: &Schema, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        let ticket = Ticket::new(command.as_any().encode_to_vec());
        let info = FlightInfo::new().try_with_schema(schema).map_err(unmade)?;
        let info = info.with_endpoint(FlightEndpoint::new().with_ticket(ticket));
        Ok(Response::new(info.with_descriptor(request.into_inner())))
    }
}

/// Columns as they are sent: without dictionaries.
fn sent(schema: SchemaRef) -> SchemaRef {
    let encoder = FlightDataEncoderBuilder::new().with_schema(Arc::clone(&schema));
    encoder.build(stream::empty()).known_schema().unwrap_or(schema)
}

/// Rows as data of Flight.
fn encoded(schema: SchemaRef, rows: BoxStream<'static, Result<RecordBatch, Status>>) -> Data {
    let rows = rows.map_err(|status| FlightError::Tonic(Box::new(status)));
    Box::pin(FlightDataEncoderBuilder::new().with_schema(schema).build(rows).map_err(Status::from))
}

fn whole(batch: Result<RecordBatch, arrow_flight::error::FlightError>) -> Result<Data, Status> {
    let batch = batch.map_err(Status::from)?;
    Ok(encoded(batch.schema(), stream::once(async { Ok(batch) }).boxed()))
}

/// The batches that a client sends, whose buffers take `most` bytes each at most.
fn batches(request: Request<PeekableFlightDataStream>, most: usize) -> FlightRecordBatchStream {
    let checked = move |data: Result<FlightData, Status>| {
        let data = data.map_err(|status| FlightError::Tonic(Box::new(status)))?;
        if let Ok(message) = root_as_message(&data.data_header) {
            let mut left = most;
            ipc::check(&message, &data.data_body, &mut left)?;
        }
        Ok(data)
    };
    FlightRecordBatchStream::new_from_flight_data(request.into_inner().map(checked))
}

/// No rows, and no columns.
fn nothing() -> Data {
    encoded(Arc::new(Schema::empty()), stream::empty().boxed())
}

#[async_trait]
impl FlightSqlService for Flight {
    type FlightService = Flight;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>> {
        self.asking_login(&request).await?;
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let token = match given.and_then(|value| value.split_once(' ')) {
            Some((_, credentials)) => format!("Bearer {}", credentials.trim()),
            None => format!("Bearer {}", STANDARD.encode(":")),
        };
        let reply = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let mut response: Response<Pin<Box<dyn Stream<Item = _> + Send>>> =
            Response::new(Box::pin(stream::once(async { Ok(reply) })));
        let value = MetadataValue::try_from(token.as_str()).map_err(|_| internal("a token that is no header"))?;
        response.metadata_mut().insert("authorization", value);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let asking = self.asking(&request).await?;
        refuse_transaction(query.transaction_id.as_deref())?;
        let statement = self.statement(&asking, &query.query)?;
        // What is no query has no rows to ask for.
        let is_query = statement.kind() == SqlKind::Query;
        let handle = match is_query {
            true => {
                [&scram::random::<TICKET_NUMBER_BYTES>().map_err(Status::internal)?, query.query.as_bytes()].concat()
            }
            false => Vec::new(),
        }
        .into();
        self.planned(statement, Vec::new(), &TicketStatementQuery { statement_handle: handle }, request).await
    }

    async fn do_get_statement(&self, ticket: TicketStatementQuery, request: Request<Ticket>) -> Answer<Data> {
        let asking = self.asking(&request).await?;
        if ticket.statement_handle.is_empty() {
            return Ok(Response::new(nothing()));
        }
        let foreign = || Status::invalid_argument("the ticket is none of this server");
        let text = ticket.statement_handle.get(TICKET_NUMBER_BYTES..).ok_or_else(foreign)?;
        let statement = self.statement(&asking, std::str::from_utf8(text).map_err(|_| foreign())?)?;
        if statement.kind() != SqlKind::Query {
            return Err(foreign());
        }
        self.rows(statement, Vec::new(), request.into_inner().ticket, asking.caller).await
    }

    async fn do_put_statement_update(
        &self,
        update: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let asking = self.asking(&request).await?;
        refuse_transaction(update.transaction_id.as_deref())?;
        self.write(self.statement(&asking, &update.query)?, Vec::new()).await
    }

    /// A driver that has no rows to ingest sends nothing, not even its command: ADBC's.
    async fn do_put_error_callback(
        &self,
        request: Request<PeekableFlightDataStream>,
        error: DoPutError,
    ) -> Answer<<Self as FlightService>::DoPutStream> {
        self.asking(&request).await?;
        match error {
            DoPutError::MissingCommand => {
                let none = DoPutUpdateResult { record_count: 0 };
                let result = PutResult { app_metadata: none.encode_to_vec().into() };
                Ok(Response::new(stream::once(async { Ok(result) }).boxed()))
            }
            DoPutError::MissingFlightDescriptor => {
                Err(Status::invalid_argument("the first message has no descriptor, which names the command"))
            }
        }
    }

    async fn do_put_statement_ingest(
        &self,
        ingest: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let asking = self.asking(&request).await?;
        refuse_transaction(ingest.transaction_id.as_deref())?;
        if asking.caller.role < Role::Write {
            return Err(Status::permission_denied(format!("this needs the role {}", Role::Write)));
        }
        if ingest.temporary || ingest.schema.is_some_and(|schema| !schema.is_empty() && schema != "public") {
            return Err(Status::invalid_argument(
                "rows go to collections, which are in the schema public and not temporary",
            ));
        }
        if let Some(catalog) = ingest.catalog.filter(|catalog| !catalog.is_empty() && *catalog != asking.name) {
            let what = format!(
                "rows go to the database of the connection, '{}', not to '{catalog}': the header {DATABASE} names it",
                asking.name
            );
            return Err(Status::invalid_argument(what));
        }
        let exists = asking.database.collection(&ingest.table).is_ok();
        let options = ingest.table_definition_options.unwrap_or_default();
        if exists && options.if_exists == TableExistsOption::Replace as i32 {
            return Err(Status::invalid_argument("a collection is not replaced by rows: DROP COLLECTION removes it"));
        }
        if exists && options.if_exists == TableExistsOption::Fail as i32 {
            return Err(Status::already_exists(format!("'{}' exists already: append to it", ingest.table)));
        }
        if !exists && options.if_not_exist == TableNotExistOption::Create as i32 {
            let what = format!(
                "there is no collection '{0}', and rows do not tell its time field: CREATE COLLECTION {0} WITH (timeField = \
                 'time') makes it",
                ingest.table
            );
            return Err(Status::not_found(what));
        }
        let insert = super::collections::Insert {
            shared: &self.shared,
            database: asking.database,
            name: &ingest.table,
            account: asking.caller.account,
        };
        let (mut arriving, mut count) = (Arriving::new(batches(request, self.shared.settings.message_bytes_max)), 0);
        loop {
            let (together, end) = arriving.arrived().await;
            let stored = tokio::task::block_in_place(|| insert_together(&insert, &together, &mut count));
            match stored.and(end) {
                Ok(true) => {}
                Ok(false) => break,
                Err(status) => return Err(if count == 0 { status } else { after(&status, count) }),
            }
        }
        add(&self.shared.counters.rows_posted, count);
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let asking = self.asking(&request).await?;
        refuse_transaction(query.transaction_id.as_deref())?;
        let statement = self.statement(&asking, &query.query)?;
        let described = within(self.deadline(), Arc::clone(&statement).describe()).await?;
        let described = described.and_then(SqlDescription::known).map_err(|error| self.refused(error.into()))?;
        let columns = sent(described.columns.unwrap_or_else(|| Arc::new(Schema::empty())));
        let parameters = prepared::parameters(&described.parameters);
        let handle = self.prepared.add(statement, asking.caller.account, self.shared.now())?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle,
            dataset_schema: prepared::bytes(&columns)?,
            parameter_schema: prepared::bytes(&parameters)?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let asking = self.asking(&request).await?;
        self.prepared.remove(&query.prepared_statement_handle, &asking.caller.account);
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let asking = self.asking(&request).await?;
        let rows: Vec<RecordBatch> = batches(request, self.shared.settings.message_bytes_max).try_collect().await?;
        let mut rows = prepared::rows(&rows);
        let values = rows.pop().unwrap_or_default();
        if !rows.is_empty() {
            return Err(Status::invalid_argument("a query takes one row of parameters"));
        }
        let handle = query.prepared_statement_handle;
        self.prepared.bind(&handle, &asking.caller.account, values, self.shared.now())?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) })
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let (statement, values, _) = self.prepared_statement(&query.prepared_statement_handle, &request).await?;
        self.planned(statement, values, &query, request).await
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Data> {
        let (statement, values, caller) = self.prepared_statement(&query.prepared_statement_handle, &request).await?;
        if statement.kind() != SqlKind::Query {
            return Ok(Response::new(nothing()));
        }
        self.rows(statement, values, request.into_inner().ticket, caller).await
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let (statement, ..) = self.prepared_statement(&query.prepared_statement_handle, &request).await?;
        let sent: Vec<RecordBatch> = batches(request, self.shared.settings.message_bytes_max).try_collect().await?;
        let mut rows = prepared::rows(&sent);
        if rows.is_empty() && statement.takes() == 0 {
            rows.push(Vec::new());
        }
        let mut count = 0_i64;
        for values in rows {
            let written = self.write(Arc::clone(&statement), values).await;
            count +=
                written.map_err(|status| if count == 0 { status } else { after(&status, count.unsigned_abs()) })?;
        }
        Ok(count)
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let asking = self.asking(&request).await?;
        let info = FlightInfo::decode(&*query.info).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.cancel(&info, &asking.caller.account)?;
        Ok(ActionCancelQueryResult { result: CancelStatus::Cancelled as i32 })
    }

    async fn do_action_fallback(&self, request: Request<Action>) -> Answer<<Self as FlightService>::DoActionStream> {
        let asking = self.asking(&request).await?;
        let Action { r#type: kind, body } = request.get_ref();
        if kind != CANCEL_FLIGHT_INFO {
            return Err(Status::invalid_argument(format!(
                "there is no action '{kind}'; ListActions names those there are"
            )));
        }
        let asked =
            CancelFlightInfoRequest::decode(&**body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.cancel(&asked.info.unwrap_or_default(), &asking.caller.account)?;
        let result = CancelFlightInfoResult { status: CancelStatus::Cancelled as i32 };
        let result = arrow_flight::Result { body: result.encode_to_vec().into() };
        Ok(Response::new(stream::once(async { Ok(result) }).boxed()))
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let description =
            "Ends a query\nRequest Message: CancelFlightInfoRequest\nResponse Message: CancelFlightInfoResult";
        Some(vec![Ok(ActionType { r#type: CANCEL_FLIGHT_INFO.to_owned(), description: description.to_owned() })])
    }

    async fn do_action_begin_transaction(
        &self,
        _: ActionBeginTransactionRequest,
        _: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        Err(Status::unimplemented("there are no transactions: each statement is atomic by itself, so use autocommit"))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let schema = query.into_builder().schema();
        Self::told(&query, &schema, request)
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, request: Request<Ticket>) -> Answer<Data> {
        let asking = self.asking(&request).await?;
        let mut builder = query.into_builder();
        builder.append(asking.name);
        Ok(Response::new(whole(builder.build())?))
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let schema = query.clone().into_builder().schema();
        Self::told(&query, &schema, request)
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, request: Request<Ticket>) -> Answer<Data> {
        let asking = self.asking(&request).await?;
        let mut builder = query.into_builder();
        for schema in catalog::SCHEMAS {
            builder.append(&asking.name, schema);
        }
        Ok(Response::new(whole(builder.build())?))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let schema = query.clone().into_builder().schema();
        Self::told(&query, &schema, request)
    }

    async fn do_get_tables(&self, query: CommandGetTables, request: Request<Ticket>) -> Answer<Data> {
        let asking = self.asking(&request).await?;
        let with_columns = query.include_schema;
        let mut builder = query.into_builder();
        for table in catalog::tables(&*self.sql()?, &asking.database, with_columns).await? {
            let schema = sent(table.columns);
            builder.append(&asking.name, table.schema, table.name, table.kind, &schema).map_err(Status::from)?;
        }
        Ok(Response::new(whole(builder.build())?))
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let schema = query.into_builder().schema();
        Self::told(&query, &schema, request)
    }

    async fn do_get_table_types(&self, query: CommandGetTableTypes, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        let mut builder = query.into_builder();
        for kind in catalog::KINDS {
            builder.append(kind);
        }
        Ok(Response::new(whole(builder.build())?))
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let (info, _) = self.info.as_ref().ok_or_else(|| internal("nothing is known of the server"))?;
        Self::told(&query, &info.schema(), request)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        let (info, _) = self.info.as_ref().ok_or_else(|| internal("nothing is known of the server"))?;
        Ok(Response::new(whole(query.into_builder(info).build())?))
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        let (_, types) = self.info.as_ref().ok_or_else(|| internal("nothing is known of types"))?;
        let schema = query.into_builder(types).schema();
        Self::told(&query, &schema, request)
    }

    async fn do_get_xdbc_type_info(&self, query: CommandGetXdbcTypeInfo, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        let (_, types) = self.info.as_ref().ok_or_else(|| internal("nothing is known of types"))?;
        Ok(Response::new(whole(query.into_builder(types).build())?))
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        Self::told(&query, &catalog::primary_keys(), request)
    }

    async fn do_get_primary_keys(&self, _: CommandGetPrimaryKeys, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        Ok(Response::new(encoded(Arc::new(catalog::primary_keys()), stream::empty().boxed())))
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        Self::told(&query, &catalog::foreign_keys(), request)
    }

    async fn do_get_exported_keys(&self, _: CommandGetExportedKeys, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        Ok(Response::new(encoded(Arc::new(catalog::foreign_keys()), stream::empty().boxed())))
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        self.asking(&request).await?;
        Self::told(&query, &catalog::foreign_keys(), request)
    }

    async fn do_get_imported_keys(&self, _: CommandGetImportedKeys, request: Request<Ticket>) -> Answer<Data> {
        self.asking(&request).await?;
        Ok(Response::new(encoded(Arc::new(catalog::foreign_keys()), stream::empty().boxed())))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

impl Flight {
    /// Checks the login of a request alone.
    async fn asking_login<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let headers: HeaderMap = request.metadata().clone().into_headers();
        let ends = request.extensions().get::<Ends>().copied();
        let ends = ends.ok_or_else(|| internal("the ends of the connection are not known"))?;
        authorize(&self.shared, ends, &headers, None, Role::Read).await?;
        Ok(())
    }
}

fn refuse_transaction(id: Option<&[u8]>) -> Result<(), Status> {
    match id {
        None | Some([]) => Ok(()),
        Some(_) => Err(Status::invalid_argument("there is no such transaction: each statement is atomic by itself")),
    }
}

/// An error after some of what was sent has been stored.
fn after(status: &Status, count: u64) -> Status {
    Status::new(status.code(), format!("{}; {count} rows before it are stored", status.message()))
}
