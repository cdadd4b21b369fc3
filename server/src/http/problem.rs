//! Why a write is not stored, in the words of its interface.

use super::caller::Refused;
use super::lines::{BadLine, BadLines};
use crate::admission;
use crate::ends::Ends;
use crate::error::{CommandError, ServerCode};
use crate::shared::{Shared, add};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ebbtide::{Database, ErrorKind};
use ebbtide_ttl::Code;
use serde_json::json;
use tokio::runtime::Handle;

/// Of what a sender may try again, after so many seconds.
const RETRY_SECONDS: &str = "1";

/// Which of InfluxDB's generations a request is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `/write?db=&rp=&precision=&u=&p=`.
    One,
    /// `/api/v2/write?org=&bucket=&precision=`.
    Two,
    /// `/api/v3/write_lp?db=&precision=&accept_partial=`.
    Three,
}

/// Why a request is not stored, or not all of it.
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) message: String,
    lines: BadLines,
}

impl Problem {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Problem {
        Problem { status, message: message.into(), lines: BadLines::default() }
    }

    pub(super) fn bad(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn of(error: &ebbtide::Error) -> Problem {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Busy | ErrorKind::Full => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error.to_string())
    }

    pub(super) fn of_command(error: &CommandError) -> Problem {
        let is = |code: ServerCode| error.code == code as i32;
        let status = if is(ServerCode::IngressRequestRateLimitExceeded) || is(ServerCode::MaxTimeMSExpired) {
            StatusCode::TOO_MANY_REQUESTS
        } else if error.code == Code::Interrupted.number() {
            StatusCode::SERVICE_UNAVAILABLE
        } else if error.is_mistake {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Problem::new(status, error.message.clone())
    }

    /// About some lines: the first is named, and others are listed where the form has a place for them.
    pub(super) fn of_lines(lines: BadLines, stored: usize) -> Problem {
        let first = lines.listed.first().map(|bad| format!("line {}: {}", bad.number, bad.reason)).unwrap_or_default();
        let others = match lines.len() {
            0 | 1 => String::new(),
            2 => " (and 1 more line)".to_owned(),
            n => format!(" (and {} more lines)", n - 1),
        };
        let outcome = match stored {
            0 => "nothing was stored".to_owned(),
            1 => "1 other line was stored".to_owned(),
            n => format!("{n} other lines were stored"),
        };
        Problem { lines, ..Problem::bad(format!("{first}{others}: {outcome}")) }
    }

    /// In the words of a generation.
    fn response(&self, form: Form) -> Response {
        let listed =
            |bad: &BadLine| json!({"line_number": bad.number, "error_message": bad.reason, "original_line": bad.text});
        let body = match form {
            Form::One => json!({"error": self.message}),
            Form::Two => json!({"code": code_of(self.status), "message": self.message}),
            Form::Three => {
                json!({"error": self.message, "data": self.lines.listed.iter().map(listed).collect::<Vec<_>>()})
            }
        };
        let mut response = (self.status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        response
    }
}

impl From<ebbtide::Error> for Problem {
    fn from(error: ebbtide::Error) -> Self {
        Problem::of(&error)
    }
}

/// The word of the second generation for a status.
fn code_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::REQUEST_TIMEOUT => "timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "internal error",
    }
}

/// Why a request is not answered.
pub(super) enum Outcome {
    Refused(Refused),
    Problem(Problem),
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        Outcome::Refused(refused)
    }
}

impl From<Problem> for Outcome {
    fn from(problem: Problem) -> Self {
        Outcome::Problem(problem)
    }
}

impl Outcome {
    /// The reply, which is also counted and logged.
    pub(super) fn response(self, shared: &Shared, ends: Ends, form: Form) -> Response {
        match self {
            Outcome::Refused(refused) => {
                let Refused(status, message) = &refused;
                let told = Problem::new(*status, message.clone()).response(form);
                let mut response = refused.into_response();
                // With the header that asks for a login.
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                *response.body_mut() = told.into_body();
                response
            }
            Outcome::Problem(problem) => {
                add(&shared.counters.writes_refused, 1);
                let status = problem.status.as_u16();
                tracing::info!(peer = %ends.peer, status, what = %problem.message, "a write was refused");
                problem.response(form)
            }
        }
    }
}

/// Waits until there is memory for a write.
pub(super) fn wait_for_room(shared: &Shared, database: &Database) -> Result<(), Problem> {
    if !database.is_full() {
        return Ok(());
    }
    let room = admission::room(shared, database, shared.settings.write_wait_max);
    Handle::current().block_on(room).map_err(|error| Problem::of_command(&error))
}

/// What an error says, without the index of the document: the line is told instead.
pub(super) fn reason(error: &ebbtide::Error) -> String {
    let text = error.to_string();
    let rest = error.index().and_then(|index| text.strip_prefix(&format!("index {index}: ")));
    rest.map(str::to_owned).unwrap_or(text)
}
