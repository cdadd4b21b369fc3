//! Ships an open database in the background.

use super::shipper::Shipper;
use super::status::ShipStatus;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use ebbtide_ttl::Code;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest pause after an error.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A database that is shipped in the background, until this is dropped.
#[derive(Debug)]
pub struct Shipping {
    shipper: Arc<Mutex<Shipper>>,
    ends: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shipping {
    #[expect(clippy::disallowed_methods, reason = "it waits for a store, and a program need not have a tokio runtime")]
    pub(crate) fn begin(engine: &Arc<Engine>, shipper: Shipper, every: Duration) -> Shipping {
        let (shipper, ends) = (Arc::new(Mutex::new(shipper)), Arc::new(AtomicBool::new(false)));
        let (shared, told, engine) = (shipper.clone(), ends.clone(), Arc::downgrade(engine));
        let thread = std::thread::spawn(move || run(&engine, &shared, &told, every));
        Shipping { shipper, ends, thread: Mutex::new(Some(thread)) }
    }

    /// How far the database is shipped.
    #[must_use]
    pub fn status(&self) -> ShipStatus {
        self.shipper.lock().status().clone()
    }

    /// Ships everything that was acknowledged before the call.
    ///
    /// # Errors
    /// As for [`Shipper::ship_now`].
    pub fn ship_now(&self) -> Result<ShipStatus> {
        self.shipper.lock().ship_now()
    }
}

impl Drop for Shipping {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that ships a database has panicked");
            }
        }
    }
}

fn run(engine: &Weak<Engine>, shipper: &Mutex<Shipper>, ends: &AtomicBool, every: Duration) {
    let mut pause = every;
    while !ends.load(Ordering::Acquire) {
        let stepped = {
            let mut shipper = shipper.lock();
            let stepped = shipper.step();
            let Some(engine) = engine.upgrade() else { return };
            *engine.copies.ship.lock() = Some(shipper.status().clone());
            if let Some(error) = shipper.superseded() {
                tracing::error!(%error, "the database is no longer shipped");
                if error.code() == Code::NotWritable {
                    engine.poison_with(error.clone());
                }
                return;
            }
            stepped
        };
        pause = match stepped {
            Ok(true) => every,
            Ok(false) => continue,
            Err(error) => {
                report(&error);
                (pause * 2).clamp(Duration::from_secs(1), PAUSE_MAX)
            }
        };
        std::thread::park_timeout(pause);
    }
}

fn report(error: &Error) {
    tracing::warn!(%error, "the database could not be shipped; it is tried again");
}
