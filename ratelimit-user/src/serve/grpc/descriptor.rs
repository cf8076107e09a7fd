//! Names and values as proxies send them, read as a question.
//!
//! | name | what it is |
//! |---|---|
//! | `user`, `user_id` | who asks |
//! | `api` | what for; the domain if there is none |
//! | `remote_address`, `ip` | from where |
//! | `priority` | `background`, `normal` or `critical` |
//! | any other | a further part of the key, by its name |

use std::net::IpAddr;

use bytes::Bytes;

use super::{messages::text, status::GrpcStatus};
use crate::requests::{BadRequest, Priority, Request, decision_service::DecisionService};

/// The most entries of one descriptor. Those of proxies have a handful.
const MAX_ENTRIES: usize = 32;

/// A question, borrowed from the message that it came in.
#[derive(Debug)]
pub struct DescriptorQuery<'m> {
    request: Request<'m>,
    parts: Vec<(&'m str, &'m str)>,
}

impl<'m> DescriptorQuery<'m> {
    /// Reads names and values. The first value of a name counts. `vouched` says whether the address may be blocked for its requests.
    pub fn read(
        domain: &'m str,
        entries: impl ExactSizeIterator<Item = (&'m Bytes, &'m Bytes)>,
        cost: u64,
        vouched: bool,
    ) -> Result<Self, GrpcStatus> {
        if entries.len() > MAX_ENTRIES {
            let message = format!("a descriptor has {} entries; use at most {MAX_ENTRIES}", entries.len());
            return Err(GrpcStatus::invalid(message));
        }
        let (mut user, mut api, mut ip, mut priority) = (None, None, None, None);
        let mut parts = Vec::new();
        for (key, value) in entries {
            let key = text("the key of a descriptor's entry", key)?;
            let value = text(key, value)?;
            match key {
                "" => return Err(GrpcStatus::invalid("a descriptor has an entry without a key")),
                "user" | "user_id" => _ = user.get_or_insert(value),
                "api" => _ = api.get_or_insert(value),
                "remote_address" | "ip" => _ = ip.get_or_insert(address(key, value)?),
                "priority" => _ = priority.get_or_insert(importance(value)?),
                _ => parts.push((key, value)),
            }
        }
        let request = Request {
            ip,
            vouched,
            cost,
            priority: priority.unwrap_or_default(),
            ..Request::new(user.unwrap_or_default(), api.unwrap_or(domain))
        };
        Ok(Self { request, parts })
    }

    /// The question as the engine takes it.
    pub fn request(&self) -> Request<'_> {
        self.request.with_parts(&self.parts)
    }

    /// Gives back what the question was charged.
    pub async fn give_back(&self, decisions: &DecisionService, cost: u64) {
        if cost > 0 {
            decisions.give_back(&self.request().costing(cost)).await;
        }
    }
}

/// Makes the status that tells the caller that its question cannot be answered.
pub fn problem(bad: &BadRequest) -> GrpcStatus {
    GrpcStatus::invalid(bad.to_string())
}

fn address(key: &str, value: &str) -> Result<IpAddr, GrpcStatus> {
    value.parse().map_err(|_| GrpcStatus::invalid(format!("{key} {:?} is no IP address", shortened(value))))
}

fn importance(value: &str) -> Result<Priority, GrpcStatus> {
    Priority::parse(value).ok_or_else(|| {
        let all = Priority::ALL.map(Priority::name).join(", ");
        GrpcStatus::invalid(format!("priority {:?} is none of {all}", shortened(value)))
    })
}

fn shortened(value: &str) -> String {
    value.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &'static [(&'static str, &'static str)]) -> Result<String, GrpcStatus> {
        let entries: Vec<_> = entries.iter().map(|(k, v)| (Bytes::from(*k), Bytes::from(*v))).collect();
        let question =
            DescriptorQuery::read("web", entries.iter().map(|(key, value)| (key, value)), 3, true)?;
        let Request { user, api, ip, cost, priority, parts, .. } = question.request();
        Ok(format!("{user:?} {api:?} {ip:?} {cost} {} {parts:?}", priority.name()))
    }

    #[test]
    fn names_of_proxies_become_parts_of_a_question() {
        let all = [
            ("user_id", "ann"),
            ("user", "bob"),
            ("remote_address", "192.0.2.1"),
            ("priority", "critical"),
            ("generic_key", "slow"),
        ];
        let said = read(Box::leak(Box::new(all))).unwrap();
        assert_eq!(said, r#""ann" "web" Some(192.0.2.1) 3 critical [("generic_key", "slow")]"#);
        assert_eq!(read(&[("api", "search")]).unwrap(), r#""" "search" None 3 normal []"#);
    }

    #[test]
    fn what_makes_no_sense_is_said_in_a_sentence() {
        let said = |entries| read(entries).unwrap_err().message;
        assert_eq!(said(&[("ip", "here")]), "ip \"here\" is no IP address");
        assert_eq!(said(&[("", "x")]), "a descriptor has an entry without a key");
        assert_eq!(
            said(&[("priority", "high")]),
            "priority \"high\" is none of background, normal, critical"
        );
        assert_eq!(said(&[("a", "b"); 33]), "a descriptor has 33 entries; use at most 32");
    }
}
