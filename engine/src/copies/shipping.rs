//! Ships an open database in the background.

use super::shipper::Shipper;
use super::status::ShipStatus;
use super::worker::{PAUSE_MIN, Worker};
use crate::engine::Engine;
use crate::error::Result;
use crate::sync::Mutex;
use ebbtide_ttl::Code;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest pause after an error.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A database that is shipped in the background, until this is dropped. [`crate::Database::ship_status`] tells how far it is.
#[derive(Debug)]
pub struct Shipping {
    shipper: Arc<Mutex<Shipper>>,
    engine: Weak<Engine>,
    worker: Option<Worker>,
}

impl Shipping {
    pub(crate) fn begin(engine: &Arc<Engine>, shipper: Shipper, every: Duration) -> Shipping {
        let (shipper, engine) = (Arc::new(Mutex::new(shipper)), Arc::downgrade(engine));
        let every = every.max(PAUSE_MIN);
        let (shared, of, mut pause) = (shipper.clone(), engine.clone(), every);
        let worker = Worker::begin(move || step(&of, &mut shared.lock(), every, &mut pause));
        Shipping { shipper, engine, worker: Some(worker) }
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
        drop(self.worker.take());
        if let Some(engine) = self.engine.upgrade() {
            *engine.copies.ship.lock() = None;
        }
    }
}

/// One step; returns how long to wait for the next one, or `None` if there is none.
fn step(engine: &Weak<Engine>, shipper: &mut Shipper, every: Duration, pause: &mut Duration) -> Option<Duration> {
    let stepped = shipper.step();
    let engine = engine.upgrade()?;
    *engine.copies.ship.lock() = Some(shipper.status().clone());
    if let Some(error) = shipper.superseded() {
        tracing::error!(%error, "the database is no longer shipped");
        if error.code() == Code::NotWritable {
            engine.poison_with(error.clone());
        }
        return None;
    }
    match stepped {
        Ok(true) => *pause = every,
        Ok(false) => return Some(Duration::ZERO),
        Err(error) => {
            tracing::warn!(%error, "the database could not be shipped; it is tried again");
            *pause = (*pause * 2).clamp(Duration::from_secs(1), PAUSE_MAX);
        }
    }
    Some(*pause)
}
