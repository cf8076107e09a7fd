//! What can go wrong with the store, by what an operator does about it. No sentence has a password in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why the store did not answer, or not with what was asked for. `at` is the socket, not the whole address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each sentence says what its variant is")]
pub enum StoreError {
    #[error("Redis at {at} cannot be reached: {why}")]
    Unreachable { at: String, why: String },
    #[error("the connection to Redis at {at} was lost: {why}")]
    Lost { at: String, why: String },
    #[error("Redis at {at} did not answer within {} ms", after.as_millis())]
    TimedOut { at: String, after: Duration },
    #[error("Redis at {at} refuses the password or does not know the user {user:?}")]
    WrongPassword { at: String, user: String },
    #[error(
        "Redis at {at} wants a password; name a password_file, or write it into the address as redis://user:password@host"
    )]
    NoPassword { at: String },
    #[error("Redis at {at} does not permit {what} to this user; its ACL must allow {what}")]
    NoPermission { at: String, what: String },
    #[error("Redis at {at} is a replica and takes no writes; the master must be found again")]
    ReadOnly { at: String },
    #[error("Redis at {at} is still loading its data")]
    Loading { at: String },
    #[error("Redis at {at} is busy with a script that does not end")]
    Busy { at: String },
    #[error("Redis at {at} has no memory left (maxmemory is reached); give it more, or fewer keys")]
    OutOfMemory { at: String },
    #[error("the Redis Cluster does not serve this key, says {at}: {why}")]
    ClusterDown { at: String, why: String },
    #[error("Redis at {at} takes no writes because it cannot save its data (MISCONF); its log says why")]
    CannotSave { at: String },
    #[error("Redis at {at} takes no writes because too few replicas follow it (min-replicas-to-write)")]
    TooFewReplicas { at: String },
    #[error("Redis at {at} is a replica that has lost its master (MASTERDOWN)")]
    MasterDown { at: String },
    #[error("Redis at {at} takes no more clients (maxclients)")]
    TooManyClients { at: String },
    #[error("Redis at {at} is in protected mode and takes only clients of its own host; give it a password")]
    Protected { at: String },
    #[error("Redis at {at} has no database {database}; its setting databases says how many there are")]
    NoDatabase { at: String, database: u32 },
    #[error("{at} speaks TLS; write rediss instead of redis in the address")]
    SpeaksTls { at: String },
    #[error("{at} does not speak TLS; write redis instead of rediss in the address")]
    SpeaksPlain { at: String },
    #[error("the certificate of {at} is not trusted: {why}")]
    NotTrusted { at: String, why: String },
    #[error("{at} does not accept our certificate: {why}; name one with cert=FILE&key=FILE in the address")]
    CertificateRefused { at: String, why: String },
    #[error("TLS with {at} failed: {why}")]
    Tls { at: String, why: String },
    #[error("password_file {file}: {why}")]
    PasswordFile { file: String, why: String },
    #[error("{file}: {why}")]
    TlsFile { file: String, why: String },
    #[error(
        "the Sentinel at {at} knows no master {master:?}; the name is what follows `sentinel monitor` in its configuration"
    )]
    UnknownMaster { at: String, master: String },
    #[error("Redis at {at} is a node of a Redis Cluster; write redis+cluster in the address")]
    IsCluster { at: String },
    #[error(
        "Redis at {at} is not part of a Redis Cluster; write redis instead of redis+cluster in the address"
    )]
    NotCluster { at: String },
    #[error(
        "the keys of one call of {script} are in different slots of the Redis Cluster; their hash tags must be the same"
    )]
    CrossSlot { script: String },
    #[error("Redis at {at} is version {found}; 6.2 or newer is needed")]
    TooOld { at: String, found: String },
    #[error("the script {script} failed in Redis at {at}: {why}")]
    Script { at: String, script: String, why: String },
    #[error("Redis at {at} refused {what}: {why}")]
    Refused { at: String, what: String, why: String },
    #[error("{at} does not speak Redis' protocol: {why}")]
    Nonsense { at: String, why: String },
}

