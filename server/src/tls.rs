//! TLS: the server's certificate and key.

use crate::error::Failure;
use crate::settings::TlsFiles;
use ebbtide::fs::{Fs, RealFs};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, Error, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// TLS of new connections, with the certificate and the key that the files had when they were read last.
pub(crate) struct Tls {
    files: TlsFiles,
    state: RwLock<State>,
}

struct State {
    /// What was read of the certificate's file and of the key's, or why they could not be read.
    seen: [Result<Vec<u8>, String>; 2],
    acceptor: TlsAcceptor,
    /// The same for HTTP, of which there are two versions.
    http: TlsAcceptor,
}

impl Tls {
    /// With the certificate and the key of these files.
    pub(crate) fn new(files: TlsFiles) -> Result<Tls, Failure> {
        let seen = read(&files);
        let (acceptor, http) = acceptors(&files, &seen)?;
        let state = RwLock::new(State { acceptor, http, seen });
        Ok(Tls { files, state })
    }

    /// Reads the files again if they have changed. After an error the certificate and the key stay as they are.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        let seen = read(&self.files);
        if self.state.read().seen == seen {
            return Ok(());
        }
        let made = acceptors(&self.files, &seen);
        let mut state = self.state.write();
        state.seen = seen;
        (state.acceptor, state.http) = made?;
        tracing::info!("the certificate and the key for TLS were read again");
        Ok(())
    }

    /// What makes TLS of a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.state.read().acceptor.clone()
    }

    /// What makes TLS of a new connection of HTTP.
    pub(crate) fn http_acceptor(&self) -> TlsAcceptor {
        self.state.read().http.clone()
    }
}

fn read(files: &TlsFiles) -> [Result<Vec<u8>, String>; 2] {
    [&files.cert, &files.key].map(|path| RealFs::new().read(path).map_err(|error| error.to_string()))
}

fn acceptors(files: &TlsFiles, seen: &[Result<Vec<u8>, String>; 2]) -> Result<(TlsAcceptor, TlsAcceptor), Failure> {
    let (TlsFiles { cert, key }, [chain, private]) = (files, seen);
    let said = |path: &Path, what: &str| Failure::new(format!("{}: {what}", path.display()));
    let unread = |path: &Path, error: &String| said(path, &format!("cannot be read: {error}"));
    let chain = chain.as_ref().map_err(|error| unread(cert, error))?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|e| said(cert, &format!("no certificates in PEM form: {e}")))?;
    if chain.is_empty() {
        return Err(said(
            cert,
            "no certificate in it: it must have the server's certificate in PEM form, and then those of its issuers",
        ));
    }
    let private = private.as_ref().map_err(|error| unread(key, error))?;
    let private = PrivateKeyDer::from_pem_slice(private)
        .map_err(|e| said(key, &format!("no private key in PEM form without a passphrase: {e}")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure::new(format!("TLS: {e}")))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| match e {
            Error::InconsistentKeys(_) => {
                said(key, &format!("the key does not belong to the certificate in {}", cert.display()))
            }
            Error::InvalidCertificate(CertificateError::BadEncoding) => said(cert, "a certificate in it is damaged"),
            other => said(cert, &format!("cannot be used together with {}: {other}", key.display())),
        })?;
    let mut http = config.clone();
    http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), TlsAcceptor::from(Arc::new(http))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    #[test]
    fn bad_files_are_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            RealFs::new().create(&path).unwrap().append(text.as_bytes()).unwrap();
            path
        };
        let make = || generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (CertifiedKey { cert, signing_key }, other) = (make(), make());
        let (good, key) = (file("cert.pem", &cert.pem()), file("key.pem", &signing_key.serialize_pem()));
        let foreign = file("other.pem", &other.signing_key.serialize_pem());
        let (empty, text) =
            (file("empty.pem", ""), file("text.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"));
        let damaged = file("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let missing = folder.path().join("missing.pem");
        let tried = |cert: &Path, key: &Path| Tls::new(TlsFiles { cert: cert.into(), key: key.into() });
        assert!(tried(&good, &key).is_ok());
        for (cert, private, named, says) in [
            (&missing, &key, &missing, "cannot be read"),
            (&good, &missing, &missing, "cannot be read"),
            (&empty, &key, &empty, "no certificate"),
            (&text, &key, &text, "PEM"),
            (&damaged, &key, &damaged, "damaged"),
            (&good, &empty, &empty, "no private key"),
            (&good, &foreign, &foreign, "does not belong"),
        ] {
            let error = tried(cert, private).map(drop).unwrap_err().to_string();
            assert!(error.starts_with(&named.display().to_string()) && error.contains(says), "{error}");
        }
    }

    #[test]
    fn renewed_files_are_read_and_broken_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let fs = RealFs::new();
        let put = |path: &Path, text: &str| {
            if fs.exists(path).unwrap() {
                fs.remove(path).unwrap();
            }
            fs.create(path).unwrap().append(text.as_bytes()).unwrap();
        };
        let [(old, old_key), (new, new_key)] = [(), ()].map(|()| {
            let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        });
        put(&files.cert, &old);
        put(&files.key, &old_key);
        let tls = Tls::new(files.clone()).unwrap();
        let first = tls.acceptor();
        let is_first = || Arc::ptr_eq(first.config(), tls.acceptor().config());
        tls.refresh().unwrap();
        assert!(is_first(), "nothing has changed");
        for (broken, says) in [("", "no certificate"), (new.as_str(), "does not belong")] {
            put(&files.cert, broken);
            let error = tls.refresh().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(tls.refresh().is_ok(), "said once");
            assert!(is_first(), "kept");
        }
        fs.remove(&files.key).unwrap();
        assert!(tls.refresh().unwrap_err().to_string().contains("cannot be read"));
        assert!(is_first(), "kept");
        put(&files.key, &new_key);
        tls.refresh().unwrap();
        assert!(!is_first(), "renewed");
    }
}
