//! The options of `ebbtide worker`, and those of sessions that use workers.

use super::parse_bytes;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Address and port to listen at; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,

    /// Answer queries over the copy at this URL, and over copies in folders under it; can be repeated.
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) allow: Vec<String>,

    /// Keep the segments that are fetched in this folder. Default: a temporary one.
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// Bytes of segments to keep there, such as 50G.
    #[arg(long, value_name = "BYTES", default_value = "10G", value_parser = parse_bytes)]
    pub(crate) cache_bytes: usize,

    /// Memory that the sorts, joins and groups of all queries may use before they spill to disk.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_bytes)]
    pub(crate) memory: usize,

    /// File with the secret that sessions must present. Default: the value of EBBTIDE_WORKER_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
