//! What a write waits for before it stores anything: the rate of its account, and room in memory.

use crate::command::Command;
use crate::error::{CommandError, Result, ServerCode};
use crate::shared::Shared;
use ebbtide::Database;
use ebbtide_ttl::Code;
use std::time::Duration;

/// How often a write that waits looks whether it was ended.
const LOOK: Duration = Duration::from_millis(20);

/// Takes rows from what the account may write in a second.
pub(crate) fn take_rows(command: &Command<'_>, rows: usize) -> Result<()> {
    let shared = command.shared;
    shared.rates.take(&command.client.user_name().unwrap_or_default(), rows as u64, shared.now())
}

/// Waits until there is room in the memory of a database that is written to. After an error nothing was stored since the call.
pub(crate) fn wait_for_room(command: &Command<'_>, database: &Database) -> Result<()> {
    // Within a runtime, but for tests.
    let Some(runtime) = tokio::runtime::Handle::try_current().ok().filter(|_| database.is_full()) else {
        return Ok(());
    };
    let longest = command.shared.settings.write_wait_max;
    let wait = command.deadline.left().map_or(longest, |left| left.min(longest));
    runtime.block_on(async {
        tokio::select! {
            made = room(command.shared, database, wait) => made,
            error = ended(command) => Err(error),
        }
    })
}

/// Room in the memory of a database, made by the one writer whose turn it is; an error if it takes longer than `wait`.
pub(crate) async fn room(shared: &Shared, database: &Database, wait: Duration) -> Result<()> {
    let database = database.clone();
    let made = tokio::time::timeout(wait, async {
        let turn = shared.room.clone().lock_owned().await;
        // Goes on to its end if the write does not wait so long.
        let make = move || {
            let made = database.make_room();
            drop(turn);
            made
        };
        tokio::task::spawn_blocking(make).await
    });
    match made.await {
        Ok(Ok(made)) => Ok(made?),
        Ok(Err(_)) => Err(ebbtide::Error::new(Code::Interrupted, "the server stops").into()),
        Err(_) => {
            let what = format!("the memory was full for {} ms, which is as long as this write waits", wait.as_millis());
            Err(CommandError::of_server(ServerCode::MaxTimeMSExpired, what))
        }
    }
}

/// Waits until a command was ended, and says why.
async fn ended(command: &Command<'_>) -> CommandError {
    loop {
        if let Err(error) = command.deadline.check()
            && error.code == Code::Interrupted.number()
        {
            return error;
        }
        tokio::time::sleep(LOOK).await;
    }
}
