//! Who sends a request, and whether it may.

use super::failed::Failed;
use crate::accounts::{Role, TOKEN_PREFIX};
use crate::ends::Ends;
use crate::error::Failure;
use crate::gate::Actor;
use crate::shared::{Shared, add};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use ebbtide_ttl::Code;

/// The header by which a program says that it is no page in a browser.
const SENDER: &str = "x-ebbtide";
/// Base64 with its padding, or without, as drivers of Flight SQL send it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Why a request is not answered: a status and words.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.0, format!("{}\n", self.1)).into_response();
        if self.0 == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Basic realm=\"ebbtide\", charset=\"UTF-8\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Refused(StatusCode::INTERNAL_SERVER_ERROR, failure.to_string())
    }
}

/// Refuses a request that a page of another host could have made: it cannot send these headers without asking.
pub(super) fn check_sender(headers: &HeaderMap, has_login: bool) -> Result<(), Refused> {
    if has_login || headers.contains_key(AUTHORIZATION) || headers.contains_key(SENDER) {
        return Ok(());
    }
    let what = "a request that changes something needs a login, or the header X-Ebbtide: 1 where there are no accounts";
    Err(Refused(StatusCode::FORBIDDEN, what.to_owned()))
}

/// What a request logs in with.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
enum Credentials {
    Password { name: String, password: String },
    Token(String),
}

impl Credentials {
    fn password(name: &str, password: &str) -> Credentials {
        Credentials::Password { name: name.to_owned(), password: password.to_owned() }
    }
}

/// What a request says: `Basic`, or `Bearer` or `Token` with a token of an account, or with `name:password` in its place.
fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let (scheme, value) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let scheme = scheme.to_ascii_lowercase();
    if matches!(scheme.as_str(), "bearer" | "token") && value.trim().starts_with(TOKEN_PREFIX) {
        return Some(Credentials::Token(value.trim().to_owned()));
    }
    let plain = match scheme.as_str() {
        "basic" => String::from_utf8(BASE64.decode(value.trim()).ok()?).ok()?,
        // Clients of Flight get their credentials back as a token.
        "bearer" | "token" if !value.contains(':') => String::from_utf8(BASE64.decode(value.trim()).ok()?).ok()?,
        "bearer" | "token" => value.trim().to_owned(),
        _ => return None,
    };
    plain.split_once(':').map(|(name, password)| Credentials::password(name, password))
}

/// Who sent a request: an account and its role. Where there are no accounts its name is empty, and it may do everything.
pub(super) struct Caller {
    pub(super) account: String,
    pub(super) role: Role,
    pub(super) actor: Actor,
}

/// Ends what takes long once who asked for it may not any more: the accounts may have changed since.
pub(super) fn check_still(shared: &Shared, actor: &Actor, needed: Role) -> Result<(), Failed> {
    match shared.gate.role_of(actor) {
        Some(role) if role >= needed => Ok(()),
        _ => {
            let what =
                "the account is gone, or its role, its password or its token was changed while the statement ran";
            Err(Failed::new(StatusCode::UNAUTHORIZED, Code::IllegalOperation, what))
        }
    }
}

/// Checks that a request comes from an account with this role, where there are accounts, and returns who it is. `given` is what
/// the parameters of the request say.
pub(super) async fn authorize(
    shared: &Shared,
    ends: Ends,
    headers: &HeaderMap,
    given: Option<(&str, &str)>,
    needed: Role,
) -> Result<Caller, Refused> {
    if !shared.gate.needs_login() {
        return Ok(Caller { account: String::new(), role: Role::Admin, actor: Actor::Anybody });
    }
    let unauthorized = |what: &str| Refused(StatusCode::UNAUTHORIZED, what.to_owned());
    let given = given.map(|(name, password)| Credentials::password(name, password));
    let what = match headers.contains_key(AUTHORIZATION) {
        true => {
            "the header Authorization cannot be decoded: it takes Basic with NAME:PASSWORD in base64, or Bearer with a token"
        }
        false => "a login is needed",
    };
    let credentials = credentials(headers).or(given).ok_or_else(|| unauthorized(what))?;
    let turn = shared.turn(ends.peer.ip()).await;
    let turn = turn.ok_or_else(|| Refused(StatusCode::TOO_MANY_REQUESTS, "too many logins wait".to_owned()))?;
    let (name, actor) = match credentials {
        Credentials::Token(token) => match shared.gate.by_token(&token) {
            Some((name, _)) => (name, Some(Actor::Token(token))),
            None => ("of an unknown token".to_owned(), None),
        },
        Credentials::Password { name, password } => {
            let user = tokio::task::block_in_place(|| shared.gate.by_password(&name, &password));
            (name, user.map(Actor::User))
        }
    };
    let proven = actor.and_then(|actor| Some((shared.gate.role_of(&actor)?, actor)));
    match proven {
        None => {
            shared.refuse_login(ends.peer, &name);
            drop(turn);
            tokio::time::sleep(shared.gate.delay()).await;
            Err(unauthorized("the login was refused"))
        }
        Some((role, _)) if role < needed => {
            Err(Refused(StatusCode::FORBIDDEN, format!("this needs the role {needed}, not {role}")))
        }
        Some((role, actor)) => {
            add(&shared.counters.logins, 1);
            Ok(Caller { account: name, role, actor })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_passwords_or_tokens() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        let ada = Some(Credentials::password("ada", "a:b"));
        assert_eq!(of(&format!("Basic {}", BASE64.encode("ada:a:b"))), ada);
        assert_eq!(of("bearer ada:a:b"), ada);
        // With and without the padding.
        for (encoded, password) in [("YWRhOng=", "x"), ("YWRhOng", "x"), ("YWRhOnh5eg==", "xyz"), ("YWRhOnh5eg", "xyz")]
        {
            for scheme in ["Basic", "Bearer"] {
                assert_eq!(of(&format!("{scheme} {encoded}")), Some(Credentials::password("ada", password)));
            }
        }
        let token = Some(Credentials::Token("ebt_x-_".to_owned()));
        assert_eq!(
            (of("Bearer ebt_x-_"), of("Token  ebt_x-_ ")),
            (Some(Credentials::Token("ebt_x-_".to_owned())), token)
        );
        for wrong in ["", "Basic", "Basic !", "Basic YWRh", "Bearer abc", "Digest ada:a"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
