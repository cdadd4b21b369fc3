//! Ebbtide on the network.
//!
//! A [`Server`] opens doors to one database, or to a folder of them, for programs that speak MongoDB's wire protocol:
//! MongoDB's drivers, mongosh, and what is built on them. It runs the engine's background work as well.
//!
//! ```
//! use ebbtide_server::{Databases, Server, Settings};
//!
//! # let folder = tempfile::tempdir()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let databases = Databases::one(folder.path().join("weather"))?;
//! let settings = Settings { mongodb: Some(0), ..Settings::default() };
//! let server = Server::start(databases, settings).await?;
//! println!("mongodb {}", server.mongodb_address().expect("it was asked for"));
//! server.stop().await?;
//! # Ok::<(), ebbtide_server::Failure>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
mod aggregate;
mod batches;
mod client;
mod collections;
mod command;
mod connection;
mod cursors;
mod databases;
mod deadline;
mod dispatch;
mod error;
mod explain;
mod frame;
mod groups;
mod handshake;
mod json;
mod measurements;
mod output;
mod piped;
mod read;
mod reply;
mod serve;
mod settings;
mod shared;
mod write;

pub use databases::Databases;
pub use error::Failure;
pub use serve::{Server, interrupted};
pub use settings::Settings;

/// For fuzz targets: reads a message as the server does, and says whether it is one.
#[doc(hidden)]
pub fn is_message(bytes: &[u8]) -> bool {
    frame::unpacked(bytes).is_ok_and(|unpacked| frame::Message::parse(unpacked.bytes()).is_ok())
}
