//! How many rows a second an account may write.

use crate::error::{CommandError, Result, ServerCode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The rows that accounts have written lately.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: Option<u64>,
    budgets: Mutex<HashMap<String, Budget>>,
}

/// The rows that an account may still write at a time; below 0 after a large command.
#[derive(Debug, Clone, Copy)]
struct Budget {
    rows: f64,
    at: Duration,
}

impl Rates {
    pub(crate) fn new(per_second: Option<u64>) -> Rates {
        Rates { per_second, budgets: Mutex::default() }
    }

    /// Takes rows from the budget of an account. A command may take more than a second's rows; what comes after it has to wait
    /// accordingly longer.
    pub(crate) fn take(&self, account: &str, rows: u64, now: Duration) -> Result<()> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let mut budgets = self.budgets.lock();
        let limit = per_second as f64;
        let budget = budgets.entry(account.to_owned()).or_insert(Budget { rows: limit, at: now });
        let earned = now.saturating_sub(budget.at).as_secs_f64() * limit;
        *budget = Budget { rows: (budget.rows + earned).min(limit), at: now.max(budget.at) };
        if budget.rows > 0.0 {
            budget.rows -= rows as f64;
            return Ok(());
        }
        let wait = Duration::from_secs_f64(-budget.rows / limit).as_millis() + 1;
        let what = format!("the account may write {per_second} rows a second: send this again in {wait} ms");
        Err(CommandError::of_server(ServerCode::IngressRequestRateLimitExceeded, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_writes_its_rows_a_second_on_average() {
        let rates = Rates::new(Some(100));
        let at = Duration::from_millis;
        let refused = |account, rows, now| rates.take(account, rows, at(now)).err().map(|error| error.message);
        assert_eq!(refused("a", 99, 0), None);
        assert_eq!(refused("a", 300, 0), None, "a command may be larger than the rest");
        let said = refused("a", 1, 0).unwrap();
        assert!(said.contains("100 rows a second") && said.contains("2991 ms"), "{said}");
        assert!(refused("a", 1, 2980).is_some());
        assert_eq!(refused("b", 1, 0), None, "each account has its own");
        assert_eq!(refused("a", 50, 3000), None);
        // Not more than a second's rows are saved up.
        assert_eq!(refused("a", 100, 100_000), None);
        assert!(refused("a", 1, 100_000).is_some());
        assert!(Rates::new(None).take("a", u64::MAX, at(0)).is_ok());
    }
}
