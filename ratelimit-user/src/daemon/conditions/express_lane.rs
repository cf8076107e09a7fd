//! The state of the express lane, and why it is not open. Without the lane a flood costs the host up to three times as much.

use ratelimit_common::abi::{self, Mode};

use crate::control::protocol::{LaneState, LaneStatus};

/// Returns the state of the lane under a policy. `opens_ns` is when the lane opens to IPv4 and to IPv6; `None` if it is closed.
pub(in crate::daemon) fn status(policy: &abi::Policy, opens_ns: [Option<u64>; 2], now_ns: u64) -> LaneStatus {
    let [ipv4, ipv6] = opens_ns.map(|opens_ns| match opens_ns {
        None => LaneState::Closed,
        Some(opens_ns) if opens_ns > now_ns => LaneState::OpensSoon,
        Some(_) => LaneState::Open,
    });
    LaneStatus { ipv4, ipv6, why: why(policy, [ipv4, ipv6]).map(str::to_owned) }
}

fn why(policy: &abi::Policy, states: [LaneState; 2]) -> Option<&'static str> {
    if policy.mode == Mode::Monitor as u32 {
        Some("mode = \"monitor\" drops nothing")
    } else if !policy.serves_lane() {
        Some(
            "there is no prefilter: it is switched off, or [source] has no limits or bursts too small to share",
        )
    } else if states.contains(&LaneState::Closed) {
        Some("a list has a longer prefix than what the policy takes for one source, or is changing")
    } else if states.contains(&LaneState::OpensSoon) {
        Some("a list was changed a moment ago")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compile, config, replay::FACTS};

    fn policy(text: &str) -> Box<abi::Policy> {
        compile::desired(&config::parse(text, "p.toml").unwrap().policy, &FACTS, 1, None).policy
    }

    #[test]
    fn a_lane_that_is_not_open_says_why() {
        let served = policy("[source]\nlimits = [\"100 packets/s burst 100\"]\n");
        let open = status(&served, [Some(5), Some(0)], 5);
        assert_eq!((open.ipv4, open.ipv6, open.why), (LaneState::Open, LaneState::Open, None));
        let soon = status(&served, [Some(6), Some(0)], 5);
        assert_eq!((soon.ipv4, soon.ipv6), (LaneState::OpensSoon, LaneState::Open));
        assert!(soon.why.unwrap().contains("changed a moment ago"));
        let closed = status(&served, [Some(5), None], 5);
        assert_eq!((closed.ipv4, closed.ipv6), (LaneState::Open, LaneState::Closed));
        assert!(closed.why.unwrap().contains("longer prefix"));
        let unfiltered = policy("[source]\nlimits = [\"100 packets/s burst 100\"]\ngate = false\n");
        assert!(status(&unfiltered, [None; 2], 5).why.unwrap().contains("prefilter"));
        let on_trial = policy("mode = \"monitor\"\n[source]\nlimits = [\"100 packets/s burst 100\"]\n");
        assert!(status(&on_trial, [None; 2], 5).why.unwrap().contains("monitor"));
    }
}
