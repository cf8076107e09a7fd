//! What a server tells about itself by INFO, which users without the right to read its configuration may use, too.

use serde::{Deserialize, Serialize};

use ::redis::{Pipeline, Value};

use super::{
    connection::Connection,
    refusal::{RefusedCall, refusal},
    store_error::StoreError,
};

/// The oldest version that can run our scripts.
const OLDEST: (u16, u16) = (6, 2);

/// Sections of INFO that are asked for.
const SECTIONS: [&str; 4] = ["server", "memory", "persistence", "replication"];

/// One server of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The address of the server's socket.
    pub at: String,
    /// The version of the server: major, minor, patch.
    pub version: (u16, u16, u16),
    /// A name that changes with every start of the server.
    pub run_id: String,
    /// Master or replica.
    pub role: Role,
    /// The server's clock in microseconds; 0 if the server does not tell it.
    #[serde(default)]
    pub time_us: u64,
    /// How many bytes the server may hold; 0 is no limit.
    pub maxmemory: u64,
    /// What the server does when its memory is full: `noeviction`, `allkeys-lru`, ...
    pub maxmemory_policy: String,
    /// What the server writes to disk.
    pub persistence: Persistence,
}

/// What a server writes to disk, so that a restart does not lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persistence {
    /// Each write (`appendonly yes`).
    Log,
    /// Everything, now and then (`save`).
    Snapshots,
    /// Neither a log nor snapshots: a restart loses everything.
    Nothing,
    /// No log. Whether there are snapshots only its configuration says, which this user may not read.
    Unknown,
}

/// Whether a server takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The server takes writes.
    Master,
    /// The server follows a master, and takes no writes.
    Replica,
}

impl ServerFacts {
    /// Whether the server may forget any key, also ours, when its memory is full.
    pub fn evicts_all_keys(&self) -> bool {
        self.maxmemory_policy.starts_with("allkeys-")
    }

    /// Whether the server may forget keys that have a lifetime, as all of ours have.
    pub fn evicts_volatile_keys(&self) -> bool {
        self.maxmemory_policy.starts_with("volatile-")
    }

    /// Returns the warning about a server that forgets what was spent, which makes limits wider than they are.
    pub fn eviction_warning(&self) -> Option<String> {
        let evicts = self.evicts_all_keys() || self.evicts_volatile_keys();
        (evicts && self.maxmemory > 0).then(|| {
            format!(
                "{} has maxmemory-policy {}: when its memory is full it forgets what users have spent, and they can spend it again; \
                 set maxmemory-policy noeviction",
                self.at, self.maxmemory_policy
            )
        })
    }

    /// Returns the warning about a server that loses what was spent when it starts again.
    pub fn persistence_warning(&self) -> Option<String> {
        (self.persistence == Persistence::Nothing).then(|| {
            format!(
                "{} writes nothing down (appendonly no, no save points): when it starts again users can spend again what they have spent, and \
                 the policy has limits of requests over more than an hour; set appendonly yes",
                self.at
            )
        })
    }

    /// Whether both are the same server, since the same start and in the same role, whatever its settings are.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (&self.at, &self.run_id, self.role) == (&other.at, &other.run_id, other.role)
    }
}

