//! TLS to the server of a webhook. Certificates are always checked.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use super::posting::Authorities;
use crate::policy::WebhookUrl;

/// Opens TLS on a connection. The certificate of the server must be for the host name of the URL.
pub(super) async fn greet(
    stream: TcpStream,
    url: &WebhookUrl,
    authorities: Option<&Authorities>,
) -> Result<TlsStream<TcpStream>, String> {
    let roots = match authorities {
        Some(named) => {
            trusting(&named.text).map_err(|why| format!("ca_file {}: {why}", named.file.display()))?
        }
        // Files are read on a thread of their own: one thread sends the messages of all notifiers.
        None => tokio::task::spawn_blocking(of_system)
            .await
            .map_err(|error| format!("authorities were not read: {error}"))??,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(url.host.clone())
        .map_err(|_| format!("{url}: no certificate can be for this name"))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| format!("TLS with {url} failed: {error}"))
}

fn trusting(text: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("it is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("it is no certificate of an authority: {error}"))?;
    }
    if roots.is_empty() { Err("it has no certificate in PEM".to_owned()) } else { Ok(roots) }
}

fn of_system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "this system has no list of trusted authorities (package ca-certificates); name one with ca_file"
                .to_owned(),
        );
    }
    Ok(roots)
}
