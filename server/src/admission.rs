//! What a write waits for before it stores anything: the rate of its account, and room in memory.

use crate::command::Command;
use crate::error::{CommandError, Result, ServerCode};
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
    let (room, database) = (command.shared.room.clone(), database.clone());
    let made = runtime.block_on(async {
        let made = tokio::time::timeout(wait, async {
            let turn = room.lock_owned().await;
            // Goes on to its end if the command does not wait so long.
            let make = move || {
                let made = database.make_room();
                drop(turn);
                made
            };
            tokio::task::spawn_blocking(make).await
        });
        tokio::select! {
            made = made => Ok(made),
            error = ended(command) => Err(error),
        }
    })?;
    match made {
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
