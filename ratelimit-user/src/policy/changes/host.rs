//! The host in words.

use ratelimit_common::abi::Meter;

use super::{Fields, followed};
use crate::policy::HostPolicy;

pub(super) fn of_host(host: &HostPolicy) -> Fields {
    let link = host.link().map_or("false".to_owned(), ToString::to_string);
    let mut fields = followed([("link", link)]);
    for rate in host.totals() {
        let field = if rate.meter == Meter::Bytes { "total in bytes" } else { "total in packets" };
        fields.insert(field.into(), (rate.to_string(), false));
    }
    fields
}
