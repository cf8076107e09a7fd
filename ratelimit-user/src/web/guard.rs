//! Which pages in browsers may ask: the dashboard's own page, under a name that no other site can have.
//!
//! A site that somebody's browser has open can make its own name mean this host (DNS rebinding), and can send requests here (forgery). An
//! address, or `localhost`, is no name that a site can have. Where a caller has to show something, a site under another name has nothing to show.

use std::net::{IpAddr, Ipv6Addr};

/// Whether a Host field names this host in a way that no other site can.
pub fn is_own_name(host: &str) -> bool {
    let name = without_port(host);
    let is_v6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_v6),
        None => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost"
                || name.ends_with(".localhost")
                || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4())
        }
    }
}

/// Whether a request comes from the page that this host itself has sent, as far as the browser says. Programs that are no browser say nothing.
pub fn is_own_page(host: &str, origin: Option<&str>, fetch_site: Option<&str>) -> bool {
    let of_origin = |origin: &str| {
        let after = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        after.is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    origin.is_none_or(of_origin) && fetch_site.is_none_or(|site| matches!(site, "same-origin" | "none"))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !is_bare_v6(host) => name,
        _ => host,
    }
}

/// `::1` has no port behind its last colon.
fn is_bare_v6(host: &str) -> bool {
    !host.starts_with('[') && host.matches(':').count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_own_names_whatever_the_port_and_names_are_not() {
        for own in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.0.2.7:1",
            "[::1]",
            "[::1]:8080",
            "[2001:db8::7]:80",
            "localhost",
            "LOCALHOST:9000",
            "localhost.",
            "edge.localhost:80",
        ] {
            assert!(is_own_name(own), "{own}");
        }
        for other in [
            "",
            ":80",
            "rebound.example",
            "rebound.example:8080",
            "127.0.0.1.rebound.example",
            "localhost.rebound.example",
            "notlocalhost",
            "127.0.0.1@rebound.example",
            "[::1].rebound.example",
            "[rebound]",
            "::1",
            "127.1",
            "0x7f.0.0.1",
        ] {
            assert!(!is_own_name(other), "{other}");
        }
    }

    #[test]
    fn only_the_own_page_and_programs_that_are_no_browser_may_change_something() {
        let host = "127.0.0.1:8080";
        assert!(is_own_page(host, None, None));
        assert!(is_own_page(host, Some("http://127.0.0.1:8080"), Some("same-origin")));
        assert!(is_own_page("Edge.example", Some("https://edge.example"), None));
        for (origin, site) in [
            (Some("http://127.0.0.1:8081"), None),
            (Some("http://rebound.example"), None),
            (Some("null"), None),
            (Some("127.0.0.1:8080"), None),
            (Some("http://127.0.0.1:8080.rebound.example"), None),
            (None, Some("cross-site")),
            (None, Some("same-site")),
            (Some("http://127.0.0.1:8080"), Some("cross-site")),
        ] {
            assert!(!is_own_page(host, origin, site), "{origin:?} {site:?}");
        }
    }
}
