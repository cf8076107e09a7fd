//! Warnings about the host for operators, as sentences with the remedy.

use ratelimit_common::abi::Reason;

use super::arrivals::{ArrivalCount, Arrivals};
use crate::{
    dataplane::{kernel::KernelMaps, netstat, realtime, sysctl::TcpSettings, tracking::Tracking},
    failure::Failure,
    log,
    policy::Policy,
};

/// The conditions that SYN cookies depend on.
struct CookieGround<'a> {
    /// Why the kernel refused the programs for cookies, if it did.
    problem: Option<&'a str>,
    /// Why the programs cannot read the settings of listeners, if they cannot.
    listener_problem: Option<&'a str>,
    settings: TcpSettings,
    tracking: Option<Tracking>,
    arrivals: Arrivals,
}

/// The conditions of this host that decide whether the policy in force works as it should.
#[derive(Debug)]
pub(in crate::daemon) struct Conditions {
    pub(in crate::daemon) cookie_problem: Option<String>,
    pub(in crate::daemon) listener_problem: Option<String>,
    /// Whether clients that connect by cookie get past the host's firewall.
    pub(in crate::daemon) arrivals: Arrivals,
    /// The release of the kernel.
    pub(in crate::daemon) release: String,
}

impl Conditions {
    /// Returns warnings about conditions that keep a policy from working as it should.
    pub(in crate::daemon) fn warnings(&self, policy: &Policy) -> Vec<String> {
        let mut warnings = Vec::new();
        if has_cookies(policy) {
            warnings = cookie_warnings(&CookieGround {
                problem: self.cookie_problem.as_deref(),
                listener_problem: self.listener_problem.as_deref(),
                settings: TcpSettings::read(),
                tracking: Tracking::read(),
                arrivals: self.arrivals,
            });
        }
        if realtime::interleaves(&self.release) {
            warnings.push(
                "this PREEMPT_RT kernel may run two programs on one CPU at once: packets of services with syn_cookies, mark or \
                 reject may be judged or answered as each other, and counts be off; use a kernel with \
                 CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y, or one without PREEMPT_RT"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Checks whether clients that connect by cookie get past the host's firewall. Called once a second.
    pub(in crate::daemon) fn follow_arrivals(
        &mut self,
        maps: &KernelMaps,
        policy: &Policy,
    ) -> Result<(), Failure> {
        if !has_cookies(policy) {
            return Ok(());
        }
        let passed = maps.packets(Reason::CookieValid)?;
        let Some(received) = netstat::cookies_received() else { return Ok(()) };
        let next = self.arrivals.after(ArrivalCount { passed, received });
        if let (None, Some(lost)) = (self.arrivals.cut_off(), next.cut_off()) {
            log::warning(cut_off_warning(lost));
        }
        self.arrivals = next;
        Ok(())
    }
}

fn has_cookies(policy: &Policy) -> bool {
    policy.services().iter().any(|service| service.syn_cookies().is_some())
}

fn cookie_warnings(ground: &CookieGround<'_>) -> Vec<String> {
    if let Some(problem) = ground.problem {
        return vec![format!("SYN cookies are off, SYN limits still hold: {problem}")];
    }
    if ground.settings.syncookies != 2 {
        return vec![format!(
            "SYN cookies are off, SYN limits still hold: net.ipv4.tcp_syncookies is {}, and only at 2 does the kernel \
             take cookies that were sent for it; sysctl -w net.ipv4.tcp_syncookies=2",
            ground.settings.syncookies
        )];
    }
    let mut warnings = Vec::new();
    if ground.settings.window_scale().is_none() {
        warnings.push(
            "connections made by SYN cookie will have neither window scaling nor SACK, which makes fast ones slower; \
             sysctl -w net.ipv4.tcp_timestamps=2 (with tcp_window_scaling and tcp_sack at 1) keeps both"
                .to_owned(),
        );
    } else if let Some(problem) = ground.listener_problem {
        warnings.push(format!(
            "connections made by SYN cookie will have no window scaling, which makes fast ones slower: what listeners ask for \
             cannot be read ({problem}); a kernel with BTF (/sys/kernel/btf/vmlinux) and CAP_PERFMON keep it"
        ));
    }
    if let Some(lost) = ground.arrivals.cut_off() {
        warnings.push(cut_off_warning(lost));
    } else if ground.tracking.is_some_and(|tracking| tracking.followed > 0 && !tracking.loose)
        // If acknowledgements arrive, the strict setting does no harm.
        && !ground.arrivals.are_well()
    {
        warnings.push(format!(
            "clients that come by SYN cookie cannot connect if firewall rules drop ct state invalid: \
             net.netfilter.nf_conntrack_tcp_loose is 0, and their first packet is invalid then, because the SYN was answered before the \
             firewall saw it; sysctl -w net.netfilter.nf_conntrack_tcp_loose=1, or {UNTRACKED}"
        ));
    }
    warnings
}

const UNTRACKED: &str = "leave the ports untracked (docs/policy.md, \"SYN cookies and firewalls\")";

fn cut_off_warning(lost: ArrivalCount) -> String {
    format!(
        "clients that come by SYN cookie do not get through: of the last {} packets with a valid cookie the kernel got {}; a firewall on \
         this host drops them, because it did not see the SYN, or an address translation that nftables does not show sends them elsewhere; {UNTRACKED}",
        lost.passed, lost.received
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUND: CookieGround<'_> = CookieGround {
        problem: None,
        listener_problem: None,
        settings: TcpSettings { syncookies: 2, timestamps: 2, options: true, largest_buffer: 6_291_456 },
        tracking: None,
        arrivals: Arrivals::NONE,
    };

    fn strict() -> Option<Tracking> {
        Some(Tracking { followed: 9, loose: false })
    }

    /// Arrivals after 50 acknowledgements that passed, `received` of which arrived.
    fn arrivals(received: u64) -> Arrivals {
        Arrivals::NONE.after(ArrivalCount::default()).after(ArrivalCount { passed: 50, received })
    }

    fn one(ground: &CookieGround<'_>) -> String {
        let mut warnings = cookie_warnings(ground);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings.remove(0)
    }

    #[test]
    fn a_host_that_is_as_it_should_be_is_not_warned_of() {
        assert_eq!(cookie_warnings(&GROUND), Vec::<String>::new());
        for (followed, loose, arrivals) in [
            (0, false, Arrivals::NONE),
            (9, true, Arrivals::NONE),
            // The rules of this firewall accept the packets in spite of the setting.
            (9, false, arrivals(40)),
        ] {
            let ground = CookieGround { tracking: Some(Tracking { followed, loose }), arrivals, ..GROUND };
            assert_eq!(cookie_warnings(&ground), Vec::<String>::new());
        }
    }

    #[test]
    fn each_thing_that_is_missing_is_named_with_its_remedy() {
        let settings = |syncookies, timestamps| TcpSettings { syncookies, timestamps, ..GROUND.settings };
        for (ground, words) in [
            (CookieGround { problem: Some("no room"), ..GROUND }, "are off, SYN limits still hold: no room"),
            (CookieGround { settings: settings(1, 2), ..GROUND }, "sysctl -w net.ipv4.tcp_syncookies=2"),
            (CookieGround { settings: settings(2, 1), ..GROUND }, "sysctl -w net.ipv4.tcp_timestamps=2"),
            (CookieGround { listener_problem: Some("no types"), ..GROUND }, "(no types)"),
            (CookieGround { tracking: strict(), ..GROUND }, "nf_conntrack_tcp_loose=1"),
            (CookieGround { arrivals: arrivals(0), tracking: strict(), ..GROUND }, "of the last 50 packets"),
        ] {
            let warning = one(&ground);
            assert!(warning.contains(words), "{warning}");
        }
    }

    #[test]
    fn where_cookies_are_off_nothing_else_about_them_is_said() {
        let everything = CookieGround {
            problem: Some("no room"),
            listener_problem: Some("no types"),
            settings: TcpSettings { syncookies: 1, timestamps: 1, ..GROUND.settings },
            tracking: strict(),
            arrivals: arrivals(0),
        };
        assert!(one(&everything).ends_with("no room"));
    }
}
