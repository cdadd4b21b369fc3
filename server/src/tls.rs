//! TLS: the server's certificate and key.

use crate::error::Failure;
use crate::settings::TlsFiles;
use ebbtide::fs::{Fs, RealFs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, Error, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// What makes TLS of connections, with the certificate and the key of these files.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Failure> {
    let TlsFiles { cert, key } = files;
    let said = |path: &Path, what: &str| Failure::new(format!("{}: {what}", path.display()));
    let read = |path: &Path| RealFs::new().read(path).map_err(|e| said(path, &format!("cannot be read: {e}")));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<_, _>>()
        .map_err(|e| said(cert, &format!("no certificates in PEM form: {e}")))?;
    if chain.is_empty() {
        return Err(said(
            cert,
            "no certificate in it: it must have the server's certificate in PEM form, and then those of its issuers",
        ));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
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
    Ok(TlsAcceptor::from(Arc::new(config)))
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
        let tried = |cert: &Path, key: &Path| acceptor(&TlsFiles { cert: cert.into(), key: key.into() });
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
}
