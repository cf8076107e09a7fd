//! Orders of the page, as the control socket takes them. The page cannot say who orders, nor from where.

use std::net::IpAddr;

use ratelimit_common::limit::lifetime::parse_lifetime;
use serde::Deserialize;

use crate::control::protocol::{Operator, Order};

/// An order in JSON.
#[derive(Debug, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
enum Wanted {
    Block {
        prefix: String,
        /// How long the block lasts, as `block add --for` takes it; for good if it is absent or empty.
        #[serde(default, rename = "for")]
        lifetime: String,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        cluster: bool,
    },
    Unblock {
        prefix: String,
        #[serde(default)]
        cluster: bool,
    },
    Allow {
        prefix: String,
    },
    Disallow {
        prefix: String,
    },
}

/// Reads the order in a body. `from` is the address of the operator, and nothing that the page can say cuts that address off.
pub fn read(body: &[u8], from: Option<IpAddr>) -> Result<Order, String> {
    let wanted: Wanted =
        serde_json::from_slice(body).map_err(|error| format!("the order is not understood: {error}"))?;
    let operator = Operator { origin: from, ..Operator::default() };
    Ok(match wanted {
        Wanted::Block { prefix, lifetime, reason, cluster } => {
            let lifetime = Some(lifetime.trim()).filter(|text| !text.is_empty());
            let for_ns = lifetime.map(parse_lifetime).transpose();
            let for_ns = for_ns.map_err(|error| format!("for: {error}"))?;
            let reason = Some(reason).filter(|text| !text.is_empty());
            Order::BlockAdd { prefix, for_ns, reason, cluster, operator }
        }
        Wanted::Unblock { prefix, cluster } => Order::BlockDel { prefix, cluster },
        Wanted::Allow { prefix } => Order::AllowAdd { prefix },
        Wanted::Disallow { prefix } => Order::AllowDel { prefix, operator },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_the_address_that_it_came_from_and_is_never_forced() {
        let from = Some("192.0.2.9".parse().unwrap());
        let text = br#"{"order":"block","prefix":"203.0.113.0/24","for":"10m","reason":"flood"}"#;
        let Ok(Order::BlockAdd { prefix, for_ns, reason, cluster, operator }) = read(text, from) else {
            panic!()
        };
        assert_eq!(
            (prefix.as_str(), for_ns, reason.as_deref()),
            ("203.0.113.0/24", Some(600_000_000_000), Some("flood"))
        );
        assert!(!cluster);
        assert_eq!(operator, Operator { origin: from, ..Operator::default() });
        let Ok(Order::BlockAdd { for_ns: None, reason: None, .. }) =
            read(br#"{"order":"block","prefix":"::/0","for":" "}"#, from)
        else {
            panic!()
        };
        let Ok(Order::AllowDel { operator, .. }) = read(br#"{"order":"disallow","prefix":"::1"}"#, from)
        else {
            panic!()
        };
        assert_eq!(operator.origin, from);
    }

    #[test]
    fn what_the_page_may_not_say_is_refused() {
        for (text, why) in [
            (r#"{"order":"block","prefix":"::/0","operator":{"force":true}}"#, "unknown field `operator`"),
            (r#"{"order":"detach"}"#, "unknown variant `detach`"),
            (r#"{"order":"block"}"#, "missing field `prefix`"),
            (r#"{"order":"block","prefix":"::1","for":"soon"}"#, "for: "),
            ("[]", "the order is not understood"),
            ("", "the order is not understood"),
        ] {
            let refused = read(text.as_bytes(), None).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
