use super::*;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures::{TryStreamExt, stream};
use std::sync::Arc;

/// What arrives of three batches of two rows, which `after` follows.
async fn arriving(
    after: impl FnOnce() -> Result<FlightData, FlightError> + Send + 'static,
) -> (usize, Result<bool, Status>) {
    let batch =
        || RecordBatch::try_from_iter([("n", Arc::new(arrow::array::Int64Array::from(vec![1, 2])) as _)]).unwrap();
    let encoder = FlightDataEncoderBuilder::new().build(stream::iter([batch(), batch(), batch()]).map(Ok));
    let sent: Vec<FlightData> = encoder.try_collect().await.unwrap();
    let sent = stream::iter(sent).map(Ok).chain(stream::once(async move { after() }));
    let mut arriving = Arriving::new(FlightRecordBatchStream::new_from_flight_data(sent));
    let mut rows = 0;
    loop {
        let (together, more) = arriving.arrived().await;
        rows += together.iter().map(RecordBatch::num_rows).sum::<usize>();
        match more {
            Ok(true) => {}
            end => return (rows, end),
        }
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_decoded_ends_an_ingest_with_an_error() {
    let (rows, end) = arriving(|| Err(FlightError::DecodeError("cut".to_owned()))).await;
    assert_eq!(rows, 6);
    assert!(end.unwrap_err().message().contains("cut"));
    let (rows, end) = arriving(|| panic!("as Arrow does for a body that is shorter than its header says")).await;
    assert_eq!(rows, 6);
    assert_eq!(end.unwrap_err().code(), tonic::Code::Internal);
}
