//! Parses a URL into a store address, with one sentence per mistake. No sentence repeats a password.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, str::FromStr};

use super::{
    Endpoint, Identity, Password, REDIS_PORT, SENTINEL_PORT, StoreAddress, StoreLogin, StorePlace, Tls,
};

/// What is wrong with an address, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

fn wrong<T>(sentence: impl Into<String>) -> Result<T, AddressError> {
    Err(AddressError(sentence.into()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse_with(text, None)
    }
}

impl StoreAddress {
    /// Parses an address; `apart` is a password that was given separately, if any.
    pub fn parse_with(text: &str, apart: Option<Password>) -> Result<Self, AddressError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("the address has no scheme; write for example redis://127.0.0.1:6379");
        };
        let (kind, over_tls) = kind_of(scheme)?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        if rest.contains('#') {
            return wrong("the address has a #; inside a name or password write it as %23");
        }
        // A password with an unescaped / or ? would be split here, and its halves shown as a host, a path or an option.
        let behind = rest.split_once('/').map_or("", |(_, path)| path);
        if (kind != StoreKind::Unix && behind.contains('@')) || query.is_some_and(|query| query.contains('@'))
        {
            return wrong(
                "the address has an @ behind / or ?; inside a password write / as %2F, ? as %3F and @ as %40",
            );
        }
        let options = AddressOptions::read(query.unwrap_or_default())?;
        if kind == StoreKind::Unix {
            return unix(rest, &options, apart);
        }
        let (authority, path) =
            rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login_of(login, apart)?), hosts),
            None => (apart.map(|password| StoreLogin { user: None, password }), authority),
        };
        if options.database.is_some() {
            return wrong(
                "db= is for Unix sockets; write the database as the last part of the path, as in redis://host/1",
            );
        }
        let endpoints =
            endpoints_of(hosts, if kind == StoreKind::Sentinel { SENTINEL_PORT } else { REDIS_PORT })?;
        let (place, database) = place_of(kind, endpoints, path)?;
        Ok(Self { place, login, database, tls: options.tls(over_tls)? })
    }
}

fn kind_of(scheme: &str) -> Result<(StoreKind, bool), AddressError> {
    Ok(match scheme {
        "redis" => (StoreKind::Single, false),
        "rediss" => (StoreKind::Single, true),
        "redis+unix" | "unix" => (StoreKind::Unix, false),
        "redis+sentinel" => (StoreKind::Sentinel, false),
        "rediss+sentinel" => (StoreKind::Sentinel, true),
        "redis+cluster" => (StoreKind::Cluster, false),
        "rediss+cluster" => (StoreKind::Cluster, true),
        _ => {
            return wrong(format!(
                "scheme {scheme:?} is not known; use redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster"
            ));
        }
    })
}

fn unix(rest: &str, options: &AddressOptions, apart: Option<Password>) -> Result<StoreAddress, AddressError> {
    let (login, path) = match rest.split_once('/') {
        Some(("", _)) => (apart.map(|password| StoreLogin { user: None, password }), rest),
        Some((before, _)) if before.ends_with('@') => {
            (Some(login_of(before.trim_end_matches('@'), apart)?), &rest[before.len()..])
        }
        // The sentence does not repeat the path: it may be half of a password.
        _ => {
            return wrong("the path of the socket does not begin with /; write redis+unix:///path/to/socket");
        }
    };
    let path = decoded(path, "the path of the socket")?;
    if path.ends_with('/') {
        return wrong(format!("{path} is not the path of a socket; write redis+unix:///path/to/socket"));
    }
    if options.ca.is_some() || options.cert.is_some() || options.key.is_some() {
        return wrong("ca=, cert= and key= are for TLS; a Unix socket has none");
    }
    Ok(StoreAddress {
        place: StorePlace::Single(Endpoint::Unix(PathBuf::from(path))),
        login,
        database: options.database.unwrap_or(0),
        tls: None,
    })
}

fn place_of(
    kind: StoreKind,
    endpoints: Vec<Endpoint>,
    path: &str,
) -> Result<(StorePlace, u32), AddressError> {
    let path = path.strip_suffix('/').unwrap_or(path);
    match kind {
        StoreKind::Sentinel => {
            let (master, database) = path.split_once('/').map_or((path, ""), |parts| parts);
            let master = decoded(master, "the name of the master")?;
            if master.is_empty() {
                return wrong(
                    "the name of the master is missing; write redis+sentinel://host:26379/NAME with the name that the Sentinels have for it",
                );
            }
            if let Some(twice) = named_twice(&endpoints) {
                return wrong(format!(
                    "Sentinel {twice} is there twice and would have two votes; name each Sentinel once"
                ));
            }
            Ok((StorePlace::Sentinel { sentinels: endpoints, master }, database_of(database)?))
        }
        StoreKind::Cluster if path.is_empty() => Ok((StorePlace::Cluster(endpoints), 0)),
        StoreKind::Cluster => {
            wrong(format!("database {path:?}: a Redis Cluster has only database 0; leave it out"))
        }
        StoreKind::Single | StoreKind::Unix => match <[Endpoint; 1]>::try_from(endpoints) {
            Ok([endpoint]) => Ok((StorePlace::Single(endpoint), database_of(path)?)),
            Err(several) => wrong(format!(
                "{} hosts for one server; use redis+sentinel:// or redis+cluster:// for several",
                several.len()
            )),
        },
    }
}

