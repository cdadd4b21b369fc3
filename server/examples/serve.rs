//! Serves a database, or with `--dbs` a folder of them, until it is interrupted.
//!
//! ```text
//! cargo run -p ebbtide-server --example serve -- --dbs DIR [PORT]
//! ```

use ebbtide_server::{Databases, Server, Settings, Signals};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().ok_or("usage: serve [--dbs] DIR [PORT]")?;
    let databases = match first.as_str() {
        "--dbs" => Databases::in_folder(arguments.next().ok_or("--dbs needs a folder")?)?,
        folder => Databases::one(folder)?,
    };
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let server = Server::start(databases, Settings { mongodb: Some(port), ..Settings::default() }).await?;
    if let Some(address) = server.mongodb_address() {
        println!("mongodb {address}");
    }
    println!("ready");
    Signals::new()?.next().await;
    server.stop().await?;
    Ok(())
}
