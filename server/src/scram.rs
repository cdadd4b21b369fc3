//! SCRAM-SHA-256 (RFC 5802 and 7677): what is stored of a password, and the exchange by which a client proves that it knows it.
//!
//! 1. Nothing is stored or sent from which the password could be had but by trying passwords, at 15,000 rounds each.
//! 2. Names are compared byte by byte, and passwords are normalized with SASLprep, both as in MongoDB.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::borrow::Cow;
use std::num::NonZero;
use subtle::ConstantTimeEq;

/// Rounds of PBKDF2, as in MongoDB.
pub(crate) const ITERATIONS: NonZero<u32> = NonZero::new(15_000).expect("not 0");
const SALT_BYTES: usize = 28;
const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
/// Bytes of a client's nonce, or of a password, at most.
const TEXT_BYTES_MAX: usize = 1024;

pub(crate) type Key = [u8; KEY_BYTES];

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], &'static str> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the operating system gives no random numbers")?;
    Ok(bytes)
}

/// What is stored of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    pub(crate) iterations: NonZero<u32>,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
}

fn sign(key: &[u8], message: &[u8]) -> Key {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn hash(bytes: &[u8]) -> Key {
    let mut hash = [0; KEY_BYTES];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

/// The form of a password that is hashed.
fn prepared(password: &str) -> Result<Cow<'_, str>, &'static str> {
    if password.is_empty() {
        return Err("the password is empty");
    }
    if password.len() > TEXT_BYTES_MAX {
        return Err("the password is longer than 1024 bytes");
    }
    stringprep::saslprep(password).map_err(|_| "the password has characters that cannot be typed reliably (RFC 4013)")
}

impl Verifier {
    /// For a new password.
    pub(crate) fn of_password(password: &str) -> Result<Verifier, &'static str> {
        Verifier::derive(password, ITERATIONS, random::<SALT_BYTES>()?.to_vec())
    }

    fn derive(password: &str, iterations: NonZero<u32>, salt: Vec<u8>) -> Result<Verifier, &'static str> {
        let mut salted = [0; KEY_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, prepared(password)?.as_bytes(), &mut salted);
        let stored_key = hash(&sign(&salted, b"Client Key"));
        Ok(Verifier { iterations, salt, stored_key, server_key: sign(&salted, b"Server Key") })
    }

    /// What a name without an account shows: the same salt every time, as an account would.
    pub(crate) fn of_nobody(secret: &Key, name: &str) -> Verifier {
        let part = |label: &str| sign(secret, format!("{label}:{name}").as_bytes());
        let salt = part("salt")[..SALT_BYTES].to_vec();
        Verifier { iterations: ITERATIONS, salt, stored_key: part("stored"), server_key: part("server") }
    }

    /// Whether it is the verifier of this password.
    pub(crate) fn is_of(&self, password: &str) -> bool {
        let derived = Verifier::derive(password, self.iterations, self.salt.clone());
        derived.is_ok_and(|derived| derived.stored_key.ct_eq(&self.stored_key).into())
    }
}

/// A client's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFirst<'a> {
    pub(crate) name: String,
    header: &'a str,
    bare: &'a str,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Reads it; nothing if it is none, or asks for what is not here (channel binding, another identity, extensions).
    pub(crate) fn parse(payload: &'a [u8]) -> Option<ClientFirst<'a>> {
        let text = std::str::from_utf8(payload).ok()?;
        let bare = text.strip_prefix("n,,").or_else(|| text.strip_prefix("y,,"))?;
        let mut parts = bare.split(',');
        let name = unescaped(parts.next()?.strip_prefix("n=")?)?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        let is_nonce =
            !nonce.is_empty() && nonce.len() <= TEXT_BYTES_MAX && nonce.bytes().all(|b| b.is_ascii_graphic());
        (is_nonce && parts.next().is_none()).then(|| ClientFirst { name, header: &text[..3], bare, nonce })
    }
}

