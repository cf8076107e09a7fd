//! An authority of our own, made with openssl: certificates for a server at 127.0.0.1, and for a client.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::Directory;

/// `ca.pem`, `server.pem` and `server.key`, `client.pem` and `client.key`; and `other.pem`, an authority that signed none of them.
#[derive(Debug)]
pub struct Certificates {
    directory: Directory,
}

impl Certificates {
    /// Makes all keys and certificates.
    pub fn new() -> Self {
        let new = Self { directory: Directory::new() };
        for authority in ["ca", "other"] {
            new.openssl(&format!(
                "req -x509 {KEY} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}"
            ));
        }
        for (name, extension) in [
            ("server", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            ("client", "extendedKeyUsage=clientAuth"),
        ] {
            new.openssl(&format!(
                "req {KEY} -keyout {name}.key -out {name}.csr -subj /CN={name} -addext {extension}"
            ));
            new.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -out {name}.pem -days 2 -copy_extensions copy"
            ));
        }
        new
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// One of the files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// What `[listen]` says of a service that shows one of them and wants one of every caller.
    pub fn listen(&self) -> String {
        let [certificate, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.file(name));
        format!("tls = {{ certificate = {certificate:?}, key = {key:?}, client_ca = {ca:?} }}")
    }

    fn openssl(&self, words: &str) {
        let done =
            Command::new("openssl").args(words.split(' ')).current_dir(self.dir()).output().expect("openssl");
        assert!(done.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Elliptic curves: made in milliseconds.
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}