impl StoreError {
    /// One word for the error, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Lost { .. } => "lost",
            Self::TimedOut { .. } => "timed_out",
            Self::WrongPassword { .. } => "wrong_password",
            Self::NoPassword { .. } | Self::PasswordFile { .. } => "no_password",
            Self::NoPermission { .. } => "no_permission",
            Self::ReadOnly { .. } => "read_only",
            Self::Loading { .. } => "loading",
            Self::Busy { .. } => "busy",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::ClusterDown { .. } => "cluster_down",
            Self::CannotSave { .. } => "cannot_save",
            Self::TooFewReplicas { .. } => "too_few_replicas",
            Self::MasterDown { .. } => "master_down",
            Self::TooManyClients { .. } => "too_many_clients",
            Self::Protected { .. } => "protected",
            Self::NoDatabase { .. } => "no_database",
            Self::SpeaksTls { .. } | Self::SpeaksPlain { .. } | Self::Tls { .. } | Self::TlsFile { .. } => {
                "tls"
            }
            Self::NotTrusted { .. } | Self::CertificateRefused { .. } => "certificate",
            Self::UnknownMaster { .. } => "unknown_master",
            Self::IsCluster { .. } | Self::NotCluster { .. } | Self::CrossSlot { .. } => {
                "wrong_kind_of_store"
            }
            Self::TooOld { .. } => "too_old",
            Self::Script { .. } => "script",
            Self::Refused { .. } => "refused",
            Self::Nonsense { .. } => "nonsense",
        }
    }

    /// Whether the error may pass by itself. Other errors need somebody to change something; asking again soon is no use.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::TimedOut { .. }
            | Self::ReadOnly { .. }
            | Self::Loading { .. }
            | Self::Busy { .. }
            | Self::OutOfMemory { .. }
            | Self::ClusterDown { .. }
            | Self::CannotSave { .. }
            | Self::TooFewReplicas { .. }
            | Self::MasterDown { .. }
            | Self::TooManyClients { .. } => true,
            Self::WrongPassword { .. }
            | Self::NoPassword { .. }
            | Self::NoPermission { .. }
            | Self::Protected { .. }
            | Self::NoDatabase { .. }
            | Self::SpeaksTls { .. }
            | Self::SpeaksPlain { .. }
            | Self::NotTrusted { .. }
            | Self::CertificateRefused { .. }
            | Self::Tls { .. }
            | Self::TlsFile { .. }
            | Self::PasswordFile { .. }
            | Self::UnknownMaster { .. }
            | Self::IsCluster { .. }
            | Self::NotCluster { .. }
            | Self::CrossSlot { .. }
            | Self::TooOld { .. }
            | Self::Script { .. }
            | Self::Refused { .. }
            | Self::Nonsense { .. } => false,
        }
    }

    /// Whether the server answers, but takes no writes: it counts nothing, though it may answer peeks.
    pub fn refuses_writes(&self) -> bool {
        matches!(
            self,
            Self::ReadOnly { .. }
                | Self::OutOfMemory { .. }
                | Self::CannotSave { .. }
                | Self::TooFewReplicas { .. }
                | Self::MasterDown { .. }
        )
    }

    /// Whether a replica was found where the store should be. It takes writes after somebody has promoted it, or has named its master.
    pub fn is_of_replica(&self) -> bool {
        matches!(self, Self::ReadOnly { .. } | Self::MasterDown { .. })
    }

    /// Whether there was no answer in time, which says little of the server.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the server says that it has too much to do at the moment.
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Loading { .. })
    }

    /// Whether the link is of no more use, or leads to the wrong place, until `Link::mend` has run. After a timeout too: answers that come
    /// late are thrown away, but a connection whose other end is gone without a word is only noticed by opening another one.
    pub fn needs_reconnect(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Lost { .. }
                | Self::TimedOut { .. }
                | Self::ReadOnly { .. }
                | Self::MasterDown { .. }
                | Self::ClusterDown { .. }
                | Self::NoPassword { .. }
                | Self::Nonsense { .. }
        )
    }
}