/// A name without the escapes of `,` and `=`.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(2)?;
        plain.push(match escaped {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}

/// An exchange whose first half is done.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    /// The header of the first message, as the second one repeats it.
    binding: String,
    nonce: String,
    /// Both first messages.
    messages: String,
}

impl Exchange {
    /// Begins an exchange; with it the server's first message.
    pub(crate) fn begin(first: &ClientFirst<'_>, verifier: Verifier) -> Result<(Exchange, String), &'static str> {
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(random::<NONCE_BYTES>()?));
        Ok(Exchange::with_nonce(first, verifier, nonce))
    }

    fn with_nonce(first: &ClientFirst<'_>, verifier: Verifier, nonce: String) -> (Exchange, String) {
        let challenge = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let messages = format!("{},{challenge}", first.bare);
        (Exchange { verifier, binding: STANDARD.encode(first.header), nonce, messages }, challenge)
    }

    /// Checks the proof in the client's second message; the server's own proof, if the client's is right.
    pub(crate) fn finish(&self, payload: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(payload).ok()?;
        let (without_proof, proof) = text.rsplit_once(",p=")?;
        if without_proof != format!("c={},r={}", self.binding, self.nonce) {
            return None;
        }
        let mut key: Key = STANDARD.decode(proof).ok()?.try_into().ok()?;
        let message = format!("{},{without_proof}", self.messages);
        let signature = sign(&self.verifier.stored_key, message.as_bytes());
        key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let is_right = hash(&key).ct_eq(&self.verifier.stored_key);
        let server = sign(&self.verifier.server_key, message.as_bytes());
        bool::from(is_right).then(|| format!("v={}", STANDARD.encode(server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_exchange_is_that_of_the_standard() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive("pencil", NonZero::new(4096).unwrap(), salt).unwrap();
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!(first.name, "user");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
        let (exchange, challenge) = Exchange::with_nonce(&first, verifier.clone(), nonce);
        assert_eq!(challenge, "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for wrong in [
            last.replace("dHzb", "dHzc"),
            last.replace("biws", "eSws"),
            last.replace("k0,", "k1,"),
            last.replace(",p=", ",m=1,p="),
            "c=biws".to_owned(),
            String::new(),
        ] {
            assert_eq!(exchange.finish(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(verifier.is_of("pencil") && !verifier.is_of("pencils") && !verifier.is_of(""));
    }

    #[test]
    fn first_messages_that_ask_for_what_is_not_here_are_none() {
        let name = |text: &str| ClientFirst::parse(text.as_bytes()).map(|first| first.name);
        assert_eq!(name("y,,n=a=2Cb=3D=3D,r=x").as_deref(), Some("a,b=="));
        for wrong in [
            "",
            "n,,",
            "n,,n=a",
            "n,,n=a,r=",
            "n,,n=a=,r=x",
            "n,,n=a=2c,r=x",
            "n,,n=a=é,r=x",
            "n,a=b,n=a,r=x",
            "p=tls-unique,,n=a,r=x",
            "n,,m=1,n=a,r=x",
            "n,,n=a,r=x,e=1",
            "n,,n=a,r=x y",
        ] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn passwords_are_normalized_and_salts_are_not_shared() {
        let verifier = Verifier::of_password("I\u{ad}X").unwrap();
        assert!(verifier.is_of("IX") && verifier.is_of("\u{2168}"));
        assert_ne!(verifier.salt, Verifier::of_password("IX").unwrap().salt);
        assert!(Verifier::of_password("").is_err() && Verifier::of_password("a\u{7}").is_err());
        let nobody = Verifier::of_nobody(&[7; 32], "eve");
        assert_eq!(nobody, Verifier::of_nobody(&[7; 32], "eve"));
        assert_ne!(nobody.salt, Verifier::of_nobody(&[7; 32], "eva").salt);
        assert_eq!(nobody.salt.len(), verifier.salt.len());
    }
}
