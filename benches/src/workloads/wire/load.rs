//! A load generator: raw frames over many connections, all on one thread. Every reply is checked.

use crate::Result;
use crate::measure::Stopwatch;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, rawdoc};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const OP_MSG: i32 = 2013;
/// Bytes of a reply before its document: header, flags, kind of the section.
const BEFORE_DOCUMENT: usize = 21;

/// Round trips while all connections were busy.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) micros: Vec<f64>,
    seconds: f64,
}

impl Load {
    /// Round trips in a second.
    pub(super) fn rate(&self) -> f64 {
        self.micros.len() as f64 / self.seconds
    }
}

/// A find, and what its reply must be.
struct Find {
    frame: Vec<u8>,
    station: String,
    rows: usize,
}

impl Find {
    fn check(&self, reply: &RawDocument) -> Result<()> {
        let mut rows = 0;
        for row in reply.get_document("cursor")?.get_array("firstBatch")? {
            let RawBsonRef::Document(row) = row? else {
                return Err("a batch with something else than documents".into());
            };
            if row.get_str("station")? != self.station {
                return Err(format!("{row:?} instead of a document of {}", self.station).into());
            }
            rows += 1;
        }
        if rows == self.rows {
            Ok(())
        } else {
            Err(format!("{rows} rows of {}, not {}", self.station, self.rows).into())
        }
    }
}

/// Finds of the rows of one station after the other since an instant, from each connection as soon as it has its reply. The
/// numbers of rows that are expected come with the stations.
pub(super) fn finds(
    address: SocketAddr,
    stations: &[(String, usize)],
    since: i64,
    connections: usize,
    warm_up: Duration,
    length: Duration,
) -> Result<Load> {
    let since = DateTime::from_millis(since);
    let find = |(station, rows): &(String, usize)| {
        let filter = rawdoc! { "station": station.as_str(), "time": { "$gte": since } };
        let frame = frame(&rawdoc! { "find": "weather", "filter": filter, "$db": "bench" })?;
        Ok(Find { frame, station: station.clone(), rows: *rows })
    };
    let finds: Arc<Vec<Find>> = Arc::new(stations.iter().map(find).collect::<Result<_>>()?);
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let watch = Arc::new(Stopwatch::start());
        let mut running = JoinSet::new();
        for number in 0..connections {
            let (finds, watch) = (finds.clone(), watch.clone());
            running.spawn(async move {
                let mut connection = Connection::open(address).await?;
                let mut micros = Vec::new();
                for find in finds.iter().cycle().skip(number * finds.len() / connections) {
                    let begun = watch.elapsed();
                    find.check(connection.ask(&find.frame).await?)?;
                    let ended = watch.elapsed();
                    if ended > warm_up + length {
                        break;
                    }
                    if begun >= warm_up {
                        micros.push((ended - begun).as_secs_f64() * 1e6);
                    }
                }
                Result::Ok(micros)
            });
        }
        let mut load = Load { micros: Vec::new(), seconds: length.as_secs_f64() };
        while let Some(micros) = running.join_next().await {
            load.micros.extend(micros??);
        }
        Ok(load)
    })
}

/// Microseconds of each `ping`, one after the other, after as many that are not timed.
pub(super) fn pings(address: SocketAddr, count: usize) -> Result<Vec<f64>> {
    let ping = frame(&rawdoc! { "ping": 1, "$db": "admin" })?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut connection = Connection::open(address).await?;
        let mut micros = Vec::with_capacity(2 * count);
        for _ in 0..2 * count {
            let watch = Stopwatch::start();
            connection.ask(&ping).await?;
            micros.push(watch.seconds() * 1e6);
        }
        Ok(micros.split_off(count))
    })
}

/// A frame with a command.
fn frame(command: &RawDocumentBuf) -> Result<Vec<u8>> {
    let length = i32::try_from(BEFORE_DOCUMENT + command.as_bytes().len())?;
    let mut frame: Vec<u8> = [length, 1, 0, OP_MSG, 0].into_iter().flat_map(i32::to_le_bytes).collect();
    frame.push(0);
    frame.extend(command.as_bytes());
    Ok(frame)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    /// Sends a frame; the document of the reply, which must say that it is well.
    async fn ask(&mut self, frame: &[u8]) -> Result<&RawDocument> {
        self.stream.write_all(frame).await?;
        self.buffer.clear();
        while !self.is_whole()? {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed a connection".into());
            }
        }
        let reply = RawDocument::from_bytes(self.buffer.get(BEFORE_DOCUMENT..).unwrap_or_default())?;
        if reply.get_f64("ok")? == 1.0 { Ok(reply) } else { Err(format!("refused: {reply:?}").into()) }
    }

    fn is_whole(&self) -> Result<bool> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(false) };
        Ok(self.buffer.len() >= usize::try_from(i32::from_le_bytes(*length))?)
    }
}
