//! The service as gRPC calls it: Flight SQL's, with the columns of a result without running its statement.

use super::{Answer, Flight};
use arrow::datatypes::Schema;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo, SchemaAsIpc,
    SchemaResult, Ticket,
};
use prost::Message;
use tonic::{Request, Response, Streaming, async_trait};

pub(super) struct Service(pub(super) Flight);

#[async_trait]
impl FlightService for Service {
    type HandshakeStream = <Flight as FlightService>::HandshakeStream;
    type ListFlightsStream = <Flight as FlightService>::ListFlightsStream;
    type DoGetStream = <Flight as FlightService>::DoGetStream;
    type DoPutStream = <Flight as FlightService>::DoPutStream;
    type DoActionStream = <Flight as FlightService>::DoActionStream;
    type ListActionsStream = <Flight as FlightService>::ListActionsStream;
    type DoExchangeStream = <Flight as FlightService>::DoExchangeStream;

    async fn handshake(&self, request: Request<Streaming<HandshakeRequest>>) -> Answer<Self::HandshakeStream> {
        self.0.handshake(request).await
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        self.0.list_flights(request).await
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        self.0.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        self.0.poll_flight_info(request).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let command = Any::decode(&*request.get_ref().cmd).ok().and_then(|any| Command::try_from(any).ok());
        let (statement, values) = match &command {
            Some(Command::CommandStatementQuery(query)) => {
                let asking = self.0.asking(&request).await?;
                (self.0.statement(&asking, &query.query)?, Vec::new())
            }
            Some(Command::CommandPreparedStatementQuery(query)) => {
                let (statement, values, _) =
                    self.0.prepared_statement(&query.prepared_statement_handle, &request).await?;
                (statement, values)
            }
            // What is left has no statement to run.
            _ => {
                let info = self.0.get_flight_info(request).await?;
                return Ok(info.map(|info| SchemaResult { schema: info.schema }));
            }
        };
        let columns = self.0.columns(&statement, values).await?;
        schema_of(&columns)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        self.0.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        self.0.do_put(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        self.0.do_action(request).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        self.0.list_actions(request).await
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        self.0.do_exchange(request).await
    }
}

fn schema_of(schema: &Schema) -> Answer<SchemaResult> {
    let options = IpcWriteOptions::default();
    Ok(Response::new(SchemaAsIpc::new(schema, &options).try_into().map_err(super::unmade)?))
}
