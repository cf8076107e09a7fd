//! TLS to a server: whom to trust, what to show, and what a failed handshake means.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        AlertDescription, CertificateError, ClientConfig, ConfigBuilder, Error as TlsError, RootCertStore,
        client::WantsClientCert,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use super::store_error::StoreError;
use crate::{
    certificate, clock, log,
    policy::address::{Endpoint, Tls},
    secret_file,
    stamp::Stamp,
};

/// How long the system's list of authorities is good for.
const LIST: Duration = Duration::from_secs(600);

/// Makes connectors for TLS. They are made again when a file that they came from has changed.
pub(super) struct Connector {
    tls: Tls,
    made: Mutex<Made>,
}

struct Made {
    connector: TlsConnector,
    from: Vec<Stamp>,
    at: Instant,
}

impl Connector {
    pub(super) fn new(tls: &Tls) -> Result<Self, StoreError> {
        // Stamps are taken before the files are read: a file that is written meanwhile has another stamp at the next look.
        let from = stamps(tls);
        let made = Made { connector: connector(tls)?, from, at: Instant::now() };
        Ok(Self { tls: tls.clone(), made: Mutex::new(made) })
    }

    /// Returns the connector for one connection. Files that cannot be used change nothing.
    pub(super) fn current(&self) -> TlsConnector {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let from = stamps(&self.tls);
        let is_old = self.tls.ca.is_none() && made.at.elapsed() > LIST;
        if from != made.from || is_old {
            made.from = from;
            made.at = Instant::now();
            match connector(&self.tls) {
                Ok(connector) => made.connector = connector,
                Err(error) => {
                    log::error(format!(
                        "certificates for Redis not read again, the old stay in use: {error}"
                    ));
                }
            }
        }
        made.connector.clone()
    }
}

fn stamps(tls: &Tls) -> Vec<Stamp> {
    let identity = tls.identity.iter().flat_map(|identity| [&identity.cert, &identity.key]);
    let files: Vec<PathBuf> = tls.ca.iter().chain(identity).cloned().collect();
    secret_file::stamps(&files)
}

/// Reads the files and, if no authority is named, the system's list.
fn connector(tls: &Tls) -> Result<TlsConnector, StoreError> {
    let roots = match &tls.ca {
        Some(path) => named_authority(path)?,
        None => system_authorities()?,
    };
    let trusting = trusting(roots)?;
    let config = match &tls.identity {
        None => trusting.with_no_client_auth(),
        Some(identity) => {
            let chain = certificates(&identity.cert)?;
            let file = identity.cert.display().to_string();
            let expires = certificate::first_end(chain.iter().map(AsRef::as_ref));
            if let Some(warning) = expires
                .and_then(|expires| certificate::warning(&file, expires, clock::since_1970().as_secs()))
            {
                log::warning(warning);
            }
            let key = PrivateKeyDer::from_pem_slice(&read(&identity.key)?)
                .map_err(|error| in_file(&identity.key, format!("has no private key in PEM: {error}")))?;
            trusting.with_client_auth_cert(chain, key).map_err(|error| {
                in_file(&identity.key, format!("is not the key of the certificate: {error}"))
            })?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn trusting(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, StoreError> {
    let bad = |error: TlsError| StoreError::TlsFile { file: "TLS".into(), why: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions().map_err(bad)?.with_root_certificates(roots))
}

fn named_authority(path: &Path) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| in_file(path, format!("is no certificate of an authority: {error}")))?;
    }
    Ok(roots)
}

fn system_authorities() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    // Authorities that cannot be read do not matter as long as there are others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let why = "this system has no list of trusted authorities (package ca-certificates); name one with ca=FILE in the address";
        return Err(StoreError::TlsFile { file: "TLS".into(), why: why.into() });
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(in_file(path, "has no certificate in PEM".into())),
        Err(error) => Err(in_file(path, format!("is not PEM: {error}"))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    let text = secret_file::read(path).map_err(|error| in_file(path, error.to_string()))?;
    Ok(text.into_bytes())
}

fn in_file(path: &Path, why: String) -> StoreError {
    StoreError::TlsFile { file: path.display().to_string(), why }
}

/// The name that the certificate must be for.
pub(super) fn name_of(host: &str) -> Result<ServerName<'static>, StoreError> {
    ServerName::try_from(host.to_owned()).map_err(|_| StoreError::Tls {
        at: host.to_owned(),
        why: "no certificate can be for this name".into(),
    })
}

/// Whether TLS is spoken at a socket, which would end a plain connection without a word. It trusts nobody, so the connection is not used.
pub(super) async fn is_spoken_at(endpoint: &Endpoint) -> bool {
    let Endpoint::Tcp { host, port } = endpoint else { return false };
    let (Ok(name), Ok(stream)) = (name_of(host), TcpStream::connect((host.as_str(), *port)).await) else {
        return false;
    };
    let Ok(trusting) = trusting(RootCertStore::empty()) else { return false };
    match TlsConnector::from(Arc::new(trusting.with_no_client_auth())).connect(name, stream).await {
        Ok(_) => true,
        Err(error) => {
            meaning("", &error).is_some_and(|meaning| !matches!(meaning, StoreError::SpeaksPlain { .. }))
        }
    }
}

/// Returns what an error on a TLS stream means; `None` if the error is not about TLS.
pub(super) fn meaning(at: &str, error: &io::Error) -> Option<StoreError> {
    let at = at.to_owned();
    Some(match error.get_ref()?.downcast_ref::<TlsError>()? {
        TlsError::InvalidMessage(_) => StoreError::SpeaksPlain { at },
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            let why = "its issuer is unknown; name the authority with ca=FILE in the address";
            StoreError::NotTrusted { at, why: why.into() }
        }
        TlsError::InvalidCertificate(why) => StoreError::NotTrusted { at, why: why.to_string() },
        TlsError::AlertReceived(alert) if is_about_our_certificate(*alert) => {
            StoreError::CertificateRefused { at, why: format!("{alert:?}") }
        }
        other => StoreError::Tls { at, why: other.to_string() },
    })
}

fn is_about_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            // TLS 1.2 says this when a certificate is missing.
            | AlertDescription::HandshakeFailure
    )
}
