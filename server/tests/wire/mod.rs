//! A server with one client that sends raw frames.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use ebbtide_server::{Databases, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server over an empty folder, and a connection to it.
pub(crate) struct Wire {
    server: Server,
    stream: TcpStream,
    _folder: tempfile::TempDir,
}

impl Wire {
    pub(crate) async fn start() -> Wire {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::one(folder.path().join("db")).unwrap();
        let server = Server::start(databases, Settings { mongodb: Some(0), ..Settings::default() }).await.unwrap();
        let stream = TcpStream::connect(server.mongodb_address().unwrap()).await.unwrap();
        Wire { server, stream, _folder: folder }
    }

    pub(crate) async fn stop(self) {
        drop(self.stream);
        self.server.stop().await.unwrap();
    }

    /// Sends a command; the reply, be it an error.
    pub(crate) async fn ask(&mut self, command: &RawDocument) -> RawDocumentBuf {
        let mut command = command.to_owned();
        if command.get("$db").unwrap().is_none() {
            command.append(bson::raw::cstr!("$db"), "db");
        }
        let length = i32::try_from(21 + command.as_bytes().len()).unwrap();
        let mut frame: Vec<u8> = [length, 1, 0, 2013, 0].into_iter().flat_map(i32::to_le_bytes).collect();
        frame.push(0);
        frame.extend(command.as_bytes());
        self.stream.write_all(&frame).await.unwrap();
        let mut header = [0; 21];
        self.stream.read_exact(&mut header).await.unwrap();
        let length = usize::try_from(i32::from_le_bytes(header[..4].try_into().unwrap())).unwrap();
        let mut body = vec![0; length - 21];
        self.stream.read_exact(&mut body).await.unwrap();
        RawDocumentBuf::from_bytes(body).unwrap()
    }

    /// Sends a command that must succeed.
    pub(crate) async fn run(&mut self, command: &RawDocument) -> RawDocumentBuf {
        let reply = self.ask(command).await;
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command:?}: {reply:?}");
        assert!(reply.get("writeErrors").unwrap().is_none(), "{command:?}: {reply:?}");
        reply
    }

    /// The documents of a pipeline, or the number of its error.
    pub(crate) async fn aggregate(
        &mut self,
        collection: &str,
        pipeline: &bson::RawArray,
    ) -> Result<Vec<RawDocumentBuf>, i32> {
        let command =
            rawdoc! { "aggregate": collection, "pipeline": pipeline.to_owned(), "cursor": { "batchSize": 1_000_000 } };
        let reply = self.ask(&command).await;
        if reply.get_f64("ok").unwrap() == 0.0 {
            return Err(reply.get_i32("code").unwrap());
        }
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        Ok(batch.into_iter().map(|one| one.unwrap().as_document().unwrap().to_owned()).collect())
    }
}