/// The first endpoint that repeats an earlier one, in any spelling.
fn named_twice(endpoints: &[Endpoint]) -> Option<&Endpoint> {
    let mut before = BTreeSet::new();
    endpoints.iter().find(|endpoint| !before.insert(same_for_all_spellings(endpoint)))
}

/// One spelling for all spellings of an endpoint: lower case, no dot at the end, addresses in canonical form. Two names of one server stay different: only DNS knows.
fn same_for_all_spellings(endpoint: &Endpoint) -> Endpoint {
    let Endpoint::Tcp { host, port } = endpoint else { return endpoint.clone() };
    let host = match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    };
    Endpoint::Tcp { host, port: *port }
}

fn database_of(text: &str) -> Result<u32, AddressError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().or_else(|_| wrong(format!("database {text:?} is not a number; use for example /0")))
}

fn login_of(text: &str, apart: Option<Password>) -> Result<StoreLogin, AddressError> {
    let (user, password) = match (text.split_once(':'), apart) {
        (Some(_), Some(_)) => {
            return wrong("the password is in the address and apart from it; leave one of them out");
        }
        (Some((user, password)), None) => {
            let (user, password) = (decoded(user, "the user")?, decoded(password, "the password")?);
            if password.is_empty() {
                return wrong("the password is empty; write user:password@host, or leave out both");
            }
            (user, Password::Known(password))
        }
        (None, Some(password)) => (decoded(text, "the user")?, password),
        (None, None) => {
            return wrong(
                "a user without a password; name a password_file, or write user:password@host, or :password@host for the default user",
            );
        }
    };
    Ok(StoreLogin { user: (!user.is_empty()).then_some(user), password })
}

/// Replaces the logins of all URLs in a text by `***`. For text that others write about a command line.
pub fn without_passwords(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        safe.push_str(before);
        safe.push_str("://");
        let word = behind.find(char::is_whitespace).unwrap_or(behind.len());
        let (word, after) = behind.split_at(word);
        match word.rsplit_once('@') {
            Some((_, host)) => {
                safe.push_str("***@");
                safe.push_str(host);
            }
            None => safe.push_str(word),
        }
        rest = after;
    }
    safe.push_str(rest);
    safe
}

fn endpoints_of(hosts: &str, default_port: u16) -> Result<Vec<Endpoint>, AddressError> {
    hosts.split(',').map(|host| endpoint_of(host, default_port)).collect()
}

fn endpoint_of(text: &str, default_port: u16) -> Result<Endpoint, AddressError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) if port.starts_with(':') => (host, Some(&port[1..])),
            _ => {
                return wrong(
                    "a host in brackets has no closing one before the port; write [2001:db8::1]:6379",
                );
            }
        },
        None if text.matches(':').count() > 1 => {
            return wrong("a host has more than one colon; put IPv6 in brackets, as in [2001:db8::1]:6379");
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return wrong(format!("host {text:?} is not a name or address; write for example 127.0.0.1:6379"));
    }
    let port = match port.map(str::parse::<u16>) {
        None => default_port,
        Some(Ok(port)) if port > 0 => port,
        // The sentence does not repeat the port: if the host was forgotten, a password stands in its place.
        Some(_) => return wrong(format!("host {host:?} has a port that is not a number from 1 to 65535")),
    };
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

/// The options behind the question mark of an address.
#[derive(Default)]
struct AddressOptions {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    database: Option<u32>,
}

impl AddressOptions {
    fn read(query: &str) -> Result<Self, AddressError> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "ca" => &mut options.ca,
                "cert" => &mut options.cert,
                "key" => &mut options.key,
                "db" => {
                    options.database = Some(database_of(value)?);
                    continue;
                }
                _ => {
                    return wrong(format!(
                        "option {name:?} is not known; there are ca, cert, key, and db for Unix sockets"
                    ));
                }
            };
            if value.is_empty() {
                return wrong(format!("option {name} has no value; write {name}=/path/to/file.pem"));
            }
            if place.replace(PathBuf::from(decoded(value, name)?)).is_some() {
                return wrong(format!("option {name} is there twice; leave one of them out"));
            }
        }
        Ok(options)
    }

    fn tls(self, over_tls: bool) -> Result<Option<Tls>, AddressError> {
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some(Identity { cert, key }),
            (None, None) => None,
            (Some(_), None) => return wrong("cert= without key=; a client certificate needs both"),
            (None, Some(_)) => return wrong("key= without cert=; a client certificate needs both"),
        };
        if !over_tls && (self.ca.is_some() || identity.is_some()) {
            return wrong("ca=, cert= and key= are for TLS; write rediss instead of redis");
        }
        Ok(over_tls.then_some(Tls { ca: self.ca, identity }))
    }
}

/// Decodes percent escapes such as %40. The text may be a password, so no error repeats it.
fn decoded(text: &str, what: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => {
                return wrong(format!(
                    "{what} has a % without two hexadecimal digits; write a % itself as %25"
                ));
            }
        }
        rest = &after[2..];
    }
    String::from_utf8(bytes).or_else(|_| wrong(format!("{what} is not UTF-8")))
}
