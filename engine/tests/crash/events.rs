//! What the engine said it met: some of it has to happen in every run, or the run proves less than it seems to.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Counts events by their message.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<BTreeMap<String, u64>>>);

impl Events {
    /// Counts what is said in this thread while `work` runs.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(self.clone(), work)
    }

    /// Prints what was said, and fails if one of these never was.
    pub(crate) fn expect(&self, messages: &[&str]) {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (message, times) in &*said {
            println!("sometimes: {message}: {times} times");
        }
        let never: Vec<&&str> = messages.iter().filter(|message| !said.contains_key(**message)).collect();
        assert!(never.is_empty(), "it never happened that {never:?}");
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Events {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(message.0).or_default() += 1;
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
