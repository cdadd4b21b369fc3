//! Why a statement is not answered, as JSON.

use crate::error::CommandError;
use crate::sql::SqlError;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ebbtide_ttl::Code;
use serde_json::json;

/// Why a statement is not answered.
pub(super) struct Failed {
    pub(super) status: StatusCode,
    pub(super) code: i32,
    pub(super) name: String,
    pub(super) message: String,
}

impl Failed {
    pub(super) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Failed {
        Failed { status, code: code.number(), name: code.name().to_owned(), message: message.into() }
    }

    pub(super) fn mistake(message: impl Into<String>) -> Failed {
        Failed::new(StatusCode::BAD_REQUEST, Code::BadValue, message)
    }
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Forbidden(needed) => {
                let what = format!("this statement needs the role {needed}");
                Failed::new(StatusCode::FORBIDDEN, Code::IllegalOperation, what)
            }
            SqlError::Failed(code, message) => {
                let status = match code {
                    Code::NamespaceNotFound => StatusCode::NOT_FOUND,
                    Code::LockBusy | Code::NotWritable | Code::OutOfDiskSpace | Code::Interrupted => {
                        StatusCode::SERVICE_UNAVAILABLE
                    }
                    Code::InternalError | Code::DataCorruptionDetected | Code::FileStreamFailed => {
                        StatusCode::INTERNAL_SERVER_ERROR
                    }
                    _ => StatusCode::BAD_REQUEST,
                };
                Failed::new(status, code, message)
            }
        }
    }
}

impl From<CommandError> for Failed {
    fn from(error: CommandError) -> Self {
        let status = if error.is_mistake { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
        Failed { status, code: error.code, name: error.name, message: error.message }
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let body = json!({"error": self.message, "code": self.code, "codeName": self.name});
        (self.status, [(CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
    }
}
