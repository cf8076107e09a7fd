//! The files that a policy names for listeners and the store. The daemon reads no other files for the front process.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::policy::{
    Policy,
    address::{Endpoint, Password, StoreAddress},
};

/// The named files, by what the front may learn of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedFiles {
    /// Files with certificates, keys and the store's password. The front gets their text.
    texts: BTreeSet<PathBuf>,
    /// Files with tokens. The front gets a digest, by which it recognises a token without knowing it.
    tokens: BTreeSet<PathBuf>,
    /// Sockets of the store in the file system.
    sockets: BTreeSet<PathBuf>,
}

impl NamedFiles {
    /// Collects the files that a policy names.
    pub(super) fn of(policy: &Policy) -> Self {
        let listen = policy.listen();
        let mut texts: BTreeSet<PathBuf> = BTreeSet::new();
        if let Some(tls) = &listen.tls {
            texts.extend([tls.certificate.clone(), tls.key.clone()]);
            texts.extend(tls.client_ca.clone());
        }
        texts.extend(policy.cluster().into_iter().flat_map(|cluster| of_store(cluster.redis())));
        let tokens = listen.token_file.iter().chain(&listen.operator_token_file).cloned().collect();
        let endpoints = policy.cluster().into_iter().flat_map(|cluster| cluster.redis().endpoints());
        let sockets = endpoints.filter_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.clone()),
            Endpoint::Tcp { .. } => None,
        });
        Self { texts, tokens, sockets: sockets.collect() }
    }

    /// Adds the files of another policy.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.texts.extend(other.texts);
        self.tokens.extend(other.tokens);
        self.sockets.extend(other.sockets);
        self
    }

    /// Whether the front may have the text of a file. The file of a token is refused, even if the policy names it for something else too.
    pub(super) fn has_text(&self, path: &Path) -> bool {
        self.texts.contains(path) && !self.tokens.contains(path)
    }

    /// Whether a file is the file of a token.
    pub(super) fn has_token(&self, path: &Path) -> bool {
        self.tokens.contains(path)
    }

    /// Whether a path is a socket of the store.
    pub(super) fn has_socket(&self, path: &Path) -> bool {
        self.sockets.contains(path)
    }

    /// Whether a policy names the file at all.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.texts.contains(path) || self.tokens.contains(path)
    }
}

fn of_store(address: &StoreAddress) -> impl Iterator<Item = PathBuf> {
    let password = match address.login.as_ref().map(|login| &login.password) {
        Some(Password::InFile(path)) => Some(path.clone()),
        _ => None,
    };
    let tls = address.tls.clone().unwrap_or_default();
    let identity = tls.identity.into_iter().flat_map(|identity| [identity.cert, identity.key]);
    password.into_iter().chain(tls.ca).chain(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_front_may_have_what_the_policy_names_and_no_token() {
        let text = "[source]\nlimits = [\"1/s\"]\n[listen]\nhttp = \"127.0.0.1:1\"\ntoken_file = \"/t\"\noperator_token_file = \"/o\"\n\
                    tls = { certificate = \"/c\", key = \"/k\", client_ca = \"/a\" }\n\
                    [cluster]\nredis = \"rediss://u@h?ca=/ca&cert=/sc&key=/sk\"\npassword_file = \"/p\"\n";
        let files = NamedFiles::of(&config::parse(text, "test").unwrap().policy);
        for path in ["/c", "/k", "/a", "/ca", "/sc", "/sk", "/p"] {
            assert!(files.has_text(path.as_ref()) && files.has(path.as_ref()), "{path}");
        }
        for path in ["/t", "/o"] {
            assert!(files.has_token(path.as_ref()) && !files.has_text(path.as_ref()), "{path}");
        }
        for path in ["/etc/shadow", "/", "", "/c/../k"] {
            assert!(!files.has(path.as_ref()) && !files.has_socket(path.as_ref()), "{path}");
        }
        let text = "[source]\nlimits = [\"1/s\"]\n[cluster]\nredis = \"redis+unix:///run/redis\"\n";
        let files = NamedFiles::of(&config::parse(text, "test").unwrap().policy);
        assert!(files.has_socket("/run/redis".as_ref()) && !files.has("/run/redis".as_ref()));
    }

    #[test]
    fn a_token_stays_one_when_its_file_is_named_for_something_else_too() {
        let text = "[source]\nlimits = [\"1/s\"]\n[listen]\nhttp = \"127.0.0.1:1\"\noperator_token_file = \"/o\"\n\
                    [cluster]\nredis = \"redis://u@h\"\npassword_file = \"/o\"\n";
        let files = NamedFiles::of(&config::parse(text, "test").unwrap().policy);
        assert!(!files.has_text("/o".as_ref()));
    }
}
