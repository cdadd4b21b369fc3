//! Errors with PostgreSQL's codes.

use crate::sql::SqlError;
use ebbtide_ttl::Code;
use pgwire::error::PgWireError;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};

/// PostgreSQL's five characters for a class of errors (its manual, appendix A).
pub(super) type State = &'static str;

pub(super) const PROTOCOL_VIOLATION: State = "08P01";
pub(super) const FEATURE_NOT_SUPPORTED: State = "0A000";
pub(super) const VALUE_OUT_OF_RANGE: State = "22003";
pub(super) const INVALID_PARAMETER_VALUE: State = "22023";
pub(super) const INVALID_TEXT: State = "22P02";
pub(super) const INVALID_BINARY: State = "22P03";
pub(super) const ACTIVE_TRANSACTION: State = "25001";
pub(super) const READ_ONLY_TRANSACTION: State = "25006";
pub(super) const NO_ACTIVE_TRANSACTION: State = "25P01";
pub(super) const FAILED_TRANSACTION: State = "25P02";
pub(super) const INVALID_STATEMENT_NAME: State = "26000";
pub(super) const INVALID_AUTHORIZATION: State = "28000";
pub(super) const INVALID_PASSWORD: State = "28P01";
pub(super) const INVALID_CURSOR_NAME: State = "34000";
pub(super) const INVALID_CATALOG_NAME: State = "3D000";
pub(super) const INVALID_SAVEPOINT: State = "3B001";
pub(super) const INSUFFICIENT_PRIVILEGE: State = "42501";
pub(super) const SYNTAX_ERROR: State = "42601";
pub(super) const UNDEFINED_OBJECT: State = "42704";
pub(super) const DUPLICATE_CURSOR: State = "42P03";
pub(super) const DUPLICATE_STATEMENT: State = "42P05";
pub(super) const LIMIT_EXCEEDED: State = "54000";
pub(super) const QUERY_CANCELED: State = "57014";
pub(super) const SHUTDOWN: State = "57P01";
const INTERNAL_ERROR: State = "XX000";

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) state: State,
    pub(super) message: String,
    /// Whether the connection ends with it.
    pub(super) is_fatal: bool,
    /// The function of PostgreSQL that refuses it there, if drivers tell it from others by that.
    pub(super) routine: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(state: State, message: impl Into<String>) -> Refusal {
        Refusal { state, message: message.into(), is_fatal: false, routine: None }
    }

    pub(super) fn fatal(state: State, message: impl Into<String>) -> Refusal {
        Refusal { is_fatal: true, ..Refusal::new(state, message) }
    }

    /// Of a prepared statement that does not return the columns that it was described with. Drivers prepare it again.
    pub(super) fn changed_columns() -> Refusal {
        let what = "cached plan must not change result type: the columns of the prepared statement have changed since it \
                    was described; prepare it again";
        Refusal { routine: Some("RevalidateCachedQuery"), ..Refusal::new(FEATURE_NOT_SUPPORTED, what) }
    }

    pub(super) fn response(&self) -> ErrorResponse {
        let severity = if self.is_fatal { "FATAL" } else { "ERROR" };
        let mut fields = fields(severity, self.state, &self.message);
        fields.extend(self.routine.map(|routine| (b'R', routine.to_owned())));
        ErrorResponse::new(fields)
    }
}

/// What is told beside a result.
pub(super) fn notice(message: &str) -> NoticeResponse {
    NoticeResponse::new(fields("NOTICE", "00000", message))
}

fn fields(severity: &str, state: State, message: &str) -> Vec<(u8, String)> {
    let field = |kind: u8, text: &str| (kind, text.to_owned());
    vec![field(b'S', severity), field(b'V', severity), field(b'C', state), field(b'M', message)]
}