/// Asks one server about itself. A server that is too old is an error.
pub(super) async fn facts(connection: &Connection) -> Result<ServerFacts, StoreError> {
    let mut commands = Pipeline::with_capacity(SECTIONS.len());
    // There is a command for each section because versions before 7.0 take one section each.
    for section in SECTIONS {
        commands.cmd("INFO").arg(section);
    }
    let at = connection.at();
    let mut text = String::new();
    for answer in connection.ask_all(&commands).await? {
        match answer {
            Value::BulkString(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Value::ServerError(error) => return Err(refusal(at, RefusedCall::Command("INFO"), &error)),
            _ => return Err(StoreError::Nonsense { at: at.to_owned(), why: "INFO is not text".into() }),
        }
    }
    let mut facts = read(at, &text)?;
    if facts.persistence == Persistence::Unknown {
        let mut save = Pipeline::with_capacity(1);
        save.cmd("CONFIG").arg("GET").arg("save");
        facts.persistence = match connection.ask_all(&save).await?.first().and_then(has_save_points) {
            Some(true) => Persistence::Snapshots,
            Some(false) => Persistence::Nothing,
            None => Persistence::Unknown,
        };
    }
    Ok(facts)
}

/// Whether a server has save points; `None` if this user may not read the server's configuration.
fn has_save_points(answer: &Value) -> Option<bool> {
    let save = match answer {
        Value::Array(pair) => pair.get(1)?,
        Value::Map(pairs) => &pairs.first()?.1,
        _ => return None,
    };
    match save {
        Value::BulkString(save) => Some(!save.is_empty()),
        _ => None,
    }
}

fn read(at: &str, text: &str) -> Result<ServerFacts, StoreError> {
    let lacks = |name| StoreError::Nonsense { at: at.to_owned(), why: format!("INFO does not say {name}") };
    let field = |name| {
        let mut fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(|| lacks(name))
    };
    let found = field("redis_version")?;
    let version = version(found).ok_or_else(|| lacks("redis_version"))?;
    if (version.0, version.1) < OLDEST {
        return Err(StoreError::TooOld { at: at.to_owned(), found: found.to_owned() });
    }
    Ok(ServerFacts {
        at: at.to_owned(),
        version,
        run_id: field("run_id")?.to_owned(),
        role: if field("role")? == "master" { Role::Master } else { Role::Replica },
        time_us: field("server_time_usec").ok().and_then(|time| time.parse().ok()).unwrap_or(0),
        maxmemory: field("maxmemory")?.parse().map_err(|_| lacks("maxmemory"))?,
        maxmemory_policy: field("maxmemory_policy")?.to_owned(),
        persistence: if field("aof_enabled") == Ok("1") { Persistence::Log } else { Persistence::Unknown },
    })
}

fn version(text: &str) -> Option<(u16, u16, u16)> {
    let mut parts = text.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some((next()?, next()?, next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\nrun_id:abc\r\nserver_time_usec:1795083797553122\r\n# Memory\r\nmaxmemory:1024\r\nmaxmemory_policy:{policy}\r\n# Replication\r\nrole:slave\r\n"
        )
    }

    #[test]
    fn facts_are_read_from_info() {
        let facts = read("h:1", &info("7.0.15", "allkeys-lru")).unwrap();
        assert_eq!((facts.version, facts.role, facts.maxmemory), ((7, 0, 15), Role::Replica, 1024));
        assert_eq!(facts.time_us, 1_795_083_797_553_122);
        assert!(facts.evicts_all_keys() && !facts.evicts_volatile_keys());
        assert!(read("h:1", &info("7.0.15", "volatile-ttl")).unwrap().evicts_volatile_keys());
    }

    #[test]
    fn a_server_with_bounded_memory_that_evicts_is_warned_of_and_settings_make_no_other_server_of_it() {
        let keeps = read("h:1", &info("7.0.15", "noeviction")).unwrap();
        assert_eq!(keeps.eviction_warning(), None);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let evicts = read("h:1", &info("7.0.15", policy)).unwrap();
            assert!(evicts.eviction_warning().unwrap().contains(&format!("has maxmemory-policy {policy}:")));
            let unbounded = ServerFacts { maxmemory: 0, ..evicts.clone() };
            assert_eq!(unbounded.eviction_warning(), None, "its memory is never full");
            assert!(keeps.is_same_server(&evicts) && keeps.is_same_server(&unbounded));
        }
        assert!(!keeps.is_same_server(&ServerFacts { run_id: "abd".into(), ..keeps.clone() }));
        assert!(!keeps.is_same_server(&ServerFacts { role: Role::Master, ..keeps.clone() }));
    }

    #[test]
    fn what_a_server_writes_down_is_read() {
        for (aof, persistence) in [
            ("aof_enabled:1\r\n", Persistence::Log),
            ("aof_enabled:0\r\n", Persistence::Unknown),
            ("", Persistence::Unknown),
        ] {
            let text = info("7.0.15", "noeviction") + aof;
            assert_eq!(read("h:1", &text).unwrap().persistence, persistence, "{aof:?}");
        }
        let of = |text: &str| vec![Value::BulkString(b"save".to_vec()), Value::BulkString(text.into())];
        assert_eq!(has_save_points(&Value::Array(of("3600 1"))), Some(true));
        assert_eq!(has_save_points(&Value::Array(of(""))), Some(false));
        assert_eq!(has_save_points(&Value::Array(vec![])), None, "hidden");
        assert_eq!(has_save_points(&Value::Nil), None);
    }

    #[test]
    fn only_servers_that_write_nothing_are_warned_of() {
        let facts = read("h:1", &info("7.0.15", "noeviction")).unwrap();
        let warns =
            |persistence| ServerFacts { persistence, ..facts.clone() }.persistence_warning().is_some();
        use Persistence::{Log, Nothing, Snapshots, Unknown};
        assert_eq!([Log, Snapshots, Nothing, Unknown].map(warns), [false, false, true, false]);
    }

    #[test]
    fn a_server_below_6_2_is_refused() {
        for (version, accepted) in
            [("6.2.0", true), ("7.0", true), ("10.0.1", true), ("6.0.16", false), ("5.0.7", false)]
        {
            let read = read("h:1", &info(version, "noeviction"));
            assert_eq!(read.is_ok(), accepted, "{version}");
            let Err(error) = read else { continue };
            assert_eq!(
                error.to_string(),
                format!("Redis at h:1 is version {version}; 6.2 or newer is needed")
            );
        }
    }

    #[test]
    fn a_server_that_leaves_something_out_is_not_guessed_at() {
        let error = read("h:1", "redis_version:7.0.0\r\nrun_id:abc\r\n").unwrap_err();
        assert_eq!(error.to_string(), "h:1 does not speak Redis' protocol: INFO does not say role");
    }
}