fn state_of(code: Code) -> State {
    match code {
        Code::FailedToParse | Code::IDLUnknownField => SYNTAX_ERROR,
        Code::NamespaceNotFound => "42P01",
        Code::NamespaceExists => "42P07",
        Code::TypeMismatch => "42804",
        Code::DuplicateKey => "23505",
        Code::IllegalOperation => FEATURE_NOT_SUPPORTED,
        Code::IndexNotFound => UNDEFINED_OBJECT,
        Code::ExceededMemoryLimit => "53200",
        Code::OutOfDiskSpace => "53100",
        Code::LockBusy => "55P03",
        Code::NotWritable => READ_ONLY_TRANSACTION,
        Code::Interrupted => QUERY_CANCELED,
        Code::FileStreamFailed => "58030",
        Code::DataCorruptionDetected => "XX001",
        Code::InternalError => INTERNAL_ERROR,
        _ => INVALID_PARAMETER_VALUE,
    }
}

/// What the message of a statement that is wrong begins with or contains, and the class of the error.
const BY_MESSAGE: [(&str, State); 17] = [
    ("' doesn't exist", "42P01"),
    ("there is no column '", "42703"),
    ("there is no member '", "42703"),
    ("there is no function '", "42883"),
    ("there is no table function '", "42883"),
    ("no function matches", "42883"),
    ("' is neither in GROUP BY nor within an aggregate", "42803"),
    ("divide by zero", "22012"),
    ("overflow: ", VALUE_OUT_OF_RANGE),
    ("does not fit", VALUE_OUT_OF_RANGE),
    ("an't cast value", VALUE_OUT_OF_RANGE),
    ("cannot cast string", INVALID_TEXT),
    ("' is not an array: ", INVALID_TEXT),
    ("error parsing timestamp", "22007"),
    ("' is not a time", "22007"),
    ("nvalid input syntax for type", INVALID_TEXT),
    ("not supported: ", FEATURE_NOT_SUPPORTED),
];

/// The class of an error of a statement, by its words: the engine has one code for what is wrong with statements.
fn state_of_text(message: &str) -> State {
    // What follows the first line shows the statement.
    let line = message.lines().next().unwrap_or_default();
    let found = BY_MESSAGE
        .iter()
        .filter_map(|(part, state)| Some((line.to_ascii_lowercase().find(&part.to_ascii_lowercase())?, *state)));
    found.min_by_key(|(at, _)| *at).map_or(INVALID_PARAMETER_VALUE, |(_, state)| state)
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Forbidden(needed) => {
                Refusal::new(INSUFFICIENT_PRIVILEGE, format!("this statement needs the role {needed}"))
            }
            // Of a statement that was prepared in SQL.
            SqlError::Failed(Code::BadValue, message)
                if message.starts_with("prepared statement ") && message.ends_with(" does not exist") =>
            {
                Refusal::new(INVALID_STATEMENT_NAME, message)
            }
            SqlError::Failed(Code::BadValue, message) => Refusal::new(state_of_text(&message), message),
            SqlError::Failed(code, message) => Refusal::new(state_of(code), message),
        }
    }
}

/// Of what encodes values and messages.
impl From<PgWireError> for Refusal {
    fn from(error: PgWireError) -> Self {
        match error {
            PgWireError::UserError(said) if said.code == VALUE_OUT_OF_RANGE => {
                Refusal::new(VALUE_OUT_OF_RANGE, said.message)
            }
            error => Refusal::new(INTERNAL_ERROR, error.to_string()),
        }
    }
}

impl From<arrow::error::ArrowError> for Refusal {
    fn from(error: arrow::error::ArrowError) -> Self {
        Refusal::new(INTERNAL_ERROR, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_statements_have_the_codes_that_programs_tell_apart() {
        for (message, state) in [
            ("there is no column 'x'; did you mean 's'? (line 1, column 8)\n  SELECT x", "42703"),
            ("there is no function 'to_regtyp'", "42883"),
            ("table 'nope' doesn't exist.", "42P01"),
            ("divide by zero error", "22012"),
            ("overflow: 1 + 1 does not fit Int64", "22003"),
            ("Cannot cast string 'x' to value of Int64 type", INVALID_TEXT),
            ("not supported: LATERAL", FEATURE_NOT_SUPPORTED),
            ("anything else\nthere is no column 'x'", INVALID_PARAMETER_VALUE),
        ] {
            let refusal = Refusal::from(SqlError::Failed(Code::BadValue, message.to_owned()));
            assert_eq!((refusal.state, refusal.message.as_str()), (state, message));
        }
    }
}
